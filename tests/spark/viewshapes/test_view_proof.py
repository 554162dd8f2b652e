"""Every view equals PostgreSQL's result at the LSN of each cut: fifty shapes, a random workload, and crashes.

Long: `make view-proof`. A failure names its seed; the same seed makes the same choices.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from sinks.warehouse.lake.manifest import ManifestStore
from tests.fixtures.lake.crashing_driver import Crashing
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.servers.running_servers import fresh_database
from tests.fixtures.servers.seed import seed
from tests.fixtures.views.view_truth import ViewTruth, plan_of
from tests.fixtures.views.view_workload import BEGIN, KEYS, SCHEMA, TURNS, ViewWork

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections
    from tests.fixtures.servers.running_servers import PostgresServer

CUTS: Final = int(os.environ.get("TAILRACE_VIEW_CUTS", "3"))
SEEDS: Final = int(os.environ.get("TAILRACE_VIEW_SEEDS", "1"))
EDGES: Final = 250  # a driver lives for up to so many; a cut that keeps all views has some hundred
VIEWS: Final = Path(__file__).parent / "views"
LONG_S: Final = 600 + 120 * CUTS
# What the header asks for. Over tables as small as these the choice would always be to recompute.
PLANS: Final = ("affected", "affected", "affected", "affected", "auto")
KEPT_MIN: Final = 25 if CUTS >= 10 else 10  # shapes that are kept by keys, at least, in a run
TABLES: Final = tuple(f"public.{table}" for table in KEYS)
WIDE: Final = "alter table customers alter column tier type bigint"
SMALL: Final[Sections] = {"capture": {"batch_rows_max": 40, "catalog_check_s": 0.2}}


def planned(folder: Path) -> Path:
    """The shapes, each with a randomly chosen plan."""
    views, chance = folder / "views", random.Random(f"{seed()}/plans")
    views.mkdir()
    for file in sorted(VIEWS.glob("*.sql")):
        plan = chance.choice(PLANS)
        (views / file.name).write_text(f"-- plan: {plan}\n{file.read_text()}")
    return views


@pytest.fixture
def lake(capture: CaptureSite, quick: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    yield from lake_site(capture, quick, tmp_path, views=str(planned(tmp_path)), events_max=150)


@pytest.fixture
def truth(postgres: PostgresServer) -> Iterator[ViewTruth]:
    with fresh_database(postgres) as database:
        found = ViewTruth(database.dsn, (*SCHEMA, WIDE), KEYS, VIEWS)
        yield found
        found.close()


def finish(lake: LakeSite, daemon: Daemon, drivers: Crashing) -> None:
    """Wait until the lake has everything that is committed now."""
    lsn = lake.capture.wal()
    daemon.until_position(lsn)
    while drivers.driver.position.end_lsn < lsn:
        drivers.step()


def test_every_shape_has_rows_from_the_beginning_on(truth: ViewTruth) -> None:
    """A view without rows proves nothing."""
    truth.run(BEGIN)

    assert [name for name in truth.names if not truth.answer(name)] == []


@pytest.mark.timeout(LONG_S + 200)
@pytest.mark.parametrize("number", range(SEEDS))
def test_every_view_is_postgresqls_answer_at_the_lsn_of_every_cut(
    lake: LakeSite, truth: ViewTruth, number: int
) -> None:
    site, own = lake.capture, seed() + number
    chance = random.Random(own)
    site.sql(*SCHEMA)
    referee = site.oracle()
    daemon = site.running(SMALL)
    site.transaction(*BEGIN)
    work = ViewWork(site.dsn, own)
    drivers = Crashing(lake, chance, longest=EDGES)

    ends_s, turns = time.monotonic() + LONG_S, cycle(TURNS)
    daemon.until_position(site.wal())
    with work.writing():
        while drivers.driver.position.end_lsn == 0 or lake.manifest().cut < CUTS:
            assert time.monotonic() < ends_s, f"{lake.manifest().cut} cuts, seed {own}"
            drivers.step()
            work.allow(chance.choice((1, 5, 40)), next(turns))
            if chance.random() < 0.3:
                work.change_columns()
    finish(lake, daemon, drivers)

    store, transactions = ManifestStore(lake.path), referee.transactions(TABLES)
    faults, kept = [], Counter[tuple[str, str]]()
    for cut in store.cuts():
        manifest = store.at(cut)
        truth.advance(transactions, manifest.end_lsn)
        faults += truth.faults(lake.path, manifest)
        kept.update((name, plan_of(state)) for name, state in manifest.views.items() if state.cut == cut)
    print(
        f"seed {own}: {len(store.cuts())} cuts of {len(truth.names)} views, {work.transactions} transactions, "
        f"{len(drivers.kills)} kills {drivers.kills}, DDL {work._named}, "
        f"plans {Counter(plan for _, plan in kept.elements())}"
    )
    assert not faults, "\n".join([f"TAILRACE_SEED={own}", *faults[:10]])
    assert len(store.cuts()) >= CUTS
    by_plan = {name for name, plan in kept if plan not in {"", "recompute"}}
    assert len(by_plan) >= KEPT_MIN, sorted(by_plan)
    assert CUTS < 10 or drivers.kills, "no driver was killed; the test is weaker than it says"
