"""Computes records per second of sinks from the totals in their reports. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from cdc.overview.sink_facts import SinkFacts

_WINDOW_S: Final = 12.0  # reports come every 2 s from a child process, every 10 s by way of Kafka
_OLD_S: Final = 30.0  # a rate that is older is unknown
_SAME_S: Final = 0.5  # two ages of one report differ by less


class Rates:
    """Follows the totals of all sinks. One thread at a time."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def add(self, now_s: float, sinks: Iterable[SinkFacts]) -> None:
        """Record the totals of the newest reports; `now_s` is a monotonic time."""
        for sink in sinks:
            if sink.records is None or sink.age_s is None:
                continue
            at_s, points = now_s - sink.age_s, self._seen.setdefault(sink.name, deque())
            if points and sink.records < points[-1][1]:  # the worker was restarted, or another one reported
                points.clear()
            if not points or at_s - points[-1][0] > _SAME_S:
                points.append((at_s, sink.records))
            while len(points) > 2 and at_s - points[1][0] >= _WINDOW_S:
                points.popleft()

    def now(self, now_s: float) -> dict[str, float]:
        """Return records per second of each sink with two recent reports."""
        found = {}
        for name, points in self._seen.items():
            (first_s, first), (last_s, last) = points[0], points[-1]
            if last_s > first_s and now_s - last_s <= _OLD_S:
                found[name] = round((last - first) / (last_s - first_s), 1)
        return found
