"""Slow answers, failing requests: what is shown is never shown as newer than it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.page_server import Failure

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Watched
    from tests.browser.page_server import PageSite

UNREACHABLE = Failure(503, {"error": "Kafka does not answer", "hint": "start the broker", "command": "cdc doctor"})


def test_page_of_a_slow_document_says_that_it_is_reading(page: Page, site: PageSite) -> None:
    site.delays_s["/api/topics"] = 0.8

    page.goto("/#/topics")

    expect(page.get_by_text("Reading topics ...")).to_be_visible()
    expect(page.get_by_text("shop.__progress")).to_be_visible()
    expect(page.get_by_text("As of ")).to_be_visible()


def test_failed_request_shows_the_error_with_hint_and_command(page: Page, site: PageSite, watched: Watched) -> None:
    watched.expected.append("503")
    for path, document, what in (
        ("topics", "/api/topics", "topics"),
        ("sinks", "/api/sinks", "the sinks"),
        ("lake", "/api/lakes", "the lakes"),
        ("events", "/api/events", "events"),
        ("dead-letters", "/api/dead-letters", "the dead letters"),
    ):
        site.failures[document] = UNREACHABLE

        page.goto(f"/#/{path}")

        expect(page.get_by_role("main").get_by_text(f"Cannot read {what}: Kafka does not answer")).to_be_visible()
        expect(page.get_by_text("start the broker")).to_be_visible()
        expect(page.locator("main").get_by_text("cdc doctor")).to_be_visible()


def test_data_before_a_failed_request_is_marked_as_old_with_its_time(
    page: Page, site: PageSite, watched: Watched
) -> None:
    watched.expected.append("503")
    page.goto("/#/sinks")
    expect(page.get_by_role("heading", name="cache")).to_be_visible()

    site.failures["/api/sinks"] = UNREACHABLE

    expect(page.get_by_text("Old data, as of ")).to_be_visible()
    expect(page.get_by_role("main").get_by_text("Cannot read the sinks: Kafka does not answer")).to_be_visible()
    expect(page.get_by_role("heading", name="cache")).to_be_visible()
    expect(page.locator("#announce")).to_have_text("Cannot read the sinks: Kafka does not answer")
    site.failures = {}
    expect(page.get_by_text("Old data")).to_have_count(0)
    expect(page.get_by_role("main").get_by_text("Cannot read the sinks")).to_have_count(0)


def test_server_that_is_gone_is_named(page: Page, site: PageSite, watched: Watched) -> None:
    watched.expected.append("ERR_FAILED")
    page.goto("/#/sinks")
    expect(page.get_by_role("heading", name="cache")).to_be_visible()

    page.route("**/api/sinks", lambda route: route.abort())

    expect(page.get_by_role("main").get_by_text("Cannot read the sinks: the server does not answer")).to_be_visible()


def test_answer_that_is_no_json_is_named(page: Page, site: PageSite) -> None:
    page.route("**/api/alarms", lambda route: route.fulfill(body="<html>proxy</html>", content_type="text/html"))

    page.goto("/#/alarms")

    expect(
        page.get_by_role("main").get_by_text("Cannot read the alarms: the server's answer is not JSON")
    ).to_be_visible()


def test_answer_for_an_earlier_search_does_not_replace_a_later_one(page: Page, site: PageSite) -> None:
    page.goto("/#/tables")
    expect(page.get_by_text("1\u20135 of 5")).to_be_visible()
    site.delays_s["/api/tables"] = 1.0
    page.get_by_label("Search tables").fill("audit")
    page.wait_for_timeout(400)
    site.delays_s = {}

    page.get_by_label("Search tables").fill("items")
    expect(page.get_by_role("rowheader")).to_have_text(["public.items"])
    page.wait_for_timeout(1000)

    expect(page.get_by_role("rowheader")).to_have_text(["public.items"])


def test_pages_without_data_say_what_is_missing(page: Page, site: PageSite) -> None:
    site.answers |= {
        "/api/tables": {"count": 0, "offset": 0, "tables": []},
        "/api/sinks": {"sinks": []},
        "/api/lakes": {"lakes": []},
        "/api/findings": {"findings": []},
        "/api/alarms": {"alarms": []},
        "/api/dead-letters": {"groups": [], "keys": None, "unread": {}},
        "/api/events": {"cursor": "0", "events": [], "values": False, "hint": ""},
    }
    for path, text in {
        "tables": "No tables yet.",
        "sinks": "No sinks are configured.",
        "lake": "No lake is configured.",
        "findings": "No open DDL findings.",
        "alarms": "No alarms.",
        "dead-letters": "No dead letters.",
        "events": "No events match",
    }.items():
        page.goto(f"/#/{path}")
        expect(page.get_by_text(text)).to_be_visible()
