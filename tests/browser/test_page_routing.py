"""Addresses, keyboard, long lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser import documents

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.page_server import PageSite

_TRIES = 5
PAGES = {
    "": "Overview",
    "tables": "Tables",
    "topics": "Topics",
    "sinks": "Sinks",
    "lake": "Lake",
    "events": "Events",
    "dead-letters": "Dead letters",
    "findings": "DDL findings",
    "alarms": "Alarms",
    "actions": "Actions",
    "config": "Configuration",
}


def test_pages_have_an_address_a_title_and_a_mark_in_the_navigation(page: Page, site: PageSite) -> None:
    for path, name in PAGES.items():
        page.goto(f"/#/{path}")

        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        expect(page).to_have_title(f"{name} · shop · Tailrace")
        current = page.get_by_role("navigation", name="Pages", exact=True).locator("[aria-current=page]")
        expect(current).to_have_count(1)
        expect(current).to_contain_text(name)


def test_unknown_address_is_named_and_leads_back(page: Page, site: PageSite) -> None:
    page.goto("/#/nowhere")

    expect(page.get_by_role("heading", level=1)).to_have_text("Unknown page")
    page.get_by_role("link", name="Go to the overview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


def test_back_button_returns_to_the_page_before_and_its_search(page: Page, site: PageSite) -> None:
    page.goto("/#/tables")
    page.get_by_label("Search tables").fill("items")
    expect(page.get_by_text("1\u20131 of 1")).to_be_visible()
    assert page.url.endswith("#/tables?search=items")

    page.get_by_role("link", name="public.items", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Table public.items")
    page.go_back()

    expect(page.get_by_label("Search tables")).to_have_value("items")
    expect(page.get_by_text("1\u20131 of 1")).to_be_visible()


def test_shared_address_opens_search_state_and_page(page: Page, site: PageSite) -> None:
    page.goto("/#/tables?search=audit&state=left_out")

    expect(page.get_by_label("Search tables")).to_have_value("audit")
    expect(page.get_by_label("State")).to_have_value("left_out")
    expect(page.get_by_role("rowheader", name="public.audit")).to_be_visible()
    expect(page.get_by_text("alter publication cdc_shop add table public.audit")).to_be_visible()


def test_keys_lead_to_search_and_pages_and_show_themselves(page: Page, site: PageSite) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")

    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("heading", level=1)).to_have_text("Tables")
    search = page.get_by_label("Search tables")
    expect(search).to_be_visible()
    page.keyboard.press("/")
    expect(search).to_be_focused()
    expect(search).to_have_value("")
    page.keyboard.type("g?")
    expect(search).to_have_value("g?")
    page.keyboard.press("Escape")
    expect(search).not_to_be_focused()

    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator("dialog")).to_have_count(0)


def test_skip_link_leads_to_the_content_and_leaves_the_page(page: Page, site: PageSite) -> None:
    page.goto("/#/tables")
    expect(page.get_by_role("heading", level=1)).to_have_text("Tables")

    page.get_by_role("link", name="Skip to content").focus()
    page.keyboard.press("Enter")

    expect(page.locator("#main")).to_be_focused()
    assert page.url.endswith("#/tables")


def test_new_page_moves_the_focus_to_its_heading(page: Page, site: PageSite) -> None:
    page.goto("/")

    page.get_by_role("link", name="Topics").click()

    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_ten_thousand_tables_are_paged_and_searched_by_the_server(page: Page, site: PageSite) -> None:
    many = [documents.table(number) for number in range(10_000)]
    site.answers["/api/tables"] = lambda query, _: documents.page_of(many, "tables", query)
    page.goto("/#/tables")

    expect(page.get_by_text("1\u2013100 of 10,000")).to_be_visible()
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_text("101\u2013200 of 10,000")).to_be_visible()
    expect(page.get_by_role("rowheader")).to_have_count(100)
    page.get_by_label("Search tables").fill("table_09999")

    expect(page.get_by_text("1\u20131 of 1")).to_be_visible()
    expect(page.get_by_role("rowheader")).to_have_text(["public.table_09999"])
    asked = [one.query for one in site.asked if one.path == "/api/tables"]
    assert {query["limit"] for query in asked} == {"100"}
    assert asked[-1]["search"] == "table_09999"
    assert asked[-1]["offset"] == "0"


def test_search_that_finds_nothing_says_so(page: Page, site: PageSite) -> None:
    page.goto("/#/tables?search=nothing")

    expect(page.get_by_text("No tables match.")).to_be_visible()


def test_first_paint_with_two_thousand_tables_takes_less_than_a_second(page: Page, site: PageSite) -> None:
    many = [documents.table(number) for number in range(2000)]
    site.answers["/api/tables"] = lambda query, _: documents.page_of(many, "tables", query)

    def painted_ms() -> float:
        page.goto("about:blank")
        page.goto("/#/tables")
        expect(page.get_by_text("1\u2013100 of 2,000")).to_be_visible()
        return float(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))

    assert any(painted_ms() < 1000 for _ in range(_TRIES)), "on a machine that others use, one of them is enough"
    page.goto("/")
    expect(page.locator(".box")).to_have_count(7)


def test_each_page_shows_its_document(page: Page, site: PageSite) -> None:
    for path, texts in {
        "topics": ["shop.views.sales_by_day", "1 offline", "1,234,567"],
        "sinks": ["https://search.example.com:9200 does not answer", "PAUSED", "division by zero in the view"],
        "lake": ["s3://shop-lake", "affected keys", "division by zero", "20 earlier cuts"],
        "view?lake=lake&view=sales_by_day": ["12 of 365 keys are affected", "sum(o.amount - i.cost)", "public.items"],
        "table?name=public.orders": ["added note; changed amount", "numeric(12,2)", "column amount changed"],
        "findings": ["column color was dropped", "cdc ddl accept public.orders"],
        "alarms": ["The slot loses WAL in 12 min", "Runbook: howto/alerts.md"],
        "config": ["postgresql://cdc:***@db.example.com:5432/shop", "environment"],
    }.items():
        page.goto(f"/#/{path}")
        for text in texts:
            expect(page.locator("main").get_by_text(text).first).to_be_visible()


def test_diagnosis_is_asked_for_and_shown(page: Page, site: PageSite) -> None:
    page.goto("/#/alarms")

    page.get_by_role("button", name="Find the cause").click()

    expect(page.get_by_text("connect to :9092: refused")).to_be_visible()
    expect(page.get_by_text("Not checked: sinks: Kafka does not answer")).to_be_visible()
