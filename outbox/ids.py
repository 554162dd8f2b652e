"""Generates event ids: UUIDv7 (RFC 9562, 5.7) that increase within a process, so that an index grows at its end.

48 bits of milliseconds are followed by 74 random bits. Within one millisecond, each id is a random step above the
previous one (RFC 9562, 6.2, method 2).

If the clock goes backwards, ids continue from the newest millisecond used, by random steps, until the clock has passed
it. They stay unique and in order; only the time in them stops.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Final

_VERSION: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62
_TAIL_BITS: Final = 74
_TAIL_MAX: Final = (1 << _TAIL_BITS) - 1
_LOW_BITS: Final = 62
_STEP_BYTES: Final = 4  # steps of up to 2^32: 2^41 ids in one millisecond before the next one is used
_START_BYTES: Final = 9  # 72 bits: the tail starts in the lowest quarter of its range, so that steps have room
_MS_MAX: Final = (1 << 48) - 1


class IdSource:
    """Generates ids. Thread-safe. After a fork, the child process starts again with fresh random bits."""

    def __init__(
        self,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`now_ms` returns milliseconds since 1970; `entropy(n)` returns n random bytes."""
        self._now_ms = now_ms
        self._entropy = entropy
        self._lock = threading.Lock()
        self._last_ms = -1
        self._tail = 0

    def next(self) -> uuid.UUID:
        """Return an id that is greater than all previous ids of this source."""
        with self._lock:
            now_ms = min(max(self._now_ms(), 0), _MS_MAX)
            if now_ms > self._last_ms:
                self._last_ms = now_ms
                self._tail = int.from_bytes(self._entropy(_START_BYTES), "big")
            else:
                self._tail += 1 + int.from_bytes(self._entropy(_STEP_BYTES), "big")
                if self._tail > _TAIL_MAX:
                    self._last_ms += 1
                    self._tail = int.from_bytes(self._entropy(_START_BYTES), "big")
            high, low = self._tail >> _LOW_BITS, self._tail & ((1 << _LOW_BITS) - 1)
            return uuid.UUID(int=self._last_ms << 80 | _VERSION | high << 64 | _VARIANT | low)

    def forget(self) -> None:
        """Forget previous ids, as after a fork: the next id starts with fresh random bits."""
        self._lock = threading.Lock()
        self._last_ms, self._tail = -1, 0


_SOURCE: Final = IdSource()
os.register_at_fork(after_in_child=_SOURCE.forget)


def new_id() -> uuid.UUID:
    """Return the next id of this process."""
    return _SOURCE.next()


def time_ms(of: uuid.UUID) -> int | None:
    """Return the milliseconds since 1970 in a UUIDv7; None for other versions."""
    return of.int >> 80 if of.version == 7 else None
