"""Calls a function when a block of code takes too long, with one thread for all blocks of the process.

Capture asks the catalog a few questions about each table. A `threading.Timer` for each of them would start a thread,
which takes longer than PostgreSQL's answer.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cdc.clock import Clock, SystemClock


class Deadlines:
    """Blocks that run now, and when each is late. Thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._running: dict[int, tuple[float, Callable[[], None]]] = {}
        self._wakes_s = math.inf
        self._thread: threading.Thread | None = None

    @contextmanager
    def within(self, seconds: float, late: Callable[[], None]) -> Iterator[None]:
        """Call `late` once if the block takes longer. It must not wait; it is never called after the block."""
        due_s = self._clock.monotonic_s() + seconds
        with self._changed:
            number = next(self._numbers)
            self._running[number] = due_s, late
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
            elif due_s < self._wakes_s:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._running.pop(number, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now_s = self._clock.monotonic_s()
                for number in [number for number, (due_s, _) in self._running.items() if due_s <= now_s]:
                    self._running.pop(number)[1]()
                self._wakes_s = min((due_s for due_s, _ in self._running.values()), default=math.inf)
                self._changed.wait(None if self._wakes_s == math.inf else self._wakes_s - now_s)
