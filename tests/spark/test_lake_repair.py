"""A lake continues in its folder after a repair of the log: one cut leads from the old epoch to the new one."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from cdc.lsn import Lsn
from sinks.warehouse.lake.manifest import ManifestStore
from sinks.warehouse.lake_observer import Unobserved
from sinks.warehouse.read.lake_reader import Lake
from tests.faults.test_identity import restore
from tests.fixtures.capture.repair_scenes import captured, repaired
from tests.fixtures.capture.snapshot_waits import INITIAL, RACED, SMALL_CHUNKS, complete, racing
from tests.fixtures.lake.edges import Killed, listen
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.supervised_run import supervised
from tests.fixtures.servers.waiting import until
from tests.spark.test_supervised import opened, sections

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cdc.errors import TailraceError
    from cdc.local.valkey_server import Valkey
    from sinks.warehouse.driver import LakeDriver
    from sinks.warehouse.lake.manifest import Manifest
    from tests.fixtures.lake.running_lake import Row
    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections
    from tests.fixtures.servers.opensearch import OpenSearchServer
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack
    from tests.fixtures.servers.supervised_run import Supervised

TABLES: Final[dict[str, list[str]]] = {
    "public.t": ["id", "n", "pad"],
    "public.u": ["id", "v"],
    "public.big": ["id", "n", "body"],
}
FILLED: Final = (
    *RACED,
    "create table u (id int primary key, v text)",
    "insert into u select n, 'u' from generate_series(1, 200) n",
    "create table gone (id int primary key)",
    "insert into gone values (1)",
    "create table big (id int primary key, n int, body text)",
    "alter table big alter body set storage external",
    "insert into big select n, 0, repeat('seen', 5000) from generate_series(1, 5) n",
)
SINKS: Final = ("find", "cache", "lake")
UNSEEN: Final = (
    "delete from t where id % 5 = 0",
    "update t set n = n + 1000 where id % 7 = 1",
    "insert into t select n, 5, 'new' from generate_series(5001, 5050) n",
    "insert into t values (6000, 1, 'comes and goes')",
    "delete from t where id = 6000",
    "truncate u",
    "insert into u values (7, 'after'), (300, 'new')",
    "drop table gone",
    "update big set body = repeat('unseen', 3000) where id <= 3",
)


class Watching(Unobserved):
    """Keeps what the driver says while it waits."""

    def __init__(self) -> None:
        self.said: list[TailraceError] = []

    def waits(self, error: TailraceError) -> None:
        self.said.append(error)


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    """With histories of all tables, and views over them."""
    views = tmp_path / "views"
    views.mkdir()
    (views / "sums.sql").write_text("select n % 10 as part, count(*) as c, sum(n) as s from t group by n % 10\n")
    (views / "both.sql").write_text("select t.id, t.n, u.v from t join u on u.id = t.id\n")
    yield from lake_site(capture, spark, tmp_path, views=str(views), history=("public.*",))


def _differences(lake: LakeSite, manifest: Manifest) -> list[str]:
    """All of mirrors, views and the newest versions that is not what PostgreSQL has now."""
    found = [f"{table}: {fault}" for table, columns in TABLES.items() if (fault := lake.differs(table, columns))]
    for table, columns in TABLES.items():
        if _valid(lake, manifest, table, manifest.end_lsn) != lake.source_rows(table, columns):
            found.append(f"the history of {table} is not the table")
    sums = "select n % 10, count(*), sum(n) from t group by 1"
    for view, query in (("sums", sums), ("both", "select t.id, t.n, u.v from t join u using (id)")):
        if lake.view_rows(view, manifest) != sorted(lake.capture.query(query), key=repr):
            found.append(f"{view} is not its query")
    return found


def _valid(lake: LakeSite, manifest: Manifest, table: str, lsn: int) -> list[Row]:
    """The rows of a history whose transactions end at `lsn` or before."""
    own = ["_valid_from_lsn", "_valid_to_lsn", "_op"]
    rows = lake.rows(f"history/{table}", [*TABLES[table], *own], manifest)
    # A row that was read at an LSN is before what commits there.
    known = [row for row in rows if row[-3] < lsn or (row[-1] == "r" and row[-3] == lsn)]
    return sorted((row[:-3] for row in known if row[-2] is None or row[-2] >= lsn), key=repr)


def _source(lake: LakeSite) -> dict[str, list[Row]]:
    return {table: lake.source_rows(table, columns) for table, columns in TABLES.items()}


def _filled(lake: LakeSite) -> Daemon:
    """Tables with rows and their captured snapshots."""
    site = lake.capture
    site.sql(*FILLED)
    daemon = site.running(INITIAL)
    complete(site, daemon, *TABLES, "public.gone")
    return daemon


def _with_a_gap(site: CaptureSite) -> None:
    """Statements that no slot kept, and the repair; capture does not run."""
    site.sql(f"select pg_drop_replication_slot('{site.slot}')", *UNSEEN)
    stop = site.daemon(INITIAL).stopped_with()
    assert stop["state"] == "GAP"
    repaired(site, stop["command"])


def _apply(lake: LakeSite, driver: LakeDriver, lsn: int) -> Manifest:
    """Apply the log until the lake is at `lsn` of the new epoch. Every cut that a reader sees is whole."""

    def reached() -> bool:
        driver.step()
        at = lake.manifest().position
        assert at.epoch == 1 or set(at.complete.values()) == {"complete"}
        return at.epoch == 2 and at.end_lsn >= lsn

    until(reached, f"the lake at {lsn} in epoch 2", within_s=240)
    return lake.manifest()


def test_lake_is_exact_after_a_gap_under_load_and_says_what_is_unknown(lake: LakeSite) -> None:
    site, watching = lake.capture, Watching()
    daemon = _filled(lake)
    driver = lake.driver(watching)
    lake.settle(daemon, driver)
    marks: dict[int, dict[str, list[Row]]] = {}
    for _ in range(2):
        with racing(site.dsn, seed(), writers=2, pause_s=0.05):
            site.sql("update big set n = n + 1", "update u set v = v || 'x' where id < 20")
        site.sql("insert into u values (1000, 'last') on conflict (id) do update set v = u.v || '.'")
        marks[lake.settle(daemon, driver).end_lsn] = _source(lake)
    assert daemon.stop() == 0

    with racing(site.dsn, seed(), writers=2, pause_s=0.05):
        _with_a_gap(lake.capture)
        driver.step()
        before = lake.manifest()
        daemon = site.running(SMALL_CHUNKS)
        site.sql("update big set n = n + 100 where id in (2, 5)", "insert into u values (8, 'streamed')")
        driver.step()
        complete(site, daemon, *TABLES)
        _apply(lake, driver, site.wal())
    manifest = lake.settle(daemon, driver)

    assert before.position.epoch == 1
    assert _differences(lake, manifest) == []
    assert all(report.ok for report in lake.verified(manifest))
    assert lake.rows("mirror/public.gone", ["id"], manifest) == [(1,)], "a table that is not captured stays"
    (repair,) = manifest.repairs
    assert (repair.epoch, repair.known_to) == (1, before.end_lsn)
    assert repair.known_to < repair.resumes_at < manifest.end_lsn
    for lsn, wanted in marks.items():
        found = {table: _valid(lake, manifest, table, lsn) for table in TABLES}
        assert found == wanted, f"the histories at {lsn}"
    _assert_unknown(lake, manifest)
    assert watching.said, "it waited"
    assert "Missing: public.big" in watching.said[0].message


def _assert_unknown(lake: LakeSite, manifest: Manifest) -> None:
    """No version crosses the repair, and those that it ended have both marks."""
    (repair,) = manifest.repairs
    for table in TABLES:
        rows = lake.rows(f"history/{table}", ["_epoch", "_valid_from_lsn", "_valid_to_lsn", "_valid_to"], manifest)
        old = [row for row in rows if row[0] == 1]
        assert all(row[2] is not None and row[2] <= repair.known_to for row in old)
        ended = [row for row in old if row[2] == repair.known_to]
        assert len(ended) == len(_valid(lake, manifest, table, repair.known_to))
        assert {int(row[3].timestamp() * 1_000_000 + 0.5) for row in ended} <= {repair.known_at_us}
        assert all(row[1] >= repair.resumes_at for row in rows if row[0] == 2)


@pytest.mark.timeout(1200)
def test_driver_killed_at_any_step_of_the_cut_across_a_repair_is_followed_by_one_that_is_exact(lake: LakeSite) -> None:
    """In pieces. Readers have the old cut until it is whole."""
    site = lake.capture
    daemon = _filled(lake)
    driver = lake.driver()
    known = lake.settle(daemon, driver)
    driver.close()
    wanted = _source(lake)
    assert daemon.stop() == 0
    _with_a_gap(lake.capture)
    daemon = site.running(INITIAL)
    complete(site, daemon, *TABLES)
    site.sql("update t set n = n + 1 where id < 50", "delete from t where id = 51")
    lsn = site.wal()
    daemon.until_position(lsn)
    lake.settings = structs.replace(lake.settings, bytes_max=2 << 20)

    killed = 0
    while _dies(lake, at_step=killed):
        killed += 1
        seen = lake.manifest()
        assert seen.position.epoch == 2 or lake.rows("mirror/public.u", TABLES["public.u"]) == wanted["public.u"]
    manifest = _apply(lake, lake.driver(), lsn)

    assert len(manifest.repairs) == 1
    assert killed > 8, "each driver goes on behind the last finished piece"
    assert _differences(lake, manifest) == []
    assert {table: _valid(lake, manifest, table, known.end_lsn) for table in TABLES} == wanted
    _assert_unknown(lake, manifest)
    assert ManifestStore(lake.path).cuts()[-1] == manifest.cut


def _dies(lake: LakeSite, at_step: int) -> bool:
    """Let a driver fail before one more step than the last one; False if it came through."""
    passed: list[Any] = []

    def die(step: str) -> None:
        if len(passed) == at_step:
            raise Killed(step)
        passed.append(step)

    driver = listen(lake.driver(), die)
    try:
        driver._resume()
        driver.step()
    except Killed:
        return True
    finally:
        driver.close()
    return False


@pytest.mark.timeout(600)
def test_lake_follows_a_restored_database_whose_lsns_went_back(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Its first life stays readable, and ends where the log ended."""
    source = make_stack("postgres").postgres
    data = getattr(source, "data", None)
    if data is None:
        pytest.skip("the data folder of a container is not ours to copy")
    with (
        capture_site(topic_prefix, source.dsn, kafka.bootstrap, tmp_path) as site,
        contextmanager(lake_site)(site, spark, tmp_path, history=("public.*",)) as lake,
    ):
        captured(site, "create table t (id int primary key, n int, pad text)", "insert into t values (1), (2), (3)")
        source.stop()
        shutil.copytree(data, tmp_path / "copy", symlinks=True)
        source.start()
        daemon, driver = site.running(INITIAL), lake.driver()
        site.sql("update t set n = 1 where id = 1", "insert into t select n from generate_series(10, 3000) n")
        known, wanted = lake.settle(daemon, driver), lake.source_rows("public.t", TABLES["public.t"])
        assert daemon.stop() == 0
        source.stop()
        restore(tmp_path / "copy", data)
        source.start()
        site.sql("delete from t where id = 3", "insert into t values (4, 4, 'after')")
        stop = site.daemon(INITIAL).stopped_with()
        assert stop["state"] == "DIVERGED"
        repaired(site, stop["command"])
        daemon = site.running(SMALL_CHUNKS)
        complete(site, daemon, "public.t")
        config = site.write_config({"sinks.lake": {"kind": "warehouse", "path": str(lake.path)}})
        early = cdc("wait", "--sink", "lake", "--lsn", str(site.wal()), "--timeout", "1", "-c", config)
        _apply(lake, driver, site.wal())
        manifest = lake.settle(daemon, driver)
        assert early.code == 1, "its LSN is higher, but it is of another log"
        assert "lake 'lake' is in epoch 1" in early.err
        assert cdc("wait", "--sink", "lake", "--lsn", str(Lsn(manifest.position.end_lsn)), "-c", config).code == 0

        (repair,) = manifest.repairs
        assert repair.resumes_at < known.end_lsn <= repair.known_to, "the test is of LSNs that go back"
        assert lake.differs("public.t", TABLES["public.t"]) == ""
        assert all(report.ok for report in lake.verified(manifest))
        rows = lake.rows("history/public.t", ["_epoch", "_valid_from_lsn", "_valid_to_lsn"], manifest)
        assert all(begin < end <= repair.known_to for epoch, begin, end in rows if epoch == 1)
        assert sum(row[2] == repair.known_to for row in rows) == len(wanted)
        found = lake.rows("mirror/public.t", TABLES["public.t"], Lake(lake.location).store.at(known.cut))
        assert found == wanted
        newest = Lake(lake.location).store.at_lsn(manifest.end_lsn)
        assert newest is not None
        assert newest.cut == manifest.cut


@pytest.mark.timeout(900)
def test_all_sinks_follow_a_repair_under_load(
    capture: CaptureSite, opensearch: OpenSearchServer, valkey: Valkey, tmp_path: Path
) -> None:
    kept = list(TABLES)
    sinks: Sections = {
        "sinks.find": {"kind": "search", "url": opensearch.url, "tables": kept},
        "sinks.find.index": {"number_of_replicas": 0},
        "sinks.cache": {"kind": "cache", "url": valkey.url, "tables": kept},
        **sections(tmp_path / "lake"),
    }
    capture.sql(*FILLED)
    with supervised(capture, {**INITIAL, **sinks}, "before") as daemon:
        opened(daemon, 1)
        with racing(capture.dsn, seed(), writers=1, pause_s=0.05):
            until(lambda: len(daemon.events("snapshot_complete")) >= len(TABLES), "it is captured", within_s=120)
        _level(daemon, capture.wal())
        assert daemon.stop() == 0

    with racing(capture.dsn, seed(), writers=2, pause_s=0.05):
        _with_a_gap(capture)
    with supervised(capture, {**SMALL_CHUNKS, **sinks}, "after") as daemon:
        with racing(capture.dsn, seed(), writers=2, pause_s=0.05):
            until(lambda: len(daemon.events("snapshot_complete")) >= len(TABLES), "it is repaired", within_s=120)
        _level(daemon, capture.wal())
        verified = {sink: cdc("verify", sink, "-c", daemon._config, timeout_s=300) for sink in SINKS}
        assert daemon.stop() == 0

    assert {sink: ran.code for sink, ran in verified.items()} == dict.fromkeys(SINKS, 0), verified
    assert Lake(tmp_path / "lake").manifest().position.epoch == 2


def _level(daemon: Supervised, lsn: Lsn) -> None:
    """Wait until each sink has everything up to `lsn`."""
    until(lambda: {daemon.wait_for(sink, lsn)[0] for sink in SINKS} == {200}, f"the sinks at {lsn}", within_s=240)
