"""Counts how much of the time each freshness objective is met, for /status, metrics and the list of troubles.

`cdc.overview.objective_watch` calls `counted` about once a second. The name of capture itself is the empty string.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from cdc.config.objective_settings import Objective
from cdc.telemetry.exposition import UNKNOWN
from cdc.telemetry.metrics import Metrics

WINDOW_S: Final = 28 * 86_400.0
"""The window of every objective: four weeks, so that each has as many weekends."""

FAST_BURN: Final = 14.4
"""Times the sustainable rate of errors; at it, two days use up the budget. https://sre.google/workbook/alerting-on-slos/"""

_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0
_LONG_MINUTES: Final = 60
_SHORT_MINUTES: Final = 5


class _Late:
    """Seconds in which an objective was missed: by minute for an hour, by hour for the window."""

    def __init__(self) -> None:
        self._minutes: deque[tuple[int, float]] = deque(maxlen=_LONG_MINUTES)
        self._hours: deque[tuple[int, float]] = deque(maxlen=int(WINDOW_S / _HOUR_S))

    def add(self, now_s: float, late_s: float) -> None:
        for kept, span_s in ((self._minutes, _MINUTE_S), (self._hours, _HOUR_S)):
            at = int(now_s / span_s)
            if kept and kept[-1][0] == at:
                kept[-1] = (at, kept[-1][1] + late_s)
            else:
                kept.append((at, late_s))

    def minutes(self, now_s: float, count: int) -> float:
        """Return the seconds of the last `count` minutes."""
        return sum(late_s for at, late_s in self._minutes if at > int(now_s / _MINUTE_S) - count)

    def window(self, now_s: float) -> float:
        """Return the seconds of the whole window."""
        return sum(late_s for at, late_s in self._hours if at > int(now_s / _HOUR_S) - WINDOW_S / _HOUR_S)


class _Kept:
    """One objective with its counts."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.behind_s: float | None = None
        self.fresh_s = self.checked_s = 0.0
        self.late = _Late()

    def document(self, name: str, now_s: float) -> dict[str, Any]:
        target, late_s = self.objective.target, self.late.window(now_s)
        return {
            "sink": name,
            "objective_seconds": self.objective.freshness_s,
            "target": target,
            "freshness_seconds": None if self.behind_s is None else round(self.behind_s, 1),
            "fresh": self.behind_s is not None and self.behind_s <= self.objective.freshness_s,
            "checked_seconds": round(self.checked_s),
            "missed_seconds": round(late_s, 1),
            "budget_left": round(1 - late_s / ((1 - target) * WINDOW_S), 4),
            "burns": self._burns(now_s),
        }

    def _burns(self, now_s: float) -> bool:
        """Return whether the last hour and the last five minutes used the budget at the rate of `FAST_BURN`."""
        share = FAST_BURN * (1 - self.objective.target)
        return all(
            self.late.minutes(now_s, count) > share * count * _MINUTE_S for count in (_LONG_MINUTES, _SHORT_MINUTES)
        )


class ObjectiveStatus:
    """Thread-safe. Without objectives it has no series and an empty document."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._now_s = 0.0

    def declare(self, objectives: Mapping[str, Objective]) -> None:
        """Set the objectives, before the first count. Their series exist from now on."""
        metrics = self._metrics
        for name, objective in objectives.items():
            self._kept[name] = _Kept(objective)
            metrics.objective_seconds.labels(name).set(objective.freshness_s)
            metrics.objective_target.labels(name).set(objective.target)
            metrics.freshness_seconds.labels(name).set(UNKNOWN)
            metrics.objective_fresh.labels(name)
            metrics.objective_checked.labels(name)

    def counted(self, now_s: float, took_s: float, behind_s: Mapping[str, float | None]) -> None:
        """Count `took_s` seconds for each objective. `behind_s` is the freshness; None, unknown, counts as missed."""
        metrics = self._metrics
        with self._lock:
            self._now_s = now_s
            for name, kept in self._kept.items():
                kept.behind_s = found = behind_s.get(name)
                fresh = found is not None and found <= kept.objective.freshness_s
                kept.checked_s += took_s
                kept.late.add(now_s, 0.0 if fresh else took_s)
                metrics.objective_checked.labels(name).inc(took_s)
                metrics.objective_fresh.labels(name).inc(took_s if fresh else 0.0)
                metrics.freshness_seconds.labels(name).set(UNKNOWN if found is None else found)

    @property
    def document(self) -> list[dict[str, Any]]:
        """The objectives, for /status; `missed_seconds` and `budget_left` are of the life of this process."""
        with self._lock:
            return [kept.document(name, self._now_s) for name, kept in sorted(self._kept.items())]
