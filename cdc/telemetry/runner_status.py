"""State of a worker of a search or cache sink; implements `sinks.runner.runner_observer.RunnerObserver`.

State, reason and error come from the `Status` that the daemon writes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from cdc.clock import Clock
from cdc.errors import TailraceError
from cdc.model.run_state import State
from cdc.telemetry import log
from cdc.telemetry.capture_status import Status
from cdc.telemetry.readiness import follows_log
from cdc.telemetry.runner_metrics import RunnerMetrics

_SHARED = ("name", "state", "reason", "state_seconds", "error")


class Lag(NamedTuple):
    """The lag of a sink.

    Attributes:
        records: offsets between the applied position and the end, including control records.
        seconds: age of the oldest record that is not applied; 0 when there is none.
        left_s: until Kafka may remove records that are not applied; None: it never does.
    """

    records: int
    seconds: float
    left_s: float | None


class RunnerStatus:
    """Thread-safe. Written by the runner's thread."""

    def __init__(self, daemon: Status, metrics: RunnerMetrics, clock: Clock) -> None:
        self._daemon = daemon
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._totals = {"records": 0, "keys": 0, "refused": 0, "postponed": 0}
        self._positions: Mapping[tuple[str, int], int] = {}
        self._lag: Lag | None = None
        self._waiting = ""
        self._turned_s: float | None = None

    def turned(self) -> None:
        """See `RunnerObserver`."""
        self._turned_s = self._clock.monotonic_s()

    def applied(self, keys: int, records: int) -> None:
        """See `RunnerObserver`."""
        self._metrics.records.inc(records)
        self._metrics.keys.inc(keys)
        self._add(records=records, keys=keys)

    def refused(self, keys: int) -> None:
        """See `RunnerObserver`."""
        self._metrics.refused.inc(keys)
        self._add(refused=keys)

    def postponed(self, keys: int) -> None:
        """See `RunnerObserver`."""
        self._metrics.postponed.inc(keys)
        self._add(postponed=keys)

    def waits(self, reason: str, cause: TailraceError | None) -> None:
        """See `RunnerObserver`. An incident is logged once."""
        self._daemon.enter(State.WAITING, reason, cause)
        if self._waiting != reason:
            self._waiting = reason
            if cause is None:
                log.get().info("sink_waits", reason=reason)
            else:
                log.get().warning("sink_waits", reason=reason, **log.error_fields(cause))

    def goes_on(self) -> None:
        """See `RunnerObserver`."""
        if self._daemon.ready and not self._waiting:
            return
        self._daemon.works()
        if self._waiting:
            log.get().info("sink_goes_on", after=self._waiting)
            self._waiting = ""

    def level(self) -> None:
        """See `RunnerObserver`."""
        self._daemon.caught_up()

    def committed(self, positions: Mapping[tuple[str, int], int], lag: Lag) -> None:
        """See `RunnerObserver`."""
        with self._lock:
            self._positions, self._lag = positions, lag
        self._metrics.partitions.set(len(positions))
        self._metrics.lag_records.set(lag.records)
        self._metrics.lag_seconds.set(lag.seconds)
        self._metrics.left_seconds.set(float("inf") if lag.left_s is None else lag.left_s)

    @property
    def state(self) -> State:
        """The daemon's state."""
        return self._daemon.state

    @property
    def ready(self) -> bool:
        """Whether the sink follows the log."""
        return follows_log(self.state)

    def snapshot(self) -> dict[str, Any]:
        """Return the document of /status. Its keys are part of the interface."""
        daemon = self._daemon.snapshot()
        with self._lock:
            lag, turned_s = self._lag, self._turned_s
            turn_age_s = None if turned_s is None else self._clock.monotonic_s() - turned_s
            return {key: daemon[key] for key in _SHARED} | {
                "turn_age_seconds": None if turn_age_s is None else round(turn_age_s, 1),
                "partitions": len(self._positions) if lag else None,
                "lag_records": lag.records if lag else None,
                "lag_seconds": round(lag.seconds, 1) if lag else None,
                "retention_left_seconds": round(lag.left_s) if lag and lag.left_s is not None else None,
                **self._totals,
            }

    def _add(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                self._totals[name] += count
