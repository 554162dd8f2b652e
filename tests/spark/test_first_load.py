"""The first load of a lake on topics that already hold more than a cut: no merge, several tables at once, resumable."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest
from deltalake import DeltaTable
from msgspec import structs

from sinks.warehouse.lake.manifest import ManifestStore
from tests.fixtures.lake.edges import Killed, listen
from tests.fixtures.lake.lake_truth import Truth
from tests.fixtures.lake.lake_workload import BEGIN, HISTORY, SCHEMA, TURNS, VIEW, LakeWork
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sinks.warehouse.driver import LakeDriver
    from sinks.warehouse.lake.manifest import Manifest
    from tests.fixtures.servers.daemon import CaptureSite, Daemon

pytestmark = pytest.mark.timeout(900)
SMALL: Final = {"capture": {"batch_rows_max": 40, "catalog_check_s": 0.2}}
TABLES: Final = ("accounts", "transfers", "kinds", "docs")
BYTES_MAX: Final = 150_000
TRANSACTIONS: Final = 120


@pytest.fixture(params=["local", "distributed"])
def lake(
    request: pytest.FixtureRequest, capture: CaptureSite, spark: SparkSession, tmp_path: Path
) -> Iterator[LakeSite]:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "given.sql").write_text(VIEW)
    settings: dict[str, Any] = {"history": (*HISTORY, "public.accounts"), "bytes_max": BYTES_MAX}
    settings |= {"views": str(tmp_path / "views"), "committer": request.param}
    yield from lake_site(capture, spark, tmp_path, **settings)


@pytest.fixture
def work(lake: LakeSite) -> LakeWork:
    """Random transactions of every kind, with DDL, that are in the topics before the lake starts."""
    return LakeWork(lake.capture.dsn, seed())


def written(lake: LakeSite, work: LakeWork) -> Daemon:
    """Capture everything that the writers commit, with DDL among it."""
    site = lake.capture
    daemon = site.running(SMALL)
    site.sql(BEGIN)
    with work.writing():
        for turn in TURNS:
            work.allow(TRANSACTIONS // len(TURNS), turn)
            until(lambda: work.is_done, "the writers are done", within_s=120)
            work.change_columns()
    daemon.until_position(site.wal())
    return daemon


def finished(driver: LakeDriver) -> None:
    """Finish the open cut, and stop."""
    stop = threading.Event()
    stop.set()
    driver.run(stop)


def faults(truth: Truth, lake: LakeSite, manifest: Manifest) -> list[str]:
    found = truth.faults(lake.path, manifest)
    given = lake.capture.query("select giver, count(*), sum(amount)::bigint from transfers group by giver")
    if sorted(lake.view_rows("given", manifest)) != sorted(given):
        found.append("the view differs")
    return found


def test_first_load_is_one_cut_that_equals_postgresql_and_merges_nothing(lake: LakeSite, work: LakeWork) -> None:
    lake.capture.sql(*SCHEMA)
    oracle = lake.capture.oracle()
    daemon = written(lake, work)

    driver = lake.driver()
    merges: list[str] = []
    listen(driver, lambda edge: merges.append(edge) if edge.startswith(("merge", "close_and_append")) else None)
    assert driver.step()

    manifest = lake.manifest()
    truth = Truth(work.tables(), oracle.transactions([f"public.{table}" for table in TABLES]))
    assert manifest.cut == 1
    assert merges == []
    assert {manifest.tables[f"mirror/public.{table}"].version for table in TABLES} == {0}
    assert manifest.end_lsn >= max(one.end_lsn for one in truth.transactions if one.changes)
    assert faults(truth, lake, manifest) == []
    assert all(report.ok for report in lake.verified())

    with work.writing():
        work.allow(40)
        until(lambda: work.is_done, "the writers are done", within_s=120)
    later = lake.settle(daemon, driver)
    truth = Truth(work.tables(), oracle.transactions([f"public.{table}" for table in TABLES]))
    assert faults(truth, lake, later) == []


def test_first_load_killed_at_any_step_goes_on_without_reading_finished_pieces(lake: LakeSite, work: LakeWork) -> None:
    lake.capture.sql(*SCHEMA)
    oracle, chance = lake.capture.oracle(), random.Random(seed())
    written(lake, work)
    store, reads, edges = ManifestStore(lake.path), [0], [0]
    kills: list[str] = []

    def driver(dies_after: int) -> LakeDriver:
        left = [dies_after]

        def heard(edge: str) -> None:
            reads[0] += edge == "outputs"
            edges[0] += 1
            left[0] -= 1
            if left[0] == 0:
                kills.append(edge)
                raise Killed(edge)

        return listen(lake.driver(), heard)

    begun, skipped = driver(chance.randint(8, 14)), 0
    with pytest.raises(Killed):
        begun.step()
    while True:
        begun.close()
        if (pending := store.pending()) is None:
            assert store.current() is not None, "what is no longer pending is published"
            finished(driver(10_000))
            break
        assert store.current() is None, "readers see nothing of a load that is not finished"
        before, reads[0] = pending.written, 0
        begun = driver(chance.randint(6, 20) if len(kills) < 5 else 10_000)
        try:
            finished(begun)
        except Killed:
            continue
        finally:
            now = store.pending()
            done = len(pending.pieces) if now is None else now.written
            assert reads[0] <= done - before + 1, f"pieces {before} to {done} took {reads[0]} reads"
            skipped += before
        break

    manifest = lake.manifest()
    truth = Truth(work.tables(), oracle.transactions([f"public.{table}" for table in TABLES]))
    assert skipped > 0, "no driver found finished pieces; the test is weaker than it says"
    assert faults(truth, lake, manifest) == [], kills
    for name, state in manifest.tables.items():
        commits = DeltaTable(lake.path / name).version() + 1
        assert state.version == commits - 1
    assert manifest.cut == 1


def test_large_table_that_joins_a_lake_is_loaded_from_its_beginning(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table t (id int primary key, name text)", "create table late (id uuid primary key, name text)")
    daemon = site.running(SMALL)
    lake.settings = structs.replace(lake.settings, tables=("public.t",), views="")
    site.sql("insert into t select n, 'row' from generate_series(1, 10) n")
    site.sql("insert into late select md5(n::text)::uuid, repeat('x', 200) from generate_series(1, 600) n")
    first = lake.driver()
    lake.settle(daemon, first)
    first.close()

    lake.settings = structs.replace(lake.settings, tables=("public.*",))
    site.sql("update late set name = 'new' where id = md5('7')::uuid", "delete from late where id = md5('8')::uuid")
    manifest = lake.settle(daemon, lake.driver())

    assert lake.differs("public.late", ["name"]) == ""
    assert manifest.tables["mirror/public.late"].version == 0
    assert manifest.tables["mirror/public.late"].rows == 599
