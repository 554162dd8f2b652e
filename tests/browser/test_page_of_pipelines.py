"""The overview of several pipelines, and the page of each one, on real servers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from playwright.sync_api import expect

from tests.browser.conftest import Watched, opened
from tests.browser.test_page_token import enter
from tests.fixtures.servers.pipelines_run import TOKEN, pipelines, pipelines_file
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.fixtures.servers.pipelines_run import Sites

_START_MS: Final = 60_000


def test_overview_shows_all_pipelines_and_leads_to_the_page_of_each(
    browser: Browser, pipeline_sites: Sites, tmp_path: Path
) -> None:
    shop, crm = pipeline_sites.values()
    with pipelines(tmp_path, pipelines_file(tmp_path / "cdc.toml", pipeline_sites)) as daemon:
        for site in (shop, crm):
            daemon.until_pipeline(site.name)
        base = f"http://127.0.0.1:{daemon.port}"
        with opened(browser, base, Watched()) as page:
            page.goto("/")
            rows = page.get_by_role("row")
            expect(rows.filter(has_text=shop.name)).to_contain_text("RUNNING", timeout=_START_MS)
            expect(rows.filter(has_text=crm.name)).to_contain_text("RUNNING")
            page.get_by_role("link", name=shop.name).click()
            expect(page).to_have_url(re.compile(f"/pipelines/{shop.name}/"))
            expect(page.locator("#state")).to_contain_text("RUNNING", timeout=_START_MS)

            choice = page.get_by_label("Pipeline", exact=True)
            expect(choice).to_have_value(shop.name)
            page.goto(f"/pipelines/{shop.name}/#/tables")
            expect(page.get_by_role("rowheader")).to_have_text(["public.t"])
            choice.select_option(crm.name)
            expect(page).to_have_url(re.compile(f"/pipelines/{crm.name}/#/tables"))
            expect(page.get_by_role("rowheader")).to_have_text(["public.t"])

            page.get_by_role("button", name="Enter token").click()
            enter(page, TOKEN)
            expect(page.get_by_role("button", name="Forget token")).to_be_visible()
            page.goto(f"/pipelines/{crm.name}/#/config")
            expect(page.locator("#main")).to_contain_text(crm.name)
            page.get_by_role("link", name="All pipelines").click()
            expect(rows.filter(has_text=crm.name)).to_contain_text("RUNNING")


def test_overview_says_why_a_pipeline_is_stopped_and_shows_the_command(
    browser: Browser, pipeline_sites: Sites, tmp_path: Path
) -> None:
    shop, crm = pipeline_sites.values()
    with pipelines(tmp_path, pipelines_file(tmp_path / "cdc.toml", pipeline_sites)) as daemon:
        for site in (shop, crm):
            daemon.until_pipeline(site.name)
        crm.sql(f"drop publication {crm.slot}", "insert into t values (1)")
        until(lambda: daemon.pipeline(crm.name)["exit_code"] == 3, "it needs an operator", within_s=90)
        watched = Watched(expected=["503"])
        with opened(browser, f"http://127.0.0.1:{daemon.port}", watched) as page:
            page.goto("/")
            expect(page.get_by_role("row").filter(has_text=crm.name)).to_contain_text("ended with 3")
            expect(page.locator(".problem")).to_contain_text(f"--pipeline {crm.name}")
            expect(page.get_by_role("row").filter(has_text=shop.name)).to_contain_text("RUNNING")
            page.goto(f"/pipelines/{crm.name}/")
            expect(page.locator("#notice")).to_contain_text("No data from the server", timeout=_START_MS)
