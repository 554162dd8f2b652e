"""Limits how many signals are handled per second. The others wait in their topic; none is lost."""

from __future__ import annotations

import threading
from typing import Final

from cdc.clock import Clock

_BURST: Final = 20  # signals that need not wait after a quiet time: what an operator sends by hand


class SignalRate:
    """A rate limiter with a burst. Not thread-safe."""

    def __init__(self, per_second_max: float, clock: Clock) -> None:
        """`per_second_max`: 0 for no limit."""
        self._interval_s = 1.0 / per_second_max if per_second_max else 0.0
        self._clock = clock
        self._due_s = clock.monotonic_s()

    def wait(self, stop: threading.Event) -> bool:
        """Wait until one more signal may be handled. Returns False if `stop` was set first."""
        now_s = self._clock.monotonic_s()
        early_s = self._due_s - _BURST * self._interval_s - now_s
        if early_s > 0 and self._clock.wait(stop, early_s):
            return False
        self._due_s = max(self._due_s, now_s) + self._interval_s
        return True
