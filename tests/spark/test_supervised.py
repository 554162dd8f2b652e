"""A deployed `cdc run --with-sinks`: one command, killed in every way, and no process is left running."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.http_probe import metric
from tests.fixtures.servers.supervised_run import children, is_gone, supervised
from tests.fixtures.servers.waiting import until
from tests.spark.conftest import SHORT_LIVED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.servers.supervised_run import Supervised

_START_S: Final = 120.0  # of a JVM beside a capture, on a busy machine


def sections(lake: Path) -> Sections:
    sink: dict[str, Any] = {"kind": "warehouse", "path": str(lake), "interval_s": 0.2, "listen": "127.0.0.1:0"}
    return {"sinks.lake": sink | {"master": "local[1]", "memory": "1g", "spark": SHORT_LIVED}}


def opened(daemon: Supervised, times: int) -> int:
    """Wait until this many processes of the sink have opened the lake; returns the newest one's number."""
    until(lambda: len(daemon.events("lake_opened")) >= times, f"opened {times} times", within_s=_START_S)
    return daemon.sink_pids()[-1]


@pytest.mark.timeout(400)
def test_killed_sink_is_started_again_and_catches_up_and_sigterm_ends_all(capture: CaptureSite, tmp_path: Path) -> None:
    capture.sql("create table t (id int primary key)")
    with supervised(capture, sections(tmp_path / "lake"), "parent") as daemon:
        first = opened(daemon, 1)
        lsn = capture.sql("insert into t select generate_series(1, 10)")
        assert daemon.wait_for("lake", lsn)[0] == 200

        os.kill(first, signal.SIGKILL)
        lsn = capture.sql("insert into t select generate_series(11, 20)")
        second = opened(daemon, 2)
        code, document = daemon.wait_for("lake", lsn)

        assert (code, document["sink"]) == (200, "lake")
        assert second != first
        assert [event["signal"] for event in daemon.events("sink_ended")] == [signal.SIGKILL]
        _own_surface_tells_of_the_lake(daemon, document)
        waited = cdc("wait", "--sink", "lake", "--lsn", lsn, "--json", "-c", daemon._config)
        assert json.loads(waited.out)["cut"] >= document["cut"]

        jvms = children(second)
        assert jvms
        assert daemon.stop() == 0
        assert all(is_gone(pid) for pid in (first, second, *jvms))

    assert len(daemon.events("sink_finished")) == 1, "the second ended in order"
    assert daemon.events("sink_killed") == []
    assert len(daemon.sink_pids()) == 2


@pytest.mark.timeout(400)
def test_sink_does_not_outlive_a_parent_that_was_killed(capture: CaptureSite, tmp_path: Path) -> None:
    capture.sql("create table t (id int primary key)")
    with supervised(capture, sections(tmp_path / "lake"), "parent") as daemon:
        sink = opened(daemon, 1)
        processes = (sink, *children(sink))

        daemon.kill()

        assert len(processes) > 1
        until(lambda: all(is_gone(pid) for pid in processes), "sink and JVM are gone", within_s=120)
    assert len(daemon.events("sink_finished")) == 1, "in order, at the end of its input"


def _own_surface_tells_of_the_lake(daemon: Supervised, reached: dict[str, Any]) -> None:
    lsn, cut = reached["reached"], reached["cut"]
    assert daemon.ask("/livez", sink="lake") == (200, "ok\n")
    until(lambda: daemon.ask("/readyz", sink="lake")[0] == 200, "ready")
    status = json.loads(daemon.ask("/status", sink="lake")[1])
    page = daemon.ask("/metrics", sink="lake")[1]

    assert daemon.ask(f"/sinks/lake/wait?lsn={lsn}", sink="lake")[0] == 200
    assert status["name"] == f"{daemon.status()['name']}.lake"
    assert status["cut"] >= cut
    assert status["records"] >= 10
    assert metric(page, "cdc_sink_cut_number", sink="lake") == status["cut"]
    assert metric(page, "cdc_sink_cut_seconds_count") > 0
    assert daemon.ask("/sinks/pond/wait?lsn=0/1", sink="lake")[0] == 404
