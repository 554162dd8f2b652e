"""Headless Chromium for tests of the page. A test fails on scripts that run, console errors and foreign hosts."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest

from tests.browser.page_server import PageSite, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

REQUIRED: Final = "TAILRACE_TEST_REQUIRE_BROWSER"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS: Final = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_WAIT_MS: Final = 60_000  # only a failure takes that long
_LOAD_MS: Final = 60_000  # of a page with its forty files, on a busy machine
# Scripts of hostile names report here; violations of the policy are errors of the test.
_WATCH: Final = """
window.ran = [];
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
"""


@dataclass
class Watched:
    """What a page did besides showing something. `expected` errors of the console are left out."""

    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def console(self, message: ConsoleMessage) -> None:
        """Take a message of the console."""
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def request(self, request: Request) -> None:
        """Take a request."""
        self.hosts.add(urlsplit(request.url).netloc)

    def unexpected(self) -> list[str]:
        """Errors that the test did not name."""
        return [one for one in self.errors if not any(re.search(pattern, one) for pattern in self.expected)]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    path = next((found for name in _NAMES if (found := shutil.which(name)) is not None), None)
    if path is None:
        why = f"no Chromium on PATH ({', '.join(_NAMES)}); on Debian: apt-get install chromium"
        if os.environ.get(REQUIRED):
            pytest.fail(why)
        pytest.skip(why)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=_WAIT_MS)
    with sync_playwright() as playwright:
        sandbox = os.geteuid() != 0  # Chromium refuses to run as root with it
        launched = playwright.chromium.launch(
            executable_path=path,
            args=[*_ARGUMENTS, *([] if sandbox else ["--no-sandbox"])],
            env={**os.environ, "HOME": str(tmp_path_factory.mktemp("browser"))},
        )
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def page_server() -> Iterator[PageSite]:
    """One server for all tests."""
    with serving() as site:
        yield site


@pytest.fixture
def site(page_server: PageSite) -> PageSite:
    """The server of the page, healthy at the start of each test."""
    page_server.reset()
    return page_server


@contextmanager
def opened(browser: Browser, base: str, watched: Watched, **options: Any) -> Iterator[Page]:
    """A page in a context of its own; afterwards its errors fail the test."""
    # Without motion unless the test is about it: Chromium without a GPU paints each frame on the CPU.
    options.setdefault("reduced_motion", "reduce")
    context = browser.new_context(base_url=base, viewport={"width": 1280, "height": 800}, **options)
    context.set_default_timeout(_WAIT_MS)
    context.set_default_navigation_timeout(_LOAD_MS)
    context.add_init_script(_WATCH)
    page = context.new_page()
    page.on("console", watched.console)
    page.on("pageerror", lambda error: watched.errors.append(f"uncaught: {error}"))
    page.on("request", watched.request)
    try:
        yield page
        assert page.evaluate("window.ran") == []
        assert page.evaluate("window.violations") == []
    finally:
        context.close()
    assert watched.hosts <= {urlsplit(base).netloc}
    assert watched.unexpected() == []


@pytest.fixture
def watched() -> Watched:
    """What the page of the test did."""
    return Watched()


@pytest.fixture
def page(browser: Browser, site: PageSite, watched: Watched) -> Iterator[Page]:
    """An empty page for the server of the test, 1280 pixels wide."""
    with opened(browser, site.base, watched) as found:
        yield found
