"""Decides how long an error that needs an operator is retried before the process ends with it.

A broker that has just started does not know all topics, users and rights yet, and a topic that is a moment old is not
known to every broker. Such errors end capture or a sink only if they last while the broker answers. Every attempt
asks again, through the admin client too. Pure but for the clock.
"""

from __future__ import annotations

from typing import Final

from cdc.clock import Clock
from cdc.errors import BrokerRefused, ProducerFenced, TailraceError, TopicMissing

MISSING_S: Final = 30.0
"""For a topic or partition that the broker does not know."""

REFUSED_S: Final = 15.0
"""For credentials and rights, in a process that has already worked with them: they are loaded as topics are."""

FENCED_REPEAT_S: Final = 300.0
"""A sink that is fenced twice within this time has a rival; once may be a broker restart in mid-transaction."""

INCIDENT_GAP_S: Final = 120.0
"""Without the error for this long, the next one begins another incident."""


class RetryPolicy:
    """Of one process. `retries_fenced`: for sinks, whose work can be repeated; capture tells the cases apart itself."""

    def __init__(self, clock: Clock, *, retries_fenced: bool = False) -> None:
        self._clock = clock
        self._retries_fenced = retries_fenced
        self._worked = False
        self._fenced_s: float | None = None
        self._incident: tuple[type[TailraceError], float, float] | None = None  # class, first and last time

    def worked(self) -> None:
        """The process has started its work, so that its settings were right."""
        self._worked = True

    def interrupted(self) -> None:
        """Something else went wrong, as a broker that does not answer: the time begins again."""
        self._incident = None

    def allows(self, error: TailraceError) -> bool:
        """Whether to retry after this error, which has just occurred. An error that has lasted says for how long."""
        if isinstance(error, ProducerFenced):
            return self._retries_fenced and self._allows_fenced()
        limit_s = self._limit_s(error)
        if limit_s is None:
            return False
        now_s = self._clock.monotonic_s()
        first_s = self._first_s(type(error), now_s)
        self._incident = (type(error), first_s, now_s)
        lasted_s = now_s - first_s
        if lasted_s < limit_s:
            return True
        error.add_place(f"for {lasted_s:.0f} s, while the broker answered")
        return False

    def _limit_s(self, error: TailraceError) -> float | None:
        if isinstance(error, TopicMissing):
            return MISSING_S
        return REFUSED_S if isinstance(error, BrokerRefused) and self._worked else None

    def _first_s(self, kind: type[TailraceError], now_s: float) -> float:
        incident = self._incident
        if incident is None or incident[0] is not kind or now_s - incident[2] > INCIDENT_GAP_S:
            return now_s
        return incident[1]

    def _allows_fenced(self) -> bool:
        now_s = self._clock.monotonic_s()
        before_s, self._fenced_s = self._fenced_s, now_s
        return before_s is None or now_s - before_s > FENCED_REPEAT_S
