"""Decides how fast snapshots may read from readings of the source's load: slow down at once, recover in steps. Pure.

Additive increase and multiplicative decrease, as in TCP: snapshots find the speed at which the source stays below its
limits, and leave a source that recovers more and more of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from cdc.model.load_reading import LoadReading, LoadState, Signal

SPEED_MIN: Final = 1 / 32
"""The guard never stops a snapshot: a source that is always overloaded would never be captured as a whole."""

PAUSE_MAX_S: Final = 30.0
"""Longest pause after a chunk, however slowly it was read."""

_CONFIRMED: Final = 2  # readings above a limit in a row before the first slow-down: one slow commit may be chance
_RAISE: Final = 0.1  # per good reading: 20 s from the lowest to full speed
_CALM: Final = 0.8  # hysteresis: the speed rises only while every value is below this share of its limit
_BLIND_MAX: Final = 15  # missing readings in a row, 30 s; then the guard knows nothing that justifies a low speed
_ACTIVE_MIN: Final = 8  # active sessions below which the share of waiting ones says nothing


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the settings `[snapshot]`; 0 turns a signal off."""

    commit_latency_max_ms: int = 0
    standby_lag_max_s: float = 0.0
    io_waits_max_percent: int = 0

    @property
    def any(self) -> bool:
        """Whether any signal is on."""
        return bool(self.commit_latency_max_ms or self.standby_lag_max_s or self.io_waits_max_percent)


class Strain(NamedTuple):
    """A signal's value as a share of its limit, and how to say it."""

    share: float
    signal: Signal
    says: str


def strains(reading: LoadReading, limits: Limits) -> Iterator[Strain]:
    """Yield every signal that is on and was measured."""
    limit_ms, lag_max_s, percent_max = (
        limits.commit_latency_max_ms,
        limits.standby_lag_max_s,
        limits.io_waits_max_percent,
    )
    if limit_ms and reading.commit_s is not None:
        took_ms = 1000 * reading.commit_s
        says = f"a commit takes {took_ms:,.0f} ms, limit {limit_ms:,} ms"
        yield Strain(took_ms / limit_ms, "commit_latency", says)
    if lag_max_s and reading.standby_lag_s is not None:
        lag_s = reading.standby_lag_s
        says = f"standby {reading.standby} is {lag_s:,.1f} s behind, limit {lag_max_s:g} s"
        yield Strain(lag_s / lag_max_s, "standby_lag", says)
    waiting, active = reading.waiting_count, reading.active_count
    if percent_max and waiting is not None and active is not None:
        percent = 100 * waiting / active if active >= _ACTIVE_MIN else 0.0
        says = f"{waiting} of {active} active sessions wait for I/O or internal locks, limit {percent_max} %"
        yield Strain(percent / percent_max, "io_waits", says)


class SpeedControl:
    """Turns readings into a speed between SPEED_MIN and 1. Not thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._high_count = 0
        self._blind_count = 0
        self.state = LoadState()

    def update(self, reading: LoadReading | None) -> LoadState:
        """Apply a reading; None if the source gave none. Returns the new state, also as `state`."""
        before = self.state
        speed, reason, signal = before.speed, before.reason, before.signal
        if reading is None:
            self._blind_count += 1
            self._high_count = 0
            if self._blind_count >= _BLIND_MAX:
                speed = min(1.0, speed + _RAISE)
        else:
            self._blind_count = 0
            worst = max(strains(reading, self.limits), default=None)
            if worst is not None and worst.share > 1:
                self._high_count += 1
                if self._high_count >= _CONFIRMED or speed < 1:
                    speed, reason, signal = max(SPEED_MIN, speed / 2), worst.says, worst.signal
            else:
                self._high_count = 0
                if worst is None or worst.share <= _CALM:
                    speed = min(1.0, speed + _RAISE)
        if speed >= 1:
            reason, signal = "", None
        self.state = LoadState(speed, reason, signal, reading)
        return self.state


def pause_s(read_s: float, speed: float) -> float:
    """Return how long a thread pauses after it has read for `read_s`, so that it reads for `speed` of the time."""
    return min(PAUSE_MAX_S, max(0.0, read_s) * (1 / speed - 1))


class Pace:
    """What the load guard and the reader threads share. Every attribute is written by one thread, read by any.

    Attributes:
        state: the newest state of the guard.
        read_at_s: when a chunk was last begun or a pause was last checked; None before.
    """

    def __init__(self) -> None:
        self.state = LoadState()
        self.read_at_s: float | None = None

    @property
    def slowed(self) -> str:
        """Why snapshots are slower than they could be, as in `waits_for`; empty at full speed."""
        state = self.state
        return "" if state.speed >= 1 else f"{GUARDED}, at {100 * state.speed:.0f} % of full speed: {state.reason}"


GUARDED: Final = "the load guard"
"""How the reason in `waits_for` of a snapshot begins that the guard slows down."""
