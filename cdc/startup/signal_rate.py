"""Limits how many signals are handled per second. The others wait in their topic; none is lost."""

from __future__ import annotations

import threading
from typing import Final

from cdc.clock import Clock

_STEP_S: Final = 1.0  # after which a wait notices another limit
_BURST: Final = 20  # signals that need not wait after a quiet time: what an operator sends by hand


class SignalRate:
    """A rate limiter with a burst. One thread waits."""

    def __init__(self, per_second_max: float, clock: Clock) -> None:
        """`per_second_max`: 0 for no limit."""
        self._interval_s = _interval_s(per_second_max)
        self._clock = clock
        self._due_s = clock.monotonic_s()

    def limit(self, per_second_max: float) -> None:
        """Replace the limit, from any thread; what was handled under the former one does not count."""
        if _interval_s(per_second_max) != self._interval_s:
            self._interval_s = _interval_s(per_second_max)
            self._due_s = min(self._due_s, self._clock.monotonic_s())

    def wait(self, stop: threading.Event) -> bool:
        """Wait until one more signal may be handled. Returns False if `stop` was set first."""
        began_s = self._clock.monotonic_s()
        while (early_s := self._due_s - _BURST * self._interval_s - self._clock.monotonic_s()) > 0:
            if self._clock.wait(stop, min(early_s, _STEP_S)):
                return False
        self._due_s = max(self._due_s, began_s) + self._interval_s
        return True


def _interval_s(per_second_max: float) -> float:
    return 1.0 / per_second_max if per_second_max else 0.0
