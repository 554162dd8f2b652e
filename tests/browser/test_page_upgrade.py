"""The server is restarted, upgraded and rolled back below an open page."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.browser import documents
from tests.browser.conftest import opened
from tests.browser.page_server import PageSite, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.conftest import Watched

_KEPT: Final = "window.kept === true"


def _runs(site: PageSite, version: str | None) -> None:
    """Let the server send the picture of this version, or of a release that names none."""
    site.answers["/api/picture"] = {
        key: value for key, value in (documents.picture() | {"version": version}).items() if value is not None
    }


def _marked(page: Page) -> Page:
    """Mark the page, to see whether it is loaded again."""
    page.evaluate("window.kept = true")
    return page


def test_page_that_is_open_during_an_upgrade_reconnects_and_asks_to_be_reloaded(
    browser: Browser, watched: Watched
) -> None:
    watched.expected.append("ERR_|Failed to load resource")
    site = PageSite()
    site.reset()
    with ExitStack() as first:
        first.enter_context(serving(site))
        port = urlsplit(site.base).port or 0
        with opened(browser, site.base, watched) as page:
            page.goto("/#/sinks")
            expect(page.get_by_role("heading", name="cache")).to_be_visible()
            _marked(page)

            first.close()
            expect(page.locator("#notice")).to_be_visible()
            with serving(site, port):  # the same version
                expect(page.locator("#notice")).to_be_hidden()
                assert page.evaluate(_KEPT)
                expect(page.locator("#update")).to_be_hidden()

            _runs(site, "0.2.0")
            with serving(site, port):
                notice = page.locator("#update")
                expect(notice).to_contain_text("The server now runs Tailrace 0.2.0. This page is from Tailrace 0.1.0")
                assert page.evaluate(_KEPT), "nothing that was typed is lost"
                notice.get_by_role("button", name="Reload").click()
                expect(page.get_by_role("heading", name="cache")).to_be_visible()
                expect(page.locator("#pipeline")).to_have_text("shop")
                assert not page.evaluate(_KEPT)
                expect(notice).to_be_hidden()
                assert urlsplit(page.url).fragment == "/sinks"


def test_outdated_page_is_loaded_again_when_its_reader_goes_to_another_page(page: Page, site: PageSite) -> None:
    page.goto("/#/sinks")
    expect(page.locator("#pipeline")).to_have_text("shop")
    _marked(page)
    _runs(site, None)  # rolled back to a release that names no version
    expect(page.locator("#update")).to_contain_text("The server now runs another version")

    page.get_by_role("link", name="Topics").click()

    expect(page.get_by_text("shop.__progress")).to_be_visible()
    assert not page.evaluate(_KEPT)
    expect(page.locator("#update")).to_be_hidden()


def test_notice_ends_when_the_version_of_the_page_is_back(page: Page, site: PageSite) -> None:
    page.goto("/")
    expect(page.locator("#pipeline")).to_have_text("shop")
    _marked(page)
    _runs(site, "0.2.0")
    expect(page.locator("#update")).to_be_visible()

    _runs(site, "0.1.0")

    expect(page.locator("#update")).to_be_hidden()
    assert page.evaluate(_KEPT)
