"""A sink that was down for a long time applies its backlog in bounded memory, whatever the size.

`make lake-backlog` runs this with 5 GB of waiting rows and 5 GB in one transaction, with the default memory.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.lake.manifest import ManifestStore
from sinks.warehouse.read.lake_reader import Lake
from tests.fixtures.lake.growing_cut import cpu_s
from tests.fixtures.lake.lake_process import Sink
from tests.fixtures.servers.waiting import until
from tests.spark.conftest import SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdc.lsn import Lsn
    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.servers.spark_cluster import SparkCluster

BACKLOG_MB: Final = int(os.environ.get("TAILRACE_LAKE_BACKLOG_MB", "12"))
TRANSACTION_MB: Final = int(os.environ.get("TAILRACE_LAKE_TRANSACTION_MB", "8"))
ROW_BYTES: Final = 2048
ROWS: Final = 1000
WITHIN_S: Final = 7200.0
IS_SMALL: Final = BACKLOG_MB + TRANSACTION_MB < 200
SMALL: Final[dict[str, Any]] = {"bytes_max": 2 << 20, "master": "local[2]", "memory": "1g", "spark": SHORT_LIVED}
VIEW: Final = "select id % 10 as g, count(*) as n, sum(length(body)) as size from t group by id % 10"
ROW: Final = "n, (select string_agg(encode(sha512((n || '-' || i)::bytea), 'hex'), '') from generate_series(1, 16) i)"
SUMS: Final = "select count(*), sum(('x' || substr(md5(id::text || body), 1, 8))::bit(32)::bigint) from t"


class Memory:
    """Resident memory of a process, its children, and executors with theirs; sampled."""

    def __init__(self, pid: int, executors: Callable[[], list[int]] = list) -> None:
        self._pid, self._executors = pid, executors
        self.peak: tuple[int, ...] = (0,)
        """Bytes of each process, when their sum was greatest: first the driver's Python, then its JVM."""
        self.peak_of: dict[str, int] = {}
        """Part -> its own peak."""
        self.took = ""

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in self.peak_of.items())
        return f"{self.took}; peak {sum(self.peak) / 1e6:,.0f} MB at once; of each part, in MB: {parts}"

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Sample until the block ends."""
        over = threading.Event()
        thread = threading.Thread(target=self._sample, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _sample(self, over: threading.Event) -> None:
        while not over.wait(0.2):
            try:
                parts = {"driver": [resident(self._pid)]}
                parts["jvm and workers"] = [resident(pid) for pid in descendants(self._pid)]
                for pid in self._executors():
                    parts[f"executor {pid}"] = [resident(pid), *(resident(one) for one in descendants(pid))]
            except OSError:
                continue
            for name, sizes in parts.items():
                self.peak_of[name] = max(self.peak_of.get(name, 0), sum(sizes))
            found = tuple(size for sizes in parts.values() for size in sizes)
            if sum(found) > sum(self.peak):
                self.peak = found


def descendants(pid: int) -> list[int]:
    """Every process that a process has started, and that they have."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, tasks.read_text().split()):
            found += [child, *descendants(child)]
    return found


def resident(pid: int) -> int:
    """Bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sink runs: its settings, its lake, and the executors that belong to it."""

    name: str
    lake: Path
    settings: dict[str, Any]
    executors: Callable[[], list[int]] = list


@pytest.fixture
def places(spark_cluster: SparkCluster, tmp_path: Path) -> tuple[Place, ...]:
    """One machine with the default memory, and a cluster of two workers with one core and 1 GB each."""
    spark = {name: value for name, value in spark_cluster.settings.items() if IS_SMALL or "JavaOptions" not in name}
    spark |= {"spark.sql.shuffle.partitions": "2"} | ({} if IS_SMALL else {"spark.executor.memory": "1g"})
    own, cluster = (SMALL if IS_SMALL else {}), {"master": spark_cluster.url, "spark": spark}
    return (
        Place("one machine", tmp_path / "here", own),
        Place("cluster", tmp_path / "there", own | cluster, spark_cluster.executors),
    )


def applied(capture: CaptureSite, place: Place, lsn: Lsn) -> tuple[str, Memory]:
    """Run a sink until its lake is at an LSN. Returns its log, and what it took."""
    store, log = ManifestStore(place.lake), place.lake.with_suffix(f".{int(lsn)}.log")
    sink = {"kind": "warehouse", "path": str(place.lake), "views": str(capture.folder / "views"), **place.settings}
    running = Sink(capture.write_config({"sinks.lake": sink}), log)
    memory = Memory(running.process.pid, place.executors)

    def reached() -> bool:
        assert running.process.poll() is None, running.text()[-3000:]
        current = store.current()
        return current is not None and current.end_lsn >= lsn

    try:
        with memory.watched():
            until(lambda: running.said("lake_opened"), "Spark has started", within_s=600)
            began_s, before = time.monotonic(), cpu_s(running.process.pid)
            until(reached, f"the lake at {lsn}", within_s=WITHIN_S / 2, every_s=1)
            took_s = cpu_s(running.process.pid) + sum(map(cpu_s, place.executors())) - before
            memory.took = f"{time.monotonic() - began_s:.0f} s, {took_s:.0f} s of CPU"
        return running.text(), memory
    finally:
        running.kill()


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize("shape", ["first load", "many transactions", "one transaction"])
def test_backlog_of_any_size_is_applied_in_bounded_memory(
    capture: CaptureSite, places: tuple[Place, ...], shape: str
) -> None:
    """All of it waits for a new lake, or a table with rows takes it: on one machine, and then on a cluster."""
    (capture.folder / "views").mkdir()
    (capture.folder / "views" / "groups.sql").write_text(f"{VIEW}\n")
    places = places[:1] if shape == "many transactions" else places
    capture.sql("create table t (id bigint primary key, body text)")
    daemon = capture.running()
    first = 0 if shape == "first load" else ROWS
    if first:
        capture.sql(f"insert into t select {ROW} from generate_series(1, {ROWS}) n")
        daemon.until_position(capture.wal())
        for place in places:
            applied(capture, place, capture.wal())
    size = (TRANSACTION_MB if shape == "one transaction" else BACKLOG_MB) * 1_000_000
    total = first + max(size // ROW_BYTES // ROWS, 1) * ROWS
    step = total if shape == "one transaction" else ROWS
    for begin in range(first, total, step):
        capture.sql(f"insert into t select {ROW} from generate_series({begin + 1}, {min(begin + step, total)}) n")
    # Some keys twice: what is merged is merged over files of an earlier piece.
    capture.sql(f"update t set body = body || 'x' where id % {max(total // 200, 1)} = 0")
    lsn = capture.wal()
    daemon.until_position(lsn, within_s=WITHIN_S / 3)

    wanted, groups = capture.query(SUMS)[0], sorted(capture.query(VIEW))
    for place in places:
        log, memory = applied(capture, place, lsn)
        print(f"{shape}, {place.name}: {total} rows, {size / 1e6:,.0f} MB; {memory}")
        print("\n".join(line for line in log.splitlines() if "cut_" in line or "loaded" in line)[-6000:])
        assert "sink_waiting" not in log
        lake = Lake(str(place.lake))
        manifest = lake.manifest()
        assert sums_of(str(place.lake), manifest.tables["mirror/public.t"].version) == wanted
        table, state = lake.view("groups", manifest)
        view = pinned(str(place.lake), table, state.version).to_pyarrow_table().to_pylist()
        assert sorted(tuple(row.values()) for row in view) == groups
        if shape != "many transactions":
            assert "cut_in_pieces" in log
        assert ("tables_loaded" in log) == (shape == "first load")


@pytest.mark.timeout(900)
def test_sink_whose_jvm_dies_in_a_cut_finishes_it_in_a_new_one_with_smaller_pieces(
    capture: CaptureSite, tmp_path: Path
) -> None:
    sink: dict[str, Any] = {"kind": "warehouse", "path": str(tmp_path / "lake"), **SMALL, "bytes_max": 8 << 20}
    sections: Sections = {"sinks.lake": sink}
    capture.sql("create table t (id bigint primary key, body text)")
    daemon = capture.running(sections)
    capture.sql(f"insert into t select {ROW} from generate_series(1, 12000) n")
    lsn = capture.wal()
    daemon.until_position(lsn, within_s=120)
    store = ManifestStore(tmp_path / "lake")
    running = Sink(capture.write_config(sections), tmp_path / "sink.log")

    def reached() -> bool:
        assert running.process.poll() is None, running.text()[-3000:]
        current = store.current()
        return current is not None and current.end_lsn >= lsn

    try:
        until(lambda: running.said("cut_in_pieces"), "a cut in pieces begins", within_s=300)
        for pid in running.children():
            os.kill(pid, signal.SIGKILL)
        until(reached, f"the lake at {lsn}", within_s=500)
        log = running.text()
    finally:
        running.kill()

    assert "JVM is gone" in log
    assert "cut_planned_again" in log
    version = Lake(str(tmp_path / "lake")).manifest().tables["mirror/public.t"].version
    assert sums_of(str(tmp_path / "lake"), version) == capture.query(SUMS)[0]


def sums_of(lake: str, version: int) -> tuple[int, int]:
    """Return the result of `SUMS` for the mirror."""
    count = total = 0
    for part in DeltaRs(lake).parts("mirror/public.t", version):
        count += part.num_rows
        for key, body in zip(part["id"].to_pylist(), part["body"].to_pylist(), strict=True):
            total += int(hashlib.md5(f"{key}{body}".encode()).hexdigest()[:8], 16)
    return count, total
