"""Ends the process of a worker whose loop stands still, so that its supervisor starts it again.

A call into a client library can fail to return: twice, a restart of Kafka left a worker of the search sink in one for
the ten minutes of a test. A worker may be killed at any time, because its offsets are those of what it applied.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Final

from cdc.clock import Clock
from cdc.errors import EXIT_FAILED
from cdc.model.sink_report import STUCK, STUCK_S, SinkReport
from cdc.telemetry import log

LOOKS_MIN: Final = 30
"""A process that was frozen looks stuck when it goes on. It is ended only after it was seen this often meanwhile."""


class StuckWatch:
    """Looks at the reports of a worker. Thread-safe."""

    def __init__(self, clock: Clock, end: Callable[[], None] = lambda: os._exit(EXIT_FAILED)) -> None:
        self._clock = clock
        self._end = end
        self._loop = threading.main_thread()
        self._lock = threading.Lock()
        self._since_s: float | None = None
        self._looks = 0

    def see(self, report: SinkReport) -> None:
        """Log where a stuck loop is, and end the process if it stays there for two more minutes."""
        with self._lock:
            if report.shown != STUCK:
                self._since_s, self._looks = None, 0
                return
            now_s = self._clock.monotonic_s()
            if self._since_s is None:
                self._since_s = now_s
                log.get().error("sink_stuck", seconds=report.turn_age_s, at=self._where())
            self._looks += 1
            if now_s - self._since_s < STUCK_S or self._looks < LOOKS_MIN:
                return
        log.get().error("sink_ends_stuck", seconds=report.turn_age_s, at=self._where())
        self._end()

    def _where(self) -> list[str]:
        """Return the calls of the loop, the innermost last; names and lines only."""
        frame = sys._current_frames().get(self._loop.ident or 0)  # noqa: SLF001 - the only way to another thread's stack
        return [f"{one.name} {one.filename.rpartition('/')[2]}:{one.lineno}" for one in traceback.extract_stack(frame)]
