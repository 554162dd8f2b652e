"""Decides how long to retry an error that normally needs an operator, before the process stops with it.

A broker that has just started does not know all topics, users and rights yet, and a new topic is not known to every
broker at once. Such an error stops capture or a sink only if it lasts while the broker answers. Every attempt asks the
broker again, also through the admin client. Pure except for the clock.
"""

from __future__ import annotations

from typing import Final

from cdc.clock import Clock
from cdc.errors import BrokerRefused, ProducerFenced, TailraceError, TopicMissing

MISSING_S: Final = 30.0
"""Limit for a topic or partition that the broker does not know."""

REFUSED_S: Final = 15.0
"""Limit for rejected credentials or rights in a process that has already worked with them: a broker loads them late."""

FENCED_REPEAT_S: Final = 300.0
"""A sink that is fenced twice within this time has a rival. Once can be a broker restart during a transaction."""

INCIDENT_GAP_S: Final = 120.0
"""After this time without the error, the next one begins a new incident."""


class RetryPolicy:
    """The policy of one process. `retries_fenced` is for sinks, which can repeat work; capture decides by itself."""

    def __init__(self, clock: Clock, *, retries_fenced: bool = False) -> None:
        self._clock = clock
        self._retries_fenced = retries_fenced
        self._worked = False
        self._fenced_s: float | None = None
        self._incident: tuple[type[TailraceError], float, float] | None = None  # class, first and last time

    def worked(self) -> None:
        """Record that the process has started its work, so its credentials and rights were valid."""
        self._worked = True

    def interrupted(self) -> None:
        """Restart the time after another error, for example a broker that does not answer."""
        self._incident = None

    def allows(self, error: TailraceError) -> bool:
        """Return whether to retry after `error`, which has just occurred.

        If the limit is reached, the message of `error` is extended by the time for which it lasted.
        """
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
