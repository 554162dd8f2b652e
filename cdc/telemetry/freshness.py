"""Computes how far a sink is behind PostgreSQL, from what it reports and how far the log was behind. Pure.

A record's time in Kafka is the time of its publication, which is later than its commit. So the lag that a sink reports
is completed by the lag that capture had when the oldest record that is not applied was published.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from cdc.model.run_state import State
from cdc.model.sink_report import SinkReport

_HISTORY: Final = 7200  # readings, one a second


@dataclass(frozen=True, slots=True)
class Reading:
    """The newest report of a worker, and how old it is."""

    report: SinkReport
    age_s: float


class LogLag:
    """Remembers for two hours how far the log was behind PostgreSQL."""

    def __init__(self) -> None:
        self._known: deque[tuple[float, float]] = deque(maxlen=_HISTORY)

    def add(self, now_s: float, behind_s: float) -> None:
        """Add a reading."""
        self._known.append((now_s, behind_s))

    def at(self, moment_s: float) -> float:
        """Return the lag at a moment; the oldest known one for an earlier moment, 0 if none is known."""
        found = self._known[0][1] if self._known else 0.0
        for at_s, behind_s in reversed(self._known):
            if at_s <= moment_s:
                return behind_s
        return found


def behind_log_s(readings: list[Reading]) -> float | None:
    """Return the largest age that a record of the log without effect in the sink may have; None: unknown.

    An upper bound: what came since the last report counts as not applied.
    """
    found = [_behind_s(one) for one in readings]
    return None if not found or None in found else max(behind_s for behind_s in found if behind_s is not None)


def behind_source_s(now_s: float, behind_log_s: float | None, log: LogLag) -> float | None:
    """Return how far the sink is behind PostgreSQL; None: unknown."""
    if behind_log_s is None:
        return None
    return max(log.at(now_s), behind_log_s + log.at(now_s - behind_log_s))


def _behind_s(reading: Reading) -> float | None:
    report = reading.report
    lag_s = report.behind_s if report.lag_seconds is None else report.lag_seconds
    if report.ended or lag_s is None:
        return None
    if report.state == State.CATCHING_UP and report.lag_seconds is not None and not report.lag_records:
        return None  # it waits for its partitions, so it knows of no records
    if report.state == State.STARTING:
        return None
    return lag_s + (report.turn_age_s or 0.0) + reading.age_s
