"""Views over real data, captured from PostgreSQL, equal PostgreSQL's results, before and after changes.

A month of flights; `make real-data` takes the whole year, 336,776 of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.views.definition import load_views
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.servers.waiting import until
from tests.fixtures.views.flight_data import CHANGES, TABLES, load
from tests.fixtures.views.view_proof import asked, queries
from tests.fixtures.views.view_truth import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from sinks.warehouse.lake.manifest import Manifest
    from tests.fixtures.servers.daemon import CaptureSite

MONTHS: Final = int(os.environ.get("TAILRACE_FLIGHT_MONTHS", "1"))
VIEWS: Final = Path(__file__).parent / "views"
NEVER_IN_A_YEAR: Final = {"planes_on_the_ground"}  # until some are renamed: each plane flew


@pytest.fixture
def lake(capture: CaptureSite, quick: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    """Keep views by keys where possible: over a month of rows the choice would be to recompute."""
    views = tmp_path / "views"
    views.mkdir()
    for file in VIEWS.iterdir():
        (views / file.name).write_text(f"-- plan: affected\n{file.read_text()}")
    yield from lake_site(capture, quick, tmp_path, views=str(views))


def faults(lake: LakeSite, manifest: Manifest, shown: set[str]) -> list[str]:
    """Return views that differ from PostgreSQL's result, while nothing is written. Views with rows go to `shown`."""
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
            shown |= {name} if wanted else set()
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
    shown_before: set[str] = set()
    shown: set[str] = set()
    before = faults(lake, first, shown_before)
    site.sql(*CHANGES)
    second = lake.settle(daemon, driver)
    after = faults(lake, second, shown)

    kept = {name for name, state in second.views.items() if state.plan is not None and state.plan.plan == "affected"}
    print(f"{rows:,} rows, {len(texts)} views, cuts {first.cut} and {second.cut}, {len(kept)} kept by keys")
    assert not before, "\n".join(before)
    assert not after, "\n".join(after)
    assert second.cut > first.cut
    assert len(kept) >= len(texts) // 2, "the test is weaker than it says"
    assert shown_before == texts.keys() - (NEVER_IN_A_YEAR if MONTHS == 12 else set()), "no rows show nothing"
    assert shown == texts.keys(), "no rows show nothing"
