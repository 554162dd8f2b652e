"""A sink that was down for a long time applies its backlog in bounded memory, whatever the size.

`make lake-backlog` runs this with 2 GB of waiting rows and 1.5 GB in one transaction, with the default settings.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.lake.manifest import ManifestStore
from sinks.warehouse.read.lake_reader import Lake
from tests.fixtures.lake.lake_process import Sink
from tests.fixtures.servers.waiting import until
from tests.spark.conftest import SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.daemon import CaptureSite, Sections

BACKLOG_MB: Final = int(os.environ.get("TAILRACE_LAKE_BACKLOG_MB", "12"))
TRANSACTION_MB: Final = int(os.environ.get("TAILRACE_LAKE_TRANSACTION_MB", "8"))
ROW_BYTES: Final = 2112
ROWS: Final = 1000
WITHIN_S: Final = 3600.0
IS_SMALL: Final = BACKLOG_MB + TRANSACTION_MB < 200
SMALL: Final[dict[str, Any]] = {"bytes_max": 2 << 20, "master": "local[2]", "memory": "1g", "spark": SHORT_LIVED}
VIEW: Final = "select id % 10 as g, count(*) as n, sum(length(body)) as size from t group by id % 10"
ROW: Final = "n, (select string_agg(md5(n::text || '-' || i::text), '') from generate_series(1, 66) i)"
SUMS: Final = "select count(*), sum(('x' || substr(md5(id::text || body), 1, 8))::bit(32)::bigint) from t"


class Memory:
    """Resident memory of a process and its children, sampled."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.peak: tuple[int, ...] = (0,)
        """Bytes of the process and of each child, when their sum was greatest."""

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
        while not over.wait(0.1):
            try:
                children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
                found = (resident(self._pid), *(resident(int(pid)) for pid in children))
            except OSError:
                continue
            if sum(found) > sum(self.peak):
                self.peak = found


def resident(pid: int) -> int:
    """Bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize("shape", ["many transactions", "one transaction"])
def test_backlog_of_any_size_is_applied_in_bounded_memory(capture: CaptureSite, tmp_path: Path, shape: str) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "groups.sql").write_text(f"{VIEW}\n")
    sink: dict[str, Any] = {"kind": "warehouse", "path": str(tmp_path / "lake"), "views": str(tmp_path / "views")}
    sections: Sections = {"sinks.lake": sink | (SMALL if IS_SMALL else {})}
    capture.sql("create table t (id bigint primary key, body text)")
    daemon = capture.running(sections)
    size = (BACKLOG_MB if shape == "many transactions" else TRANSACTION_MB) * 1_000_000
    total = max(size // ROW_BYTES // ROWS, 1) * ROWS
    step = ROWS if shape == "many transactions" else total
    for first in range(0, total, step):
        capture.sql(f"insert into t select {ROW} from generate_series({first + 1}, {first + step}) n")
    # Some keys twice: what is merged is merged over files of an earlier piece.
    capture.sql(f"update t set body = body || 'x' where id % {max(total // 200, 1)} = 0")
    lsn = capture.wal()
    daemon.until_position(lsn, within_s=WITHIN_S / 3)

    store, config = ManifestStore(tmp_path / "lake"), capture.write_config(sections)
    running = Sink(config, tmp_path / "sink.log")
    memory = Memory(running.process.pid)

    def reached() -> bool:
        assert running.process.poll() is None, running.text()[-3000:]
        current = store.current()
        return current is not None and current.end_lsn >= lsn

    try:
        with memory.watched():
            until(reached, f"the lake at {lsn}", within_s=WITHIN_S / 2, every_s=1)
        log = running.text()
    finally:
        running.kill()

    manifest = Lake(str(tmp_path / "lake")).manifest()
    parts = [f"{part / 1e6:,.0f}" for part in memory.peak]
    print(f"{shape}: {total} rows, {size / 1e6:,.0f} MB, peak {sum(memory.peak) / 1e6:,.0f} MB ({', '.join(parts)})")
    print("\n".join(line for line in log.splitlines() if "cut_" in line)[-6000:])
    assert "sink_waiting" not in log
    assert sums_of(str(tmp_path / "lake"), manifest.tables["mirror/public.t"].version) == capture.query(SUMS)[0]
    table, state = Lake(str(tmp_path / "lake")).view("groups", manifest)
    view = pinned(str(tmp_path / "lake"), table, state.version).to_pyarrow_table().to_pylist()
    assert sorted(tuple(row.values()) for row in view) == sorted(capture.query(VIEW))
    if shape == "one transaction" or IS_SMALL:
        assert "cut_in_pieces" in log


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
