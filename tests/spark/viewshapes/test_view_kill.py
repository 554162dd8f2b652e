"""The same proof with a deployed `cdc sink run`, killed by SIGKILL at random moments under load."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from sinks.warehouse.lake.manifest import ManifestStore
from tests.fixtures.lake.lake_process import Sink
from tests.fixtures.lake.running_lake import COMMITTER
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until
from tests.fixtures.views.view_truth import plan_of
from tests.fixtures.views.view_workload import BEGIN, SCHEMA, TURNS, ViewWork
from tests.spark.conftest import QUICK, SHORT_LIVED
from tests.spark.test_lake_kill import sinks
from tests.spark.viewshapes.test_view_proof import SMALL, TABLES, planned, truth

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.views.view_truth import ViewTruth

__all__ = ["sinks", "truth"]  # fixtures

KILLS: Final = int(os.environ.get("TAILRACE_VIEW_KILLS", "0"))
_CUT_S: Final = 600.0  # of a start with a JVM, and a cut of fifty views, on a busy machine


@pytest.mark.skipif(KILLS == 0, reason="long: make view-proof")
@pytest.mark.timeout(900 + 240 * KILLS)
def test_sink_killed_at_random_moments_leaves_every_view_postgresqls_answer(
    capture: CaptureSite, tmp_path: Path, sinks: list[Sink], truth: ViewTruth
) -> None:
    lake, chance = tmp_path / "lake", random.Random(seed())
    capture.sql(*SCHEMA)
    referee = capture.oracle()
    sink: dict[str, Any] = {"kind": "warehouse", "path": str(lake), "views": str(planned(tmp_path)), "interval_s": 0.0}
    sink |= {"events_max": 150, "master": "local[2]", "memory": "1g", "spark": {**SHORT_LIVED, **QUICK}}
    sink |= {"committer": os.environ.get(COMMITTER, "auto")}
    sections: Sections = {**SMALL, "sinks.lake": sink}
    daemon = capture.running(sections)
    capture.transaction(*BEGIN)
    config = capture.write_config(sections)
    store, work = ManifestStore(lake), ViewWork(capture.dsn, seed(), makers=TURNS[0])

    def cut() -> int:
        manifest = store.current()
        return manifest.cut if manifest else 0

    def start() -> Sink:
        sinks.append(Sink(config, tmp_path / f"sink-{len(sinks)}.log"))
        return sinks[-1]

    running = start()
    with work.writing():
        for number in range(KILLS):
            until(lambda: running.said("cut_published"), "a cut of this one", within_s=_CUT_S)  # noqa: B023 - at once
            work.allow(20, TURNS[number % len(TURNS)])
            time.sleep(chance.uniform(0, 10))  # the moment is what the test is about
            running.kill()
            running = start()
    lsn = capture.wal()
    daemon.until_position(lsn)
    until(lambda: cut() and store.at(cut()).end_lsn >= lsn, f"the lake at {lsn}", within_s=2 * _CUT_S)
    until(lambda: running.said("lake_opened"), "the last one is up", within_s=_CUT_S)
    running.process.terminate()
    assert running.process.wait(60) == 0

    transactions, faults, kept = referee.transactions(TABLES), [], set[str]()
    for number in store.cuts():
        manifest = store.at(number)
        truth.advance(transactions, manifest.end_lsn)
        faults += truth.faults(lake, manifest)
        kept |= {name for name, state in manifest.views.items() if plan_of(state) not in {"", "recompute"}}
    print(
        f"seed {seed()}: {len(store.cuts())} cuts, {KILLS} kills, {work.transactions} transactions, "
        f"{len(kept)} views by keys"
    )
    assert not faults, "\n".join([f"TAILRACE_SEED={seed()}", *faults[:10]])
    assert kept, "no view was kept incrementally; the test is weaker than it says"
