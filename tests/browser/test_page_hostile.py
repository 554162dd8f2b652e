"""Names, errors and rows are hostile input; nothing of them runs, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser import documents
from tests.browser.documents import HOSTILE
from tests.browser.page_server import PAGE, TOKEN

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.page_server import PageSite

_SHOWN = {
    "": "/api/picture",
    "tables": "/api/tables",
    "table?name=x": "/api/table",
    "topics": "/api/topics",
    "sinks": "/api/sinks",
    "lake": "/api/lakes",
    "view?lake=lake&view=sales_by_day": "/api/lineage",
    "dead-letters": "/api/dead-letters",
    "events": "/api/events",
    "key?table=x&key=1": "/api/key",
    "findings": "/api/findings",
    "alarms": "/api/alarms",
    "actions": "/actions",
    "config": "/api/config",
}
_KEPT = {"level", "at", "op", "since", "published_at"}
"""What the page chooses a form by; another value is the next test."""


def poisoned(found: Any, *, all_of_it: bool) -> Any:
    """The document with hostile markup in every text and every name of a row's column."""
    if isinstance(found, str):
        return found + HOSTILE
    if isinstance(found, list):
        return [poisoned(one, all_of_it=all_of_it) for one in found]
    if isinstance(found, dict):
        return {
            (name + HOSTILE if name in {"customer", "amount", "sales_by_day"} else name): (
                one if name in _KEPT and not all_of_it else poisoned(one, all_of_it=all_of_it)
            )
            for name, one in found.items()
        }
    return found


@pytest.mark.parametrize("all_of_it", [False, True], ids=["texts", "texts and levels"])
def test_markup_in_data_is_shown_as_text(page: Page, site: PageSite, *, all_of_it: bool) -> None:
    page.add_init_script(f"sessionStorage.setItem('tailrace.token', '{TOKEN}')")
    for path, document in _SHOWN.items():
        answer = site.answers[document]
        clean = answer({}, True) if callable(answer) else answer
        site.answers[document] = poisoned(clean, all_of_it=all_of_it)

        page.goto(f"/#/{path}")

        expect(page.locator("main").get_by_text("<img src=x onerror=").first).to_be_visible()
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        assert page.locator("main img, main script, main iframe, main [onerror], main [style*=url]").count() == 0, path
        assert page.evaluate("window.ran") == [], path


def test_markup_in_errors_and_results_is_shown_as_text(page: Page, site: PageSite) -> None:
    page.add_init_script(f"sessionStorage.setItem('tailrace.token', '{TOKEN}')")
    page.goto("/#/sinks")
    page.get_by_role("button", name="Resume").click()
    site.answers["/actions"] = {"error": HOSTILE, "hint": HOSTILE, "command": HOSTILE}

    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Resume").click()

    expect(dialog.get_by_text("Done.")).to_be_visible()
    assert page.locator("dialog img, dialog script").count() == 0


def test_markup_in_the_address_is_shown_as_text(page: Page, site: PageSite) -> None:
    site.answers["/api/table"] = documents.table_details()
    page.goto(f"/#/table?name={HOSTILE.replace('&', '%26')}")

    expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=x")
    page.goto(f"/#/{HOSTILE}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Unknown page")
    assert page.locator("main img").count() == 0


def test_files_of_the_page_parse_no_markup_and_name_no_other_host() -> None:
    files = [path for path in PAGE.iterdir() if path.suffix in {".js", ".css", ".html", ".svg"}]
    parsing = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser")
    hosts = re.compile(r"(?<!xmlns=\")https?://(?!www\.w3\.org/2000/svg)|//[a-z0-9-]+\.[a-z]{2,}/")

    texts = {path.name: path.read_text(encoding="utf-8") for path in files}

    assert len(texts) > 30
    assert {name for name, text in texts.items() if parsing.search(text)} == set()
    assert {name for name, text in texts.items() if hosts.search(text)} == set()
    assert {name for name, text in texts.items() if len(text.splitlines()) > 500} == set()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>|<script type=\"module\">", texts["index.html"])
