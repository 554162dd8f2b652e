"""A worker whose loop stands still is ended, and one that was only frozen is not."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from cdc.model.sink_report import STUCK_S, SinkReport, report_of
from sinks.state.stuck_watch import LOOKS_MIN, StuckWatch
from tests.fixtures.servers.manual_clock import ManualClock


def _report(turn_age_s: float, state: str = "CATCHING_UP") -> SinkReport:
    status: dict[str, Any] = {"name": "shop", "sink": "find", "state": state, "turn_age_seconds": turn_age_s}
    return report_of(status, 0, host="here", pid=1)


def _looked(ages_s: list[float], *, every_s: float, state: str = "CATCHING_UP") -> tuple[int, list[str]]:
    ended: list[float] = []
    clock = ManualClock()
    watch = StuckWatch(clock, lambda: ended.append(clock.now_s))
    with capture_logs() as logs:
        for age_s in ages_s:
            watch.see(_report(age_s, state))
            clock.now_s += every_s
    return len(ended), [entry["event"] for entry in logs]


def test_worker_that_stays_stuck_is_logged_and_then_ended() -> None:
    steps = int(STUCK_S) + 1
    ended, logs = _looked([STUCK_S + number for number in range(1, steps + 1)], every_s=1.0)

    assert ended == 1
    assert logs == ["sink_stuck", "sink_ends_stuck"]


def test_worker_that_goes_on_is_not_ended() -> None:
    ages = [STUCK_S + number for number in range(1, 100)]
    ended, logs = _looked([*ages, 0.1, *ages], every_s=1.0)

    assert (ended, logs) == (0, ["sink_stuck", "sink_stuck"])


def test_process_that_was_frozen_is_not_ended_when_it_goes_on() -> None:
    ended, _ = _looked([STUCK_S + 1] * (LOOKS_MIN - 1), every_s=10 * STUCK_S)

    assert ended == 0


def test_worker_that_waits_for_its_store_is_not_stuck() -> None:
    assert _looked([10 * STUCK_S] * 1000, every_s=1.0, state="WAITING") == (0, [])


def test_log_shows_where_the_loop_is() -> None:
    watch = StuckWatch(ManualClock(), lambda: None)
    with capture_logs() as logs:
        watch.see(_report(STUCK_S + 1))

    assert any("test_log_shows_where_the_loop_is" in place for place in logs[0]["at"])
