"""The page of a real `cdc run` on real servers."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from playwright.sync_api import expect

from tests.browser.conftest import Watched, opened
from tests.browser.test_page_token import enter
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.supervised_run import supervised
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.servers.waiting import holds_for, until

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections
    from tests.fixtures.servers.running_servers import Servers

TOKEN: Final = "page-token"
_START_MS: Final = 60_000
_NAMED_MS: Final = 60_000
"""Until the page names a broker that is gone. Capture notices it within some seconds."""


@contextmanager
def page_of(browser: Browser, daemon: Daemon) -> Iterator[Page]:
    """The page that a daemon serves."""
    port = daemon.events("http_listening")[0]["port"]
    with opened(browser, f"http://127.0.0.1:{port}", Watched()) as page:
        yield page


def test_page_shows_rows_that_flow_and_events_and_pauses_a_sink(
    browser: Browser, capture: CaptureSite, valkey: Valkey
) -> None:
    capture.sql("create table t (id int primary key, v text)", "create table nokey (v text)")
    sections: Sections = {
        "http": {"token": TOKEN},
        "sinks.fast": {"kind": "cache", "url": valkey.url, "tables": ["public.t"]},
    }
    with supervised(capture, sections, "page") as daemon:
        daemon.until_running()
        with page_of(browser, daemon) as page, beside(lambda stop: write(capture, stop)):
            page.goto("/")
            expect(page.locator("#state")).to_contain_text("RUNNING", timeout=_START_MS)
            flow = page.get_by_role("list", name="Flow of changes")
            to_log = flow.locator(".edge", has_text="to Kafka")
            expect(to_log.locator(".edge-state")).to_have_text("flowing", timeout=_START_MS)
            expect(flow.locator(".box", has_text="fast").locator(".box-state")).to_have_text(
                "RUNNING", timeout=_START_MS
            )
            expect(page.get_by_role("img", name="Rows captured")).to_be_visible()

            page.goto("/#/tables?state=left_out")
            expect(page.get_by_role("rowheader")).to_have_text(["public.nokey"])
            follow_events(page)
        with page_of(browser, daemon) as page:
            pause_and_resume(page, daemon, capture, valkey)

        assert daemon.stop() == 0


def write(capture: CaptureSite, stop: threading.Event) -> None:
    """Commit a few rows per second."""
    number = 0
    while not stop.wait(0.2):
        number += 1
        capture.sql(f"insert into t values ({number}, 'secret {number}')")


def follow_events(page: Page) -> None:
    """Values are shown with the token only, and new events arrive."""
    page.goto("/#/events?tables=public.t")
    expect(page.locator("summary").first).to_be_visible(timeout=_START_MS)
    expect(page.get_by_text("Keys and values of rows are shown only with the token.")).to_be_visible()
    assert page.locator(".event-key", has_text="id=").count() == 0

    page.get_by_role("main").get_by_role("button", name="Enter token").click()
    enter(page, TOKEN)
    newest = page.locator("details.event").first
    expect(newest.locator(".event-key")).to_contain_text("id=")
    shown = newest.locator(".event-key").inner_text()
    expect(newest.locator(".event-key")).not_to_have_text(shown)
    page.get_by_role("button", name="Pause").click()
    newest.locator("summary").click()
    expect(newest).to_contain_text("secret ")
    newest.get_by_role("link", name="History of this key").click()
    expect(page.get_by_text("1 event, oldest first")).to_be_visible(timeout=_START_MS)


def pause_and_resume(page: Page, daemon: Daemon, capture: CaptureSite, valkey: Valkey) -> None:
    """Rows do not reach the cache between pause and resume."""
    with client_of(valkey) as client:
        page.goto("/#/sinks")
        act_on_sink(page, "Pause")
        expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=_START_MS)
        before = client.dbsize()
        daemon.until_position(capture.sql("insert into t select g, 'later' from generate_series(100001, 100050) g"))
        holds_for(lambda: client.dbsize() == before, "the cache stays as it is", seconds=3)
        expect(page.get_by_role("main").get_by_text("PAUSED", exact=True)).to_be_visible()

        act_on_sink(page, "Resume")
        until(lambda: client.dbsize() >= before + 50, "the cache has the rows", within_s=60)
        page.goto("/#/actions")
        for action in ("sink.pause", "sink.resume"):
            expect(page.get_by_role("row", name=action)).to_contain_text("sink: fast", timeout=_START_MS)


def act_on_sink(page: Page, verb: str) -> None:
    """Press a button of the sink, with the token, and confirm."""
    page.get_by_role("main").get_by_role("button", name=verb, exact=True).click(timeout=_START_MS)
    token, dialog = page.get_by_role("dialog", name="Token"), page.get_by_role("dialog", name=f"{verb} sink fast")
    expect(token.or_(dialog)).to_be_visible()
    if token.is_visible():
        enter(page, TOKEN)
    dialog.get_by_role("button", name=verb, exact=True).click()
    expect(dialog.get_by_role("button", name="Close")).to_be_visible(timeout=_START_MS)
    dialog.get_by_role("button", name="Close").click()


def _diagnosis_leads_to_its_runbook(page: Page) -> None:
    page.goto("/#/alarms")
    page.get_by_role("button", name="Find the cause").click()
    cause = page.locator("[role=status] .card", has_text="Kafka").first
    expect(cause).to_be_visible(timeout=_NAMED_MS)
    with page.expect_popup() as opened:
        cause.get_by_role("link", name="Runbook: howto/states.md").click()
    expect(opened.value.get_by_role("heading", name="When it stops or waits", level=1)).to_be_visible()
    opened.value.get_by_role("link", name="cdc why").first.click()
    expect(opened.value.get_by_role("heading", name="Find out why", level=1)).to_be_visible()
    opened.value.close()


def test_page_alert_diagnosis_and_runbook_name_a_broker_that_stops(
    browser: Browser, fragile: Servers, fragile_capture: CaptureSite
) -> None:
    capture = fragile_capture
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()
    with page_of(browser, daemon) as page:
        page.goto("/")
        kafka = page.locator(".box", has=page.get_by_role("link", name="Kafka", exact=True))
        expect(kafka.locator(".box-state")).to_have_text("RUNNING", timeout=_START_MS)

        fragile.kafka.kill()
        capture.sql("insert into t values (1)")

        expect(kafka.locator(".box-state")).to_have_text("WAITING", timeout=_NAMED_MS)
        expect(kafka.locator(".says")).to_be_visible()
        expect(page.locator("#state")).to_contain_text("WAITING")
        expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
        assert page.locator("#notice").is_hidden()
        # What the alert TailraceCaptureWaits names.
        assert re.search(
            r'^cdc_waiting_state\{.*reason="broker".*\} 1\.0$', page.request.get("/metrics").text(), re.MULTILINE
        )
        _diagnosis_leads_to_its_runbook(page)
        page.goto("/#/")

        fragile.kafka.start()
        expect(kafka.locator(".box-state")).to_have_text("RUNNING", timeout=_START_MS)
        expect(kafka.locator(".says")).to_have_count(0)
        expect(page.get_by_role("heading", name="Needs attention")).to_have_count(0, timeout=_START_MS)
    assert daemon.stop() == 0
    assert [json.loads(one.key or b"")["id"] for one in capture.log().topic(capture.topic("t"))] == [1]
