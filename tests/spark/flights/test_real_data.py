"""Views over real data, captured from PostgreSQL, are what PostgreSQL answers: before and after it changes.

A month of flights; `make real-data` takes the whole year, 336,776 of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc.demo.viewproof import asked, queries
from sinks.warehouse.look import Lake
from sinks.warehouse.pinned import pinned
from sinks.warehouse.views import load_views
from tests.fixtures.flightdata import CHANGES, TABLES, load
from tests.fixtures.lake import LakeSite, lake_site
from tests.fixtures.viewtruth import differences
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from sinks.warehouse.manifest import Manifest
    from tests.fixtures.daemon import CaptureSite

MONTHS: Final = int(os.environ.get("TAILRACE_FLIGHT_MONTHS", "1"))
VIEWS: Final = Path(__file__).parent / "views"


@pytest.fixture
def lake(capture: CaptureSite, quick: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    yield from lake_site(capture, quick, tmp_path, views=str(VIEWS))


def faults(lake: LakeSite, manifest: Manifest) -> list[str]:
    """Views that are not what PostgreSQL answers now; nobody writes."""
    found = []
    with lake.capture.connect() as session:
        session.execute("set search_path = answers, public")
        for name in queries(VIEWS):
            state = manifest.views.get(name)
            if state is None or state.reason:
                found.append(f"{name} is {state.reason if state else 'not there'}")
                continue
            table, _ = Lake(lake.location).view(name, manifest)
            rows = pinned(lake.location, table, state.version).to_pyarrow_table().to_pylist()
            wanted = asked(session, f"select * from answers.{name}")
            assert wanted, f"{name} has no rows and shows nothing"
            found += [f"{name}: {fault}" for fault in differences(rows, wanted)]
    return found


@pytest.mark.timeout(300 + 120 * MONTHS)
def test_views_over_real_data_are_postgresqls_answers(lake: LakeSite) -> None:
    site = lake.capture
    with site.connect() as session, session.transaction():
        rows = load(session, MONTHS)
        session.execute("create schema answers; set search_path = answers, public")
        texts = queries(VIEWS)
        for name in (view.name for view in load_views(VIEWS)):
            session.execute(f"create view answers.{name} as {texts[name]}".encode())
    daemon = site.daemon(
        {"source": {"tables": [f"public.{table}" for table in TABLES]}, "snapshot": {"mode": "initial"}}
    )
    daemon.until_running()
    until(
        lambda: len(daemon.events("snapshot_complete")) == len(TABLES), "the snapshots end", within_s=60 + 60 * MONTHS
    )
    driver = lake.driver()

    first = lake.settle(daemon, driver)
    before = faults(lake, first)
    site.sql(*CHANGES)
    second = lake.settle(daemon, driver)
    after = faults(lake, second)

    print(f"{rows:,} rows, {len(texts)} views, cuts {first.cut} and {second.cut}")
    assert not before, "\n".join(before)
    assert not after, "\n".join(after)
    assert second.cut > first.cut
