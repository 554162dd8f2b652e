"""Screen readers, phones, themes, motion."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import expect

from tests.browser import documents
from tests.browser.conftest import Watched, opened
from tests.browser.page_server import TOKEN

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

    from tests.browser.page_server import PageSite

ADDRESSES: Final = {
    "overview": "",
    "tables": "tables",
    "table": "table?name=public.orders",
    "topics": "topics",
    "sinks": "sinks",
    "lake": "lake",
    "view": "view?lake=lake&view=sales_by_day",
    "dead-letters": "dead-letters",
    "events": "events",
    "key": "key?table=public.orders&key=7",
    "findings": "findings",
    "alarms": "alarms",
    "actions": "actions",
    "config": "config",
}
PHONE: Final[ViewportSize] = {"width": 360, "height": 740}
_CONTRAST: Final = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


def settled(page: Page, path: str, *, broken: bool = False) -> None:
    """Open a page with the token and wait until it has its document."""
    page.goto(f"/#/{path}")
    expect(page.locator("#state")).to_have_text("WAITING" if broken else "RUNNING")
    expect(page.locator("main")).not_to_contain_text("Reading ")


@pytest.fixture
def signed_in(page: Page) -> Page:
    """A page that has the token."""
    page.add_init_script(f"sessionStorage.setItem('tailrace.token', '{TOKEN}')")
    return page


def test_pages_have_one_heading_landmarks_and_a_name_for_every_control(signed_in: Page, site: PageSite) -> None:
    site.answers["/api/picture"] = documents.broken_picture()
    for path in ADDRESSES.values():
        settled(signed_in, path, broken=True)
        assert_accessible(accessible(signed_in), path)


def assert_accessible(tree: list[dict[str, Any]], path: str) -> None:
    """Fail on an accessibility tree that a screen reader cannot use."""

    assert sum(one["role"] == "heading" and one["level"] == 1 for one in tree) == 1, path
    for landmark in ("banner", "navigation", "main"):
        assert any(one["role"] == landmark for one in tree), (path, landmark)
    controls = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "progressbar", "img"}
    assert [one for one in tree if one["role"] in controls and not one["name"].strip()] == [], path
    levels = [int(one["level"]) for one in tree if one["role"] == "heading"]
    assert all(after - before <= 1 for before, after in pairwise(levels)), (path, levels)


def accessible(page: Page) -> list[dict[str, Any]]:
    """Role, name and heading level of every node of the browser's accessibility tree."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    found = []
    for node in nodes:
        if node.get("ignored"):
            continue
        properties = {one["name"]: one["value"].get("value") for one in node.get("properties", [])}
        role = str(node["role"]["value"])
        roles = {"image": "img", "LabelText": "label", "ProgressIndicator": "progressbar"}
        found.append(
            {"role": roles.get(role, role), "name": str(node["name"]["value"]), "level": properties.get("level")}
        )
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_the_contrast_of_wcag_aa(browser: Browser, site: PageSite, scheme: str) -> None:
    site.answers["/api/picture"] = documents.broken_picture()
    with opened(browser, site.base, Watched(), color_scheme=scheme) as page:
        page.add_init_script(f"sessionStorage.setItem('tailrace.token', '{TOKEN}')")
        for path in ADDRESSES.values():
            settled(page, path, broken=True)
            assert page.evaluate(_CONTRAST) == [], path


def test_phone_shows_the_pages_without_scrolling_sideways(browser: Browser, site: PageSite) -> None:
    site.answers["/api/picture"] = documents.broken_picture()
    with opened(browser, site.base, Watched()) as page:
        page.set_viewport_size(PHONE)
        page.add_init_script(f"sessionStorage.setItem('tailrace.token', '{TOKEN}')")
        for path in ADDRESSES.values():
            settled(page, path, broken=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path


def test_phone_shows_the_lsn_of_a_cut_in_one_line(browser: Browser, site: PageSite) -> None:
    with opened(browser, site.base, Watched()) as page:
        page.set_viewport_size(PHONE)
        settled(page, "lake")
        lsn = page.locator("table.compact code").first
        expect(lsn).to_be_visible()

        assert lsn.evaluate("code => code.getClientRects().length") == 1


def test_phone_draws_the_flow_downwards(browser: Browser, site: PageSite) -> None:
    with opened(browser, site.base, Watched()) as page:
        page.set_viewport_size(PHONE)
        settled(page, "")
        expect(page.locator(".box")).to_have_count(7)
        boxes = [one.bounding_box() for one in page.locator(".box").all()]

        tops = [box["y"] for box in boxes if box is not None]
        assert tops == sorted(tops)
        assert len(set(tops)) == 7
        path = page.locator(".flow-lines .base").first.get_attribute("d") or ""
        assert "H" not in path


def test_theme_follows_the_system_and_can_be_chosen(browser: Browser, site: PageSite) -> None:
    with opened(browser, site.base, Watched(), color_scheme="dark") as page:
        settled(page, "")
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        dark = page.evaluate(ground)

        page.get_by_role("button", name="Theme: system").click()
        light = page.evaluate(ground)
        page.reload()
        expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
        assert page.evaluate(ground) == light
        page.get_by_role("button", name="Theme: light").click()

        assert light != dark
        assert page.evaluate(ground) == dark
        page.get_by_role("button", name="Theme: dark").click()
        assert page.evaluate("JSON.stringify(localStorage)") == "{}"


def test_nothing_moves_for_people_who_prefer_that(browser: Browser, site: PageSite) -> None:
    running = "document.getAnimations().filter((one) => one.playState === 'running').length"
    with opened(browser, site.base, Watched(), reduced_motion="reduce") as page:
        settled(page, "")
        expect(page.locator(".box")).to_have_count(7)
        assert page.evaluate(running) == 0
    with opened(browser, site.base, Watched(), reduced_motion="no-preference") as page:
        settled(page, "")
        expect(page.locator(".box")).to_have_count(7)
        assert page.evaluate(running) > 0


def test_every_level_has_a_shape_and_a_word(page: Page, site: PageSite) -> None:
    changed = documents.picture()
    for one, level in zip(changed["nodes"], ["ok", "busy", "warn", "bad", "off"], strict=False):
        one |= {"level": level, "state": level.upper()}
    site.answers["/api/picture"] = changed
    settled(page, "")
    expect(page.locator(".box-state").nth(4)).to_have_text("OFF")

    shapes = page.locator(".box-shape").evaluate_all(
        'all => all.map((one) => one.innerHTML.replace(/class="[^"]*"/g, \'\'))'
    )

    assert len(set(shapes[:5])) == 5


@pytest.mark.skipif(
    not os.environ.get("TAILRACE_SCREENSHOTS"), reason="pictures are taken with TAILRACE_SCREENSHOTS=folder"
)
def test_pictures_of_the_documentation(browser: Browser, site: PageSite) -> None:
    """Takes the two pictures of docs/howto/page.md."""
    folder = Path(os.environ["TAILRACE_SCREENSHOTS"])
    for name, scheme, found in (
        ("page", "light", documents.picture()),
        ("page-broker", "dark", documents.broken_picture()),
    ):
        site.answers["/api/picture"] = found
        with opened(browser, site.base, Watched(), color_scheme=scheme) as page:
            settled(page, "", broken=scheme == "dark")
            expect(page.get_by_role("img", name="Rows captured")).to_be_visible()
            page.screenshot(path=folder / f"{name}.png")

            assert (folder / f"{name}.png").stat().st_size < 200_000


@pytest.mark.skipif(
    not os.environ.get("TAILRACE_SCREENSHOTS"), reason="pictures are taken with TAILRACE_SCREENSHOTS=folder"
)
@pytest.mark.parametrize("kind", ["light", "dark", "phone"])
def test_pictures_of_every_page(browser: Browser, site: PageSite, kind: str) -> None:
    """Takes a picture of every page."""
    folder = Path(os.environ["TAILRACE_SCREENSHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    with opened(browser, site.base, Watched(), color_scheme="dark" if kind == "dark" else "light") as page:
        if kind == "phone":
            page.set_viewport_size(PHONE)
        page.add_init_script(f"sessionStorage.setItem('tailrace.token', '{TOKEN}')")
        for name, path in [*ADDRESSES.items(), ("broken", "")]:
            broken = name == "broken"
            site.answers["/api/picture"] = documents.broken_picture() if broken else documents.picture()
            settled(page, path, broken=broken)
            page.screenshot(path=folder / f"{name}-{kind}.png", full_page=True)

            assert (folder / f"{name}-{kind}.png").stat().st_size > 0
