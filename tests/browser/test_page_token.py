"""The token, and the actions that need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from playwright.sync_api import expect

from tests.browser import documents
from tests.browser.page_server import TOKEN, Failure

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Watched
    from tests.browser.page_server import PageSite

BIG = 9007199254740993
"""A bigint that JavaScript's numbers do not have."""


def enter(page: Page, token: str = TOKEN) -> None:
    """Fill in the open dialog for the token."""
    dialog = page.get_by_role("dialog", name="Token")
    dialog.get_by_label("Token", exact=True).fill(token)
    dialog.get_by_role("button", name="Use token").click()


def with_token(page: Page) -> None:
    """Hold the token from the start."""
    page.add_init_script(f"sessionStorage.setItem('tailrace.token', '{TOKEN}')")


def test_token_is_asked_once_kept_for_the_tab_and_never_in_an_address(page: Page, site: PageSite) -> None:
    page.goto("/#/dead-letters")
    expect(page.get_by_text("Keys are values of rows: they are shown only with the token.")).to_be_visible()

    page.locator("main").get_by_role("button", name="Enter token").click()
    enter(page)

    expect(page.get_by_text("id=7")).to_be_visible()
    page.goto("/#/key?table=public.orders&key=7")
    expect(page.get_by_text("2 events, oldest first")).to_be_visible()
    page.reload()
    expect(page.get_by_text("2 events, oldest first")).to_be_visible()
    expect(page.locator("dialog")).to_have_count(0)
    assert TOKEN not in page.url
    assert [one for one in site.asked if TOKEN in str(one.query) or TOKEN in one.path] == []
    assert page.evaluate("JSON.stringify(localStorage) + document.cookie") == "{}"
    assert page.evaluate("sessionStorage.getItem('tailrace.token')") == TOKEN


def test_wrong_token_is_refused_and_not_kept(page: Page, site: PageSite) -> None:
    page.goto("/#/events")
    page.locator("main").get_by_role("button", name="Enter token").click()

    enter(page, "another")

    dialog = page.get_by_role("dialog", name="Token")
    expect(dialog.get_by_role("alert")).to_contain_text("The token does not match http.token.")
    assert page.evaluate("sessionStorage.getItem('tailrace.token')") is None
    enter(page)
    expect(dialog).to_be_hidden()
    expect(page.get_by_text("id=4")).to_be_visible()


def test_token_can_be_forgotten(page: Page, site: PageSite) -> None:
    with_token(page)
    page.goto("/#/events")
    expect(page.get_by_text("id=4")).to_be_visible()

    page.get_by_role("button", name="Forget token").click()

    expect(page.get_by_text("Keys and values of rows are shown only with the token.")).to_be_visible()
    expect(page.get_by_text("id=4")).to_have_count(0)
    assert page.evaluate("sessionStorage.getItem('tailrace.token')") is None


def test_server_without_a_token_makes_the_page_read_only_and_says_how_to_set_one(page: Page, site: PageSite) -> None:
    site.token = ""
    page.goto("/#/sinks")
    expect(page.get_by_role("heading", name="cache")).to_be_visible()
    expect(page.get_by_role("button", name="Read-only")).to_be_visible()

    page.reload()
    page.get_by_role("button", name="Read-only").click()

    expect(page.get_by_role("dialog", name="Read-only")).to_contain_text("http.token")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)


ACTIONS: Final[list[tuple[str, str, dict[str, Any]]]] = [
    ("sinks", "Resume", {"action": "sink.resume", "sink": "cache"}),
    ("sinks", "Pause", {"action": "sink.pause", "sink": "search"}),
    ("", "Pause", {"action": "snapshot.pause", "tables": ["public.orders"]}),
    ("", "Stop", {"action": "snapshot.stop", "tables": ["public.orders"]}),
    (
        "dead-letters",
        "Retry",
        {"action": "dead_letters.retry", "sink": "search", "tables": ["public.orders"], "error": "MappingConflict"},
    ),
    ("findings", "Accept", {"action": "ddl.accept", "tables": ["public.orders"]}),
    ("view?lake=lake&view=margins", "Swap versions", {"action": "view.swap", "lake": "lake", "view": "margins"}),
    ("view?lake=lake&view=margins", "Roll back", {"action": "view.rollback", "lake": "lake", "view": "margins"}),
    ("config", "Log level", {"action": "log.level", "level": "info"}),
]


def test_action_is_confirmed_sent_and_its_result_shown(page: Page, site: PageSite) -> None:
    with_token(page)
    for path, button, body in ACTIONS:
        site.asked.clear()
        page.goto(f"/#/{path}")

        page.locator("main").get_by_role("button", name=button, exact=True).first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        assert site.posted() == []
        dialog.locator(".main-button").click()

        expect(dialog.get_by_text("Done.")).to_be_visible()
        expect(dialog.get_by_text("workers: 2")).to_be_visible()
        assert site.posted() == [body]
        dialog.get_by_role("button", name="Close").click()
        expect(dialog).to_have_count(0)


def test_changed_configuration_is_named_and_reloaded(page: Page, site: PageSite) -> None:
    pending = {"reload": ["snapshot.workers", "http.token"], "restart": ["kafka.bootstrap"]}
    site.answers["/api/config"] = documents.settings() | {"pending": pending}
    with_token(page)
    page.goto("/#/config")

    expect(page.get_by_text("A reload applies snapshot.workers, http.token.")).to_be_visible()
    expect(page.get_by_text("A restart applies kafka.bootstrap.")).to_be_visible()
    site.answers["/api/config"] = documents.settings()
    page.locator("main").get_by_role("button", name="Reload").click()
    dialog = page.get_by_role("dialog", name="Reload the configuration")
    dialog.get_by_role("button", name="Reload", exact=True).click()
    dialog.get_by_role("button", name="Close").click()

    expect(page.get_by_text("The configuration has changed.")).to_have_count(0)
    assert site.posted() == [{"action": "config.reload"}]


def test_invalid_configuration_file_is_named_while_the_process_runs(page: Page, site: PageSite) -> None:
    site.answers["/api/config"] = documents.settings() | {"pending": {"error": "cdc.toml: unknown key kafka.bootstap"}}
    page.goto("/#/config")

    expect(page.get_by_text("is not valid: cdc.toml: unknown key kafka.bootstap")).to_be_visible()
    expect(page.get_by_text("cdc config check")).to_be_visible()


def test_cancelled_action_is_not_sent(page: Page, site: PageSite) -> None:
    with_token(page)
    page.goto("/#/sinks")

    page.get_by_role("button", name="Resume").click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()

    expect(page.get_by_role("dialog")).to_have_count(0)
    assert site.posted() == []


def test_snapshot_of_some_rows_is_started_for_the_very_table(page: Page, site: PageSite) -> None:
    """A name with the characters of patterns must not select other tables."""
    with_token(page)
    site.answers["/api/table"] = documents.table_details() | {"table": "public.a*[b]", "snapshot": None}
    page.goto("/#/table?name=public.a*%5Bb%5D")

    page.get_by_role("button", name="Start snapshot").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Only rows that match").fill("id >= 7")
    dialog.get_by_role("button", name="Start").click()

    expect(dialog.get_by_text("Done.")).to_be_visible()
    assert site.posted() == [{"action": "snapshot.start", "tables": ["public.a[*][[]b]"], "where": "id >= 7"}]


def test_dead_letter_of_a_bigint_key_is_skipped_by_its_exact_key(page: Page, site: PageSite) -> None:
    with_token(page)
    found = documents.dead_letters(keys=True)
    found["keys"] = [found["keys"][0] | {"key": {"id": BIG}}]
    site.answers["/api/dead-letters"] = found
    page.goto("/#/dead-letters")

    row = page.get_by_role("row", name=f"id={BIG}")
    row.get_by_role("button", name="Skip").click()
    page.get_by_role("dialog").get_by_role("button", name="Skip").click()

    expect(page.get_by_text("Done.")).to_be_visible()
    (body,) = site.posted()
    assert body == {"action": "dead_letters.skip", "sink": "search", "tables": ["public.orders"], "key": {"id": BIG}}


def test_refused_action_shows_why_with_hint_and_command(page: Page, site: PageSite, watched: Watched) -> None:
    watched.expected.append("409")
    with_token(page)
    page.goto("/#/sinks")
    page.get_by_role("button", name="Resume").click()
    site.failures["/actions"] = Failure(
        409, {"error": "sink cache has no worker", "hint": "start it", "command": "cdc run"}
    )

    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Resume").click()

    for text in ("sink cache has no worker", "start it", "cdc run"):
        expect(dialog.get_by_text(text, exact=True)).to_be_visible()
    expect(dialog.get_by_role("button", name="Resume")).to_be_enabled()


def test_action_without_record_is_reported(page: Page, site: PageSite) -> None:
    with_token(page)
    page.goto("/#/sinks")
    page.get_by_role("button", name="Resume").click()
    page.route(
        "**/actions",
        lambda route: route.fulfill(
            json={
                "action": "sink.resume",
                "result": "requested",
                "recorded": False,
                "warning": "Kafka is down",
                "facts": {},
            }
        ),
    )

    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Resume").click()

    expect(dialog.get_by_text("Requested.")).to_be_visible()
    expect(dialog.get_by_text("The action is not recorded: Kafka is down")).to_be_visible()


def test_events_are_followed_filtered_and_paused(page: Page, site: PageSite) -> None:
    with_token(page)
    newest = 5
    site.answers["/api/events"] = lambda query, _: (
        documents.events(query.get("cursor", ""), values=True)
        if int(query.get("cursor") or 0) < newest
        else {"cursor": query["cursor"], "events": [], "values": True, "hint": ""}
    )
    page.goto("/#/events")
    items = page.get_by_role("list", name="Events, newest first").get_by_role("listitem")
    expect(items).to_have_count(5)

    newest = 6
    expect(items).to_have_count(6)
    newest = 5
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused. Events up to")).to_be_visible()
    page.get_by_label("Tables").fill("public.orders, public.items")
    page.get_by_label("deletes").uncheck()

    assert "tables=public.orders%2Cpublic.items&ops=c%2Cu%2Cr" in page.url
    page.get_by_role("button", name="Continue").click()
    expect(items).to_have_count(5)
    asked = [one.query for one in site.asked if one.path == "/api/events"]
    assert {"tables": "public.orders,public.items", "ops": "c,u,r", "limit": "200"} in asked


def test_values_of_an_event_show_what_changed(page: Page, site: PageSite) -> None:
    with_token(page)
    site.answers["/api/events"] = {"cursor": "1", "events": [documents.event(BIG)], "values": True, "hint": ""}
    page.goto("/#/events")

    page.locator("summary", has_text="changed amount").first.click()

    row = page.get_by_role("row", name="amount (changed)")
    expect(row).to_contain_text("10.50")
    expect(row).to_contain_text("12.00")
    expect(page.get_by_role("row", name="id").first).to_contain_text(str(BIG))
    page.get_by_role("link", name="History of this key").click()
    expect(page.get_by_text("2 events, oldest first")).to_be_visible()
    asked = [one.query for one in site.asked if one.path == "/api/key"]
    assert asked == [{"table": "public.orders", "key": f'{{"id":{BIG}}}'}]


def test_events_without_the_token_have_no_values(page: Page, site: PageSite) -> None:
    page.goto("/#/events")

    expect(page.locator("summary").first).to_be_visible()
    page.locator("summary").first.click()

    expect(page.get_by_text("No values: they need the token.")).to_be_visible()
    assert page.get_by_text("Ada").count() == 0


def test_token_that_the_server_no_longer_accepts_is_forgotten(page: Page, site: PageSite, watched: Watched) -> None:
    watched.expected.append("401")
    with_token(page)
    page.goto("/#/events")
    expect(page.get_by_text("id=4")).to_be_visible()

    site.token = "a newer one"

    expect(page.get_by_text("Keys and values of rows are shown only with the token.")).to_be_visible()
    expect(page.get_by_role("banner").get_by_role("button", name="Enter token")).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('tailrace.token')") is None
