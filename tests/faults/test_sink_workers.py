"""Workers of a sink are frozen, resumed and killed (fault D1): processes on a broker, with a store in a file."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.file_target import FileTarget
from tests.fixtures.sinks.sink_rig import SinkRig, key_bytes
from tests.fixtures.sinks.sink_worker import WorkerProcess, worker_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.running_servers import KafkaServer

SHORT = {"session__timeout__ms": "6000", "heartbeat__interval__ms": "500"}  # the shortest that brokers take


@pytest.fixture
def rig(kafka: KafkaServer, topic_prefix: str) -> SinkRig:
    return SinkRig(kafka.bootstrap, f"{topic_prefix}.public.t", partitions=6)


@contextmanager
def load(rig: SinkRig, keys: int = 60) -> Iterator[None]:
    """Rows all the while."""

    def write(stop: threading.Event) -> None:
        begin = 1000
        while not stop.wait(0.02):
            rig.fill(30, keys=keys, begin=begin)
            begin += 30

    with beside(write):
        yield


def rows(rig: SinkRig) -> dict[bytes, bytes]:
    return {key: json.dumps(row, separators=(",", ":")).encode() for key, row in rig.rows.items()}


def frozen_with_a_bulk(rig: SinkRig, folder: Path, store: FileTarget, workers: list[WorkerProcess]) -> WorkerProcess:
    """The worker that has a request with key 7 in its hands, which it neither made nor gave up."""
    (folder / "hold").write_bytes(key_bytes(7))
    rig.write([(7, {"id": 7, "v": "stale"})])
    held = folder / "held"
    pid = int(until(lambda: held.exists() and held.read_text(), "somebody holds the bulk"))
    (frozen,) = [worker for worker in workers if worker.process.pid == pid]
    frozen.freeze()
    (folder / "hold").unlink()
    return frozen


def thawed_after_its_session(rig: SinkRig, folder: Path, store: FileTarget) -> None:
    with worker_processes(rig, folder, 3, **SHORT) as workers:
        rig.fill(600, keys=60)
        rig.until_level()
        frozen = frozen_with_a_bulk(rig, folder, store, workers)
        with load(rig):
            rig.write([(7, {"id": 7, "v": "newer"}), (8, None)])
            rig.until_level()  # the others have its partitions
        rig.write([(7, {"id": 7, "v": "newest"})])
        rig.until_level()
        before = rig.committed()
        frozen.thaw()
        until((folder / "released").exists, "it has written what it held")
        rig.write((key, {"id": key, "v": "last"}) for key in range(20, 60))
        rig.until_level()

        assert all(rig.committed()[place] >= offset for place, offset in before.items()), "it commits nothing old"
        assert store.rows() == rows(rig)
        assert [worker.end() for worker in workers] == [0, 0, 0]


def test_worker_resumed_after_its_session_during_a_bulk_makes_nothing_stale(rig: SinkRig, tmp_path: Path) -> None:
    thawed_after_its_session(rig, tmp_path, FileTarget(tmp_path))


def test_store_without_version_checks_fails_under_the_same_freeze(rig: SinkRig, tmp_path: Path) -> None:
    (tmp_path / "unguarded").touch()
    with pytest.raises(AssertionError, match="stale"):
        thawed_after_its_session(rig, tmp_path, FileTarget(tmp_path))


def test_killed_workers_lose_nothing_and_order_per_key_holds(rig: SinkRig, tmp_path: Path) -> None:
    store = FileTarget(tmp_path)
    with load(rig):
        with worker_processes(rig, tmp_path, 2, **SHORT) as workers:
            until(lambda: len(store.writers()) == 2, "both write")
            workers[0].kill()
            workers[1].kill()
            before = rig.committed()
        with worker_processes(rig, tmp_path, 1, **SHORT) as more:
            until(lambda: store.writers() == {more[0].process.pid}, "another one has written everything anew")
    with worker_processes(rig, tmp_path, 1, **SHORT):
        rig.until_level()

    assert all(rig.committed()[place] >= offset for place, offset in before.items())
    assert store.rows() == rows(rig)
