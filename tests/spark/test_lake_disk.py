"""A disk that is full in the middle of a cut: the sink names it and waits, and then goes on where it was."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from sinks.warehouse.lake.manifest import ManifestStore
from sinks.warehouse.read.lake_reader import Lake
from tests.fixtures.faults.limits import small_disk
from tests.fixtures.lake.lake_process import Sink
from tests.fixtures.servers.waiting import until
from tests.spark.test_lake_backlog import ROW, SMALL, SUMS, sums_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite

pytestmark = pytest.mark.timeout(1200)
DISK_BYTES: Final = 192 << 20  # Spark copies its jars there; the rest is filled by the test
WITHIN_S: Final = 500.0


@contextmanager
def loading(capture: CaptureSite, path: Path, spark: dict[str, str]) -> Iterator[Sink]:
    """A sink that begins to load a table of 12 MB in pieces."""
    capture.sql("create table t (id bigint primary key, body text)")
    daemon = capture.running()
    capture.sql(f"insert into t select {ROW} from generate_series(1, 6000) n")
    daemon.until_position(capture.wal())
    sink: dict[str, Any] = {"kind": "warehouse", "path": str(path), **SMALL, "spark": {**SMALL["spark"], **spark}}
    running = Sink(capture.write_config({"sinks.lake": sink}), capture.folder / "sink.log")
    try:
        yield running
    finally:
        running.kill()


def finished(running: Sink, store: ManifestStore, lsn: int) -> None:
    def reached() -> bool:
        assert running.process.poll() is None, running.text()[-3000:]
        current = store.current()
        return current is not None and current.end_lsn >= lsn

    until(reached, "the lake is loaded", within_s=WITHIN_S)


def written(running: Sink, store: ManifestStore) -> int:
    """Return how many pieces of the load are finished."""
    assert running.process.poll() is None, running.text()[-3000:]
    assert store.current() is None, "the load is over before the disk was filled"
    pending = store.pending()
    return 0 if pending is None else pending.written


def events(running: Sink, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in running.raw().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def test_full_disk_of_sparks_temporary_data_is_named_and_waited_for(capture: CaptureSite, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    store = ManifestStore(lake)
    with (
        small_disk(tmp_path / "disk", DISK_BYTES) as disk,
        loading(capture, lake, {"spark.local.dir": str(disk.folder)}) as running,
    ):
        done = until(lambda: written(running, store), "a piece is finished", within_s=WITHIN_S)
        disk.fill()
        until(lambda: running.said("sink_waiting"), "the sink waits", within_s=WITHIN_S)
        waiting = events(running, "sink_waiting")[0]
        assert store.current() is None, "readers see nothing of a load that is not finished"
        disk.free()
        finished(running, store, capture.wal())

    assert "the disk with Spark's temporary data is full" in waiting["message"]
    assert "spark.local.dir" in waiting["hint"]
    first, *later = events(running, "cut_in_pieces")
    assert first["written"] == 0
    assert later[-1]["written"] >= done, "no piece is applied a second time"
    version = Lake(str(lake)).manifest().tables["mirror/public.t"].version
    assert sums_of(str(lake), version) == capture.query(SUMS)[0]


def test_full_disk_of_a_lake_is_named_and_waited_for(capture: CaptureSite, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        lake = disk.folder / "lake"
        store = ManifestStore(lake)
        with loading(capture, lake, {}) as running:
            until(lambda: running.said("sink_waiting"), "the sink waits", within_s=WITHIN_S)
            waiting = events(running, "sink_waiting")[0]
            assert store.current() is None, "readers see nothing of a load that is not finished"
            disk.resize(DISK_BYTES)
            finished(running, store, capture.wal())

        assert "No space left on device" in waiting["message"]
        assert "free space" in waiting["hint"]
        version = Lake(str(lake)).manifest().tables["mirror/public.t"].version
        assert sums_of(str(lake), version) == capture.query(SUMS)[0]
