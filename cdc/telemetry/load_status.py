"""What the load guard of snapshots reads and does, for metrics, logs and /status. Written by the guard's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdc.errors import TailraceError
from cdc.model.load_reading import LoadReading, LoadState, Signal
from cdc.telemetry import log
from cdc.telemetry.exposition import UNKNOWN
from cdc.telemetry.metrics import Metrics


class LoadStatus:
    """Implements `snapshot.load_guard.LoadObserver`; logs each incident once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._state: LoadState | None = None
        self._slowed = False
        self._error: TailraceError | None = None
        self._forgone: dict[str, str] = {}

    def load_seen(self, state: LoadState | None) -> None:
        """See `snapshot.load_guard.LoadObserver`."""
        self._state = state
        reading = LoadReading() if state is None or state.reading is None else state.reading
        metrics = self._metrics
        metrics.snapshot_speed.set(UNKNOWN if state is None else state.speed)
        metrics.source_commit_seconds.set(UNKNOWN if reading.commit_s is None else reading.commit_s)
        metrics.source_standby_lag.set(UNKNOWN if reading.standby_lag_s is None else reading.standby_lag_s)
        metrics.source_waiting_sessions.set(UNKNOWN if reading.waiting_count is None else reading.waiting_count)
        slowed = state is not None and state.speed < 1
        if slowed and not self._slowed and state is not None:
            log.get().warning("snapshot_slowed", signal=state.signal, reason=state.reason, speed=round(state.speed, 3))
        elif self._slowed and not slowed:
            log.get().info("snapshot_full_speed")
        self._slowed = slowed

    def load_unread(self, cause: TailraceError | None) -> None:
        """See `snapshot.load_guard.LoadObserver`."""
        if cause is not None and self._error is None:
            log.get().warning("load_guard_interrupted", **log.error_fields(cause))
        elif cause is None and self._error is not None:
            log.get().info("load_guard_recovered")
        self._error = cause

    def load_unavailable(self, signals: Sequence[Signal], why: str, command: str) -> None:
        """See `snapshot.load_guard.LoadObserver`."""
        fresh = [signal for signal in signals if self._forgone.get(signal) != why]
        self._forgone.update(dict.fromkeys(signals, why))
        if fresh:
            log.get().warning("load_guard_forgoes", signals=fresh, reason=why, command=command)

    @property
    def document(self) -> dict[str, Any] | None:
        """`load_guard` of /status; None while no snapshot reads, or all limits are 0."""
        state = self._state
        if state is None:
            return None
        reading = state.reading
        return {
            "speed": round(state.speed, 3),
            "signal": state.signal,
            "reason": state.reason,
            "commit_seconds": _rounded(reading.commit_s if reading else None),
            "standby_lag_seconds": _rounded(reading.standby_lag_s if reading else None),
            "waiting_sessions": reading.waiting_count if reading else None,
            "active_sessions": reading.active_count if reading else None,
            "unavailable": {
                signal: self._forgone.get(signal, "") for signal in (reading.unavailable if reading else ())
            },
            "error": self._error.message if self._error is not None else "",
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
