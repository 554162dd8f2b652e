"""A deployed `cdc sink run` under load, killed at any moment: another one continues, and the lake is exact."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from sinks.warehouse.lake.manifest import ManifestStore
from tests.fixtures.lake.lake_process import Sink
from tests.fixtures.lake.lake_truth import Truth
from tests.fixtures.lake.lake_workload import BANK, BEGIN, SCHEMA, LakeWork
from tests.fixtures.lake.running_lake import COMMITTER
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until
from tests.spark.conftest import SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.daemon import CaptureSite, Sections

KILLS: Final = int(os.environ.get("TAILRACE_LAKE_KILLS", "1"))
_CUT_S: Final = 300.0  # of a start with a JVM, and a cut; with 300,000 rows it took 150 s at load 6


@pytest.fixture
def sinks() -> Iterator[list[Sink]]:
    """The processes that a test has started; they end with it."""
    started: list[Sink] = []
    yield started
    for sink in started:
        if sink.process.poll() is None:
            sink.kill()


@pytest.mark.timeout(900 + 120 * KILLS)
def test_sink_killed_at_random_moments_under_load_leaves_an_exact_lake(
    capture: CaptureSite, tmp_path: Path, sinks: list[Sink]
) -> None:
    """The next process already waits for the lock, like an operator's standby."""
    lake, chance = tmp_path / "lake", random.Random(seed())
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    sink: dict[str, Any] = {"kind": "warehouse", "path": str(lake), "history": ["public.accounts"], "interval_s": 0.0}
    sink |= {"events_max": 150, "master": "local[2]", "memory": "1g", "spark": SHORT_LIVED}
    sink |= {"committer": os.environ.get(COMMITTER, "auto")}
    sections: Sections = {"capture": {"batch_rows_max": 40, "catalog_check_s": 0.2}, "sinks.lake": sink}
    daemon = capture.running(sections)
    capture.sql(BEGIN)
    config = capture.write_config(sections)
    store, work = ManifestStore(lake), LakeWork(capture.dsn, seed(), makers=BANK)

    def cut() -> int:
        manifest = store.current()
        return manifest.cut if manifest else 0

    def start() -> Sink:
        sinks.append(Sink(config, tmp_path / f"sink-{len(sinks)}.log"))
        return sinks[-1]

    running = start()
    work.allow(60)
    with work.writing():
        for _ in range(KILLS):
            until(lambda: running.said("cut_published"), "a cut of this one", within_s=_CUT_S)  # noqa: B023 - at once
            work.allow(60)
            waiting = start()
            until(lambda: waiting.said("sink_waiting"), "the second waits")  # noqa: B023 - called at once
            time.sleep(chance.uniform(0, 3))  # the moment is what the test is about
            jvms = running.children()
            running.kill()
            assert jvms
            until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in jvms), "its JVM is gone")  # noqa: B023
            running = waiting
    lsn = capture.wal()
    daemon.until_position(lsn)
    until(lambda: cut() and store.at(cut()).end_lsn >= lsn, f"the lake at {lsn}", within_s=2 * _CUT_S)
    until(lambda: running.said("lake_opened"), "the last one is up; Spark takes a while to start", within_s=_CUT_S)
    running.process.terminate()
    assert running.process.wait(90) == 0

    cuts = store.cuts()
    truth = Truth(work.tables(), oracle.transactions([table.table for table in work.tables()]))
    faults = [fault for number in cuts for fault in truth.faults(lake, store.at(number))]
    assert not faults, "\n".join(faults[:10])
    assert cuts == list(range(1, len(cuts) + 1))
