"""Faults in a lake and its log: the data is exact afterwards, or the sink stops with a reason (row D6)."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from deltalake import write_deltalake

from cdc.errors import LakeDamaged, LakeUnready, ProducerFenced, SinkGap, SinkStale, TailraceError
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.manifest import ManifestStore
from sinks.warehouse.start import _locked
from tests.fixtures.lake.edges import Killed, listen
from tests.fixtures.lake.lake_truth import TableTruth, Truth, rows_of
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sinks.warehouse.driver import LakeDriver
    from tests.fixtures.capture.referee import Oracle
    from tests.fixtures.servers.daemon import CaptureSite, Daemon

T: Final = "mirror/public.t"
EDGES: Final = (
    *("replace pending.json", "outputs", "append", "close_and_append", "merge", "overwrite", "hold"),
    *("replace <cut>.json", "replace current.json", "remove pending.json"),
)
"""Steps of a cut with one table and a view, in order: a driver fails before each of them."""
STEPS_IN_PIECES: Final = 22  # of such a cut that is applied in three pieces, at least
TIDYING: Final = (
    *("compact archive/", "compact mirror/", "hold", "remove <cut>.json"),
    *("vacuum archive/", "vacuum mirror/"),
)


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    """With the table `t`, its history, and a view of it."""
    capture.sql("create table t (id int primary key, a int, b text)")
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "sums.sql").write_text("select count(*) as n, sum(a) as a from t\n")
    yield from lake_site(capture, spark, tmp_path, views=str(tmp_path / "views"), history=("public.t",))


@pytest.fixture
def admin(capture: CaptureSite) -> AdminClient:
    return AdminClient({"bootstrap.servers": capture.bootstrap, "log_level": 3})


def captured(lake: LakeSite, daemon: Daemon, *statements: str) -> None:
    """Run the statements, and wait until the log has them."""
    daemon.until_position(lake.capture.sql(*statements))


def resume(driver: LakeDriver) -> None:
    """Finish the open cut, and no more."""
    stop = threading.Event()
    stop.set()
    driver.run(stop)


def state_of(lake: LakeSite) -> dict[str, int | None]:
    """Return the newest version of every table, whatever the manifest says, and the newest cut."""
    store, tables = ManifestStore(lake.path), DeltaRs(str(lake.path))
    manifest = store.current()
    assert manifest is not None
    names = [*manifest.tables, *(layout.view(name) for name in manifest.views)]
    return {name: tables.version(name) for name in names} | {"cut": manifest.cut}


def faults(lake: LakeSite, oracle: Oracle, *, first: int = 1) -> list[str]:
    """Return the faults in all kept cuts; every cut from `first` on must be kept."""
    store = ManifestStore(lake.path)
    truth = Truth([TableTruth("public.t", ("id",))], oracle.transactions(["public.t"]))
    found = [fault for cut in store.cuts() for fault in truth.faults(lake.path, store.at(cut))]
    cuts = store.cuts()
    return found + ([] if cuts == list(range(first, first + len(cuts))) else [f"cuts {cuts}"])


def test_driver_that_dies_before_any_step_is_followed_by_one_that_is_exact(lake: LakeSite) -> None:
    oracle = lake.capture.oracle()
    daemon = lake.capture.running()
    captured(lake, daemon, "insert into t values (1, 1, 'x')")
    lake.driver().step()
    passed: set[str] = set()
    for number, edge in enumerate(EDGES):

        def die(name: str, edge: str = edge) -> None:
            if name.startswith(edge):
                passed.add(edge)
                raise Killed(name)

        captured(
            lake,
            daemon,
            f"insert into t values ({number + 10}, {number}, 'new')",
            f"update t set a = {number} where id < 5",
            f"delete from t where id = {number + 8}",
        )
        dying = listen(lake.driver(), die)
        before = lake.manifest().cut
        with pytest.raises(Killed):
            dying.step()
        dying.close()
        seen = lake.manifest().cut - before
        assert seen == (edge == "remove pending.json"), "a cut is seen from the moment the pointer is replaced"
        following = lake.driver()
        resume(following)
        assert lake.manifest().cut - before == (edge != EDGES[0]), f"killed before {edge}"
        following.close()
    manifest = lake.settle(daemon, lake.driver())

    assert passed == set(EDGES)
    assert faults(lake, oracle) == []
    view = pinned(lake.path, layout.view("sums"), manifest.views["sums"].version).to_pyarrow_table()
    assert rows_of(view, ["n", "a"]) == lake.capture.query("select count(*), sum(a) from t")


@pytest.mark.timeout(1800)
def test_driver_that_dies_at_any_step_of_a_cut_in_pieces_is_followed_by_one_that_is_exact(lake: LakeSite) -> None:
    """Twice each time, so that the rest of the cut is divided again after pieces that are already written."""
    lake.settings = msgspec.structs.replace(lake.settings, bytes_max=2_000)
    oracle, chance = lake.capture.oracle(), random.Random(seed())
    daemon = lake.capture.running()
    begun = lake.capture.sql("insert into t select n, n, 'x' from generate_series(1, 9) n")
    daemon.until_position(begun)
    applied(begun, lake.driver())
    died: list[str] = []
    for number in range(chance.randrange(2), STEPS_IN_PIECES, 2):
        lsn = lake.capture.transaction(
            f"update t set a = {number}, b = repeat('y', 90) where id <= 5",
            f"insert into t values ({number + 100}, 0, repeat('z', 200))",
            f"update t set id = -id, a = a + 1 where abs(id) in (2, 3, {number + 99})",
            f"delete from t where id = {number + 98}",
            f"update t set a = a + 1 where id = {number + 100}",
        )
        daemon.until_position(lsn)
        first = lake.driver()
        if dies(first, number, died, partial(applied, lsn)):
            second = lake.driver()
            dies(second, chance.randrange(12), died, resume)
            second.close()
        first.close()
        third = lake.driver()
        resume(third)
        applied(lsn, third)
        third.close()
        state = lake.manifest()
        assert lake.rows("mirror/public.t", ["id", "a", "b"], state) == lake.source_rows("t", ["id", "a", "b"])

    assert len(died) > 8, "a cut in pieces has more steps"
    assert faults(lake, oracle) == []
    view = lake.view_rows("sums")
    assert view == lake.capture.query("select count(*), sum(a) from t")


def applied(lsn: int, driver: LakeDriver) -> None:
    """Apply cuts until the lake is at `lsn`."""
    while driver.position.end_lsn < lsn:
        driver.step()


def dies(driver: LakeDriver, number: int, died: list[str], act: Callable[[LakeDriver], object]) -> bool:
    """Let `driver` fail before this step; returns whether it reached the step."""
    passed = 0

    def die(name: str) -> None:
        nonlocal passed
        if passed == number:
            died.append(name)
            raise Killed(name)
        passed += 1

    try:
        act(listen(driver, die))
    except Killed:
        return True
    return False


def test_driver_killed_during_cleanup_is_followed_by_one_that_is_exact(
    lake: LakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cut compacts files and prunes old cuts; a driver fails before each of these steps."""
    monkeypatch.setattr("sinks.warehouse.driver._COMPACT_EVERY", 1)
    monkeypatch.setattr("sinks.warehouse.driver._PRUNE_EVERY", 1)
    lake.settings = msgspec.structs.replace(lake.settings, keep_cuts=3)
    oracle = lake.capture.oracle()
    daemon = lake.capture.running()
    captured(lake, daemon, "insert into t select n, n, 'x' from generate_series(1, 20) n")
    for number in range(4):
        captured(lake, daemon, f"update t set a = {number} where id < 5")
        lake.driver().step()
    passed: set[str] = set()
    for number, edge in enumerate(TIDYING):

        def die(name: str, edge: str = edge) -> None:
            if name.startswith(edge):
                passed.add(edge)
                raise Killed(name)

        captured(lake, daemon, f"update t set a = {number}, b = 'y' where id < 9", f"delete from t where id = {number}")
        dying = listen(lake.driver(), die)
        with pytest.raises(Killed):
            dying.step()
        dying.close()
        following = lake.driver()
        resume(following)
        following.close()
    manifest = lake.settle(daemon, lake.driver())
    lake.driver().step()

    cuts = ManifestStore(lake.path).cuts()
    assert passed == set(TIDYING)
    assert faults(lake, oracle, first=cuts[0]) == []
    assert cuts[-1] == manifest.cut
    assert len(cuts) <= 4


def test_two_drivers_of_one_lake_make_each_cut_once(lake: LakeSite) -> None:
    """On one machine the lock refuses the second driver; elsewhere the newer has the fence, and the older stops."""
    oracle = lake.capture.oracle()
    daemon = lake.capture.running()
    captured(lake, daemon, "insert into t values (1, 1, 'x')")
    with _locked(lake.path), ExitStack() as second, pytest.raises(LakeUnready, match="another process") as refused:
        second.enter_context(_locked(lake.path))
    older = lake.driver()
    older.step()
    newer = lake.driver()
    captured(lake, daemon, "update t set a = 2")
    with pytest.raises(ProducerFenced):
        older.step()

    assert refused.value.retry == "timed"
    assert lake.manifest().cut == 1, "a fenced driver published"
    resume(newer)
    assert lake.manifest().cut == 2
    captured(lake, daemon, "update t set a = 3")
    lake.settle(daemon, newer)
    assert faults(lake, oracle) == []


def test_files_of_a_lake_that_are_not_as_they_were_left(lake: LakeSite) -> None:
    """A lost pointer is replaced; any other damage is a named stop that writes nothing."""
    oracle = lake.capture.oracle()
    daemon = lake.capture.running()
    folder = lake.path / layout.CUTS_FOLDER
    current, pending = folder / layout.CURRENT_FILE, folder / layout.PENDING_FILE
    kept = []
    for number in range(1, 3):
        captured(lake, daemon, f"insert into t values ({number}, {number}, 'x')")
        lake.driver().step()
        kept.append(current.read_bytes())
    captured(lake, daemon, "update t set a = 5")
    before = state_of(lake)

    current.write_bytes(kept[0])
    assert_stops(lake, "but the newest cut 1 needs version")
    current.write_bytes(kept[1])
    assert state_of(lake) == before, "written although the manifest was older than the tables"

    pending.write_bytes(b'{"version":1,"cut":3,"start')
    assert_stops(lake, "pending.json is corrupt")
    pending.unlink()

    write_deltalake(lake.path / T, DeltaRs(str(lake.path)).read(T, lake.manifest().tables[T].version), mode="append")
    assert_stops(lake, "mirror/public.t is at version")
    assert lake.manifest().cut == 2
    (lake.path / T / "_delta_log" / f"{before[T] or 0:020}.json").with_name(f"{(before[T] or 0) + 1:020}.json").unlink()

    current.write_bytes(kept[1][:100])
    following = lake.driver()
    resume(following)
    lake.settle(daemon, following)
    assert faults(lake, oracle) == []


def assert_stops(lake: LakeSite, named: str) -> None:
    """A new driver stops with LakeDamaged, and so does the next one."""
    for _ in range(2):
        with pytest.raises(LakeDamaged, match=re.escape(named)):
            go_on(lake)


def go_on(lake: LakeSite) -> None:
    """Start a sink and apply one cut."""
    driver = lake.driver()
    try:
        resume(driver)
        driver.step()
    finally:
        driver.close()


def test_log_that_lost_what_the_lake_has_not_read_is_a_gap(lake: LakeSite, admin: AdminClient) -> None:
    daemon = lake.capture.running()
    captured(lake, daemon, "insert into t select n, n, 'x' from generate_series(1, 9) n")
    driver = lake.driver()
    driver.step()
    captured(lake, daemon, "update t set a = 0")
    daemon.stop()
    topic = lake.capture.topic("t")
    before = state_of(lake)

    # The index says more than the topic has: what compaction takes away looks the same.
    forged = lake.capture.log().cuts[-1]
    partition, (end, count, rolling) = next(iter(forged["changed"].items()))
    forged["changed"] = {partition: [end, count + 2, rolling]}
    forged |= {"full": False, "tables": {}, "end_lsn": forged["end_lsn"] + 8}
    produce(lake, f"{lake.capture.name}.__cuts", forged)
    with pytest.raises(SinkGap, match="records between offsets") as miscounted:
        lake.driver().step()
    told = miscounted.value.facts
    assert (told["topic"], told["expected"]) == (topic, told["found"] + 2)  # type: ignore[operator]
    (lake.path / layout.CUTS_FOLDER / layout.PENDING_FILE).unlink(missing_ok=True)  # Spark counts before the cut begins

    delete_records(admin, topic)
    with pytest.raises(SinkGap, match=r"offsets \d+ to \d+ of .*public\.t-\d were removed") as gone:
        lake.driver().step()
    assert gone.value.facts["topic"] == topic
    with pytest.raises(SinkGap):  # again: nothing of the cut was begun
        lake.driver().step()

    admin.delete_topics([topic])[topic].result()
    until(lambda: topic not in admin.list_topics(timeout=60).topics, "the topic is gone")
    with pytest.raises(TailraceError, match=re.escape(topic)):
        lake.driver().step()
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    with pytest.raises(SinkStale, match="ends at offset 0"):
        lake.driver().step()
    assert state_of(lake) == before


def produce(lake: LakeSite, topic: str, document: Any) -> None:
    producer = Producer({"bootstrap.servers": lake.capture.bootstrap, "log_level": 3})
    producer.produce(topic, json.dumps(document).encode(), partition=0)
    producer.flush(10)


def delete_records(admin: AdminClient, topic: str) -> None:
    """As retention does; a compacted topic refuses it unless it may also delete."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    everything = [TopicPartition(topic, partition, -1) for partition in range(2)]
    for future in admin.delete_records(everything).values():
        future.result()


def test_rows_of_many_schemas_in_one_cut_are_exact(lake: LakeSite) -> None:
    """Two columns even swap names; then a crash in the middle, which reads the same rows again."""
    oracle = lake.capture.oracle()
    daemon = lake.capture.running()
    captured(lake, daemon, "insert into t values (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three')")
    lake.driver().step()
    captured(
        lake,
        daemon,
        "insert into t values (4, 4, 'before')",
        "alter table t rename column b to b2",
        "update t set b2 = 'renamed' where id = 1",
        "alter table t add column c smallint",
        "insert into t values (5, 5, 'with c', 5)",
        "update t set id = 6 where id = 2",
        "alter table t alter column a type bigint",
        "update t set a = 9007199254740993 where id = 3",
        "alter table t rename column c to c2",
        "insert into t values (7, 7, null, 7)",
        "delete from t where id = 4",
        "alter table t drop column b2",
        "insert into t values (8, 8, 8)",
    )

    def die(name: str) -> None:
        if name.startswith("merge"):
            raise Killed(name)

    dying = listen(lake.driver(), die)
    with pytest.raises(Killed):
        dying.step()
    dying.close()
    driver = lake.driver()
    resume(driver)
    manifest = lake.manifest()
    assert manifest.cut == 2
    assert lake.columns(T) == ["id", "a", "c2"]
    assert lake.differs("public.t", ["id", "a", "c2"]) == ""
    names = {"b2": "b", "c2": "c"}
    truth = Truth([TableTruth("public.t", ("id",), names)], oracle.transactions(["public.t"]))
    store = ManifestStore(lake.path)
    assert [fault for cut in (1, 2) for fault in truth.faults(lake.path, store.at(cut))] == []


def test_large_value_goes_with_its_row_to_another_key(lake: LakeSite) -> None:
    """PostgreSQL does not send what an update left unchanged, also if it changes the key."""
    lake.capture.sql("alter table t alter column b set storage external")
    daemon = lake.capture.running()
    captured(lake, daemon, "insert into t select n, n, repeat(chr(64 + n), 9000) from generate_series(1, 3) n")
    driver = lake.driver()
    lake.settle(daemon, driver)

    captured(
        lake,
        daemon,
        "update t set id = 11 where id = 1",
        "insert into t select 4, 4, repeat('w', 9000)",
        "update t set id = 12 where id = 2",
        "update t set id = 22 where id = 12",
        "update t set a = 0 where id = 22",
        "update t set id = 44 where id = 4",
    )
    lake.settle(daemon, driver)

    assert lake.differs("public.t", ["id", "a", "b"]) == ""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs, which needs root")
def test_full_disk_is_waited_out_and_leaves_no_trace(lake: LakeSite) -> None:
    oracle = lake.capture.oracle()
    daemon = lake.capture.running()
    lake.path.mkdir(parents=True)
    with mounted(lake.path, "2m"):
        captured(lake, daemon, "insert into t select n, n, 'x' from generate_series(1, 20) n")
        lake.driver().step()
        captured(lake, daemon, "update t set a = a + 1")
        full = 0
        for room in (0, 4, 8, 16, 32, 64, 128):
            ballast = lake.path / "ballast"
            leave_free(ballast, room << 10)
            try:
                go_on(lake)
            except LakeUnready:
                full += 1
            finally:
                ballast.unlink()
            assert faults(lake, oracle) == []
        assert full > 1, "the disk was never full; the test is weaker than it says"
        lake.settle(daemon, lake.driver())
        assert faults(lake, oracle) == []
        assert lake.differs("public.t", ["id", "a", "b"]) == ""


@contextmanager
def mounted(path: Path, size: str) -> Iterator[None]:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def leave_free(ballast: Path, room: int) -> None:
    """Fill the file system up to `room` remaining bytes."""
    stat = os.statvfs(ballast.parent)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(stat.f_bavail * stat.f_bsize - room, 1))
