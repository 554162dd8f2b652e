"""How loaded the source is while snapshots read it, and what the load guard makes of that. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

LOAD_PREFIX: Final = "tailrace.load"
"""Prefix of the empty logical messages whose commits the load guard times. Capture never publishes them."""

Signal = Literal["commit_latency", "standby_lag", "io_waits"]
"""What shows that the source is overloaded."""


@dataclass(frozen=True, slots=True)
class LoadReading:
    """One reading of the source. None: not measured, because its limit is 0 or the role may not see it.

    Attributes:
        commit_s: duration of a commit that was flushed, and acknowledged by synchronous standbys. If it was given up,
            the time until then.
        standby_lag_s: the largest lag of a standby; 0 without standbys.
        standby: the name of that standby.
        waiting_count, active_count: active client sessions, and those of them that wait for I/O or internal locks.
        unavailable: signals that the role or the server does not allow to read.
    """

    commit_s: float | None = None
    standby_lag_s: float | None = None
    standby: str = ""
    waiting_count: int | None = None
    active_count: int | None = None
    unavailable: tuple[Signal, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadState:
    """What the load guard does.

    Attributes:
        speed: share of the time in which the reader threads read: 1 is full speed.
        reason: why it is below 1, with value and limit.
        signal: the signal of `reason`.
        reading: the newest reading; None if the source gave none.
    """

    speed: float = 1.0
    reason: str = ""
    signal: Signal | None = None
    reading: LoadReading | None = None
