"""What the load guard does, in /status, in metrics and in the log."""

from __future__ import annotations

import math

from structlog.testing import capture_logs

from cdc.cli.status_text import _slowed
from cdc.errors import SourceUnreachable
from cdc.model.load_reading import LoadReading, LoadState
from cdc.overview.attention import attention_of
from cdc.telemetry.load_status import LoadStatus
from cdc.telemetry.metrics import Metrics

SLOW = LoadState(0.25, "a commit takes 812 ms, limit 500 ms", "commit_latency", LoadReading(0.812))
FULL = LoadState(1.0, "", None, LoadReading(0.002))


def test_slow_down_and_recovery_are_logged_once_each() -> None:
    status = LoadStatus(Metrics())
    with capture_logs() as logs:
        for state in (FULL, SLOW, SLOW, FULL, FULL, SLOW, None):
            status.load_seen(state)

    assert [entry["event"] for entry in logs] == ["snapshot_slowed", "snapshot_full_speed"] * 2
    assert logs[0]["reason"] == SLOW.reason


def test_missing_right_and_lost_connection_are_logged_once() -> None:
    status = LoadStatus(Metrics())
    with capture_logs() as logs:
        for _ in range(3):
            status.load_unavailable(["standby_lag"], "role cdc may not", "grant pg_read_all_stats to cdc")
            status.load_unread(SourceUnreachable("gone"))
        status.load_unread(None)
        status.load_unread(None)

    events = [entry["event"] for entry in logs]
    assert events == ["load_guard_forgoes", "load_guard_interrupted", "load_guard_recovered"]


def test_readings_are_unknown_while_no_snapshot_reads() -> None:
    metrics = Metrics()
    status = LoadStatus(metrics)

    def values() -> list[float]:
        gauges = (metrics.snapshot_speed, metrics.source_commit_seconds, metrics.source_standby_lag)
        return [gauge._value.get() for gauge in gauges]

    assert all(map(math.isnan, values()))
    status.load_seen(SLOW)
    assert values()[:2] == [0.25, 0.812]
    assert math.isnan(values()[2])
    status.load_seen(None)
    assert all(map(math.isnan, values()))
    assert status.document is None


def test_status_document_has_speed_reason_and_what_is_not_available() -> None:
    status = LoadStatus(Metrics())
    status.load_unavailable(["standby_lag"], "role cdc may not", "grant pg_read_all_stats to cdc")

    status.load_seen(LoadState(0.25, SLOW.reason, "commit_latency", LoadReading(0.812, unavailable=("standby_lag",))))

    found = status.document or {}
    assert (found["speed"], found["signal"], found["commit_seconds"]) == (0.25, "commit_latency", 0.812)
    assert found["unavailable"] == {"standby_lag": "role cdc may not"}
    (line,) = attention_of({"state": "RUNNING", "load_guard": found}, [], {})
    assert line.says == f"snapshots read at 25 % of full speed: {SLOW.reason}"
    assert str(_slowed(found)) == f"slowed down to 25 %: {SLOW.reason}"
    assert _slowed(None) is None
