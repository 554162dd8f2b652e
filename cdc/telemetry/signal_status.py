"""Whether signals are read, and what became of them, for metrics, logs and /status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc.errors import TailraceError
from cdc.telemetry import log
from cdc.telemetry.metrics import Metrics


class SignalStatus:
    """Implements `cdc.startup.signal_reader.SignalObserver`. Written by the signals thread; logs an incident once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._alive: Callable[[], bool] | None = None
        self._error: TailraceError | None = None
        self._done = 0
        self._refused = 0
        self._next_offset: int | None = None
        metrics.signals_listening.set_function(self._listening)

    def signals_listening(self, alive: Callable[[], bool] | None) -> None:
        """See `cdc.startup.signal_reader.SignalObserver`."""
        self._alive = alive
        if alive is None:
            self._error = None

    def signals_failed(self, cause: TailraceError | None) -> None:
        """See `cdc.startup.signal_reader.SignalObserver`."""
        if cause is None:
            if self._error is not None:
                log.get().info("signals_recovered")
        else:
            self._metrics.signal_failures.inc()
            if self._error is None or type(self._error) is not type(cause):
                log.get().warning("signals_interrupted", **log.error_fields(cause))
        self._error = cause

    def signal_handled(self, *, refused: bool, next_offset: int) -> None:
        """See `cdc.startup.signal_reader.SignalObserver`."""
        self._metrics.signals.labels("refused" if refused else "done").inc()
        self._done += not refused
        self._refused += refused
        self._next_offset = next_offset

    @property
    def document(self) -> dict[str, Any] | None:
        """`signals` of /status; None while signals are off or capture waits."""
        alive, error = self._alive, self._error
        if alive is None:
            return None
        return {
            "listening": alive() and error is None,
            "error": error.message if error is not None else "" if alive() else "the signals thread has stopped",
            "done": self._done,
            "refused": self._refused,
            "next_offset": self._next_offset,
        }

    def _listening(self) -> float:
        alive = self._alive
        return float("nan") if alive is None else float(alive() and self._error is None)
