"""Waits until a sink holds everything up to an LSN: `cdc wait`, and /sinks/<sink>/wait of every HTTP surface.

How far a sink is comes from a `Look` that is handed in; what a sink is made of is not known here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from cdc.clock import Clock
from cdc.errors import UsageError
from cdc.lsn import Lsn

LOOK_EVERY_S: Final = 0.05
"""How late an answer may be; a manifest is read in less than a millisecond."""

_SHARED_S: Final = LOOK_EVERY_S / 2  # shorter, so that whoever waits alone sees something new each time


@dataclass(frozen=True, slots=True)
class Reach:
    """A sink's newest published cut: it holds every transaction that committed before `end_lsn`, and no other."""

    cut: int
    end_lsn: Lsn


Look: TypeAlias = Callable[[], Reach | None]
"""How far a sink is now; None before its first cut. Raises SinkError when that cannot be told."""


def wanted_lsn(text: str) -> Lsn:
    """The LSN somebody waits for, as pg_current_wal_insert_lsn() says it. Raises UsageError."""
    try:
        return Lsn.parse(text).before_header()
    except ValueError as error:
        raise UsageError(f"{text!r} is no LSN", hint="as 0/1B014F8") from error


def is_at(reach: Reach | None, lsn: Lsn) -> bool:
    """Whether what is held reaches `lsn`."""
    return reach is not None and reach.end_lsn >= lsn


def await_reach(look: Look, lsn: Lsn, timeout_s: float, clock: Clock, stop: threading.Event) -> Reach | None:
    """Look until `lsn` is reached, the time is up or `stop`; returns what was seen last. Raises what `look` raises."""
    ends_s = clock.monotonic_s() + timeout_s
    while True:
        reach = look()
        left_s = ends_s - clock.monotonic_s()
        if is_at(reach, lsn) or left_s <= 0 or clock.wait(stop, min(LOOK_EVERY_S, left_s)):
            return reach


class SharedLook:
    """A `Look` for many at once: however many wait, the sink is looked at 40 times a second at most. Thread-safe."""

    def __init__(self, look: Look, clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: Reach | None = None
        self._seen_s: float | None = None

    def __call__(self) -> Reach | None:
        """See `Look`."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._seen_s is None or now_s - self._seen_s >= _SHARED_S:
                self._seen = self._look()
                self._seen_s = self._clock.monotonic_s()
            return self._seen
