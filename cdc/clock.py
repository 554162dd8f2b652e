"""The clock, injected wherever time is needed. No other module reads the machine's time."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Time for code at the edges. `monotonic_s` never goes backwards; `wall_s` is for display only."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary fixed moment, never decreasing."""

    def wall_s(self) -> float:
        """Seconds since 1970 UTC. May jump, so no decision depends on it."""

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait for `stop` or the given time. Returns whether `stop` is set."""


class SystemClock:
    """The clock of the machine."""

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    def wall_s(self) -> float:
        """See `Clock`."""
        return time.time()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """See `Clock`."""
        return stop.wait(seconds)
