"""Time, as a thing that is handed in: nothing else in the code asks the machine what time it is."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What edges need of time. `monotonic_s` never goes backwards; `wall_s` is for people only."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment, never decreasing."""

    def wall_s(self) -> float:
        """Seconds since 1970 UTC; may jump, so it never decides anything."""

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
