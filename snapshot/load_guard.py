"""The thread that watches the load of the source while snapshots read it, on a connection of its own.

It only sets a speed (`snapshot.load_control`), and never ends capture: without a reading, snapshots go on. It does
nothing while no snapshot reads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.config.secret import Secret
from cdc.errors import InvariantError, SourceRefused, TailraceError
from cdc.model.load_reading import LoadReading, LoadState, Signal
from cdc.replication.connect import Connection, connect, deadline, sever
from cdc.replication.source_load import (
    STATISTICS_GRANT,
    commit_latency_s,
    may_read_statistics,
    session_waits,
    standby_lag,
)
from cdc.telemetry import log
from snapshot.load_control import Limits, Pace, SpeedControl, pause_s

EVERY_S: Final = 2.0
"""Between two readings."""

_IDLE_S: Final = 10.0  # after the last chunk the guard stops to read, and snapshots are at full speed again
_GIVE_UP_MIN_S: Final = 1.0  # a commit is waited for this long, or for twice its limit
_ANSWER_S: Final = 10.0
_END_S: Final = 2.0
_PAUSE_STEP_S: Final = 0.5  # between checks of the speed during a pause
_APPLICATION_NAME: Final = "cdc load guard"


class LoadObserver(Protocol):
    """Receives what the guard does; implemented by `cdc.telemetry.load_status.LoadStatus`."""

    def load_seen(self, state: LoadState | None) -> None:
        """`state` is None when the guard stops to read, because no snapshot reads."""

    def load_unread(self, cause: TailraceError | None) -> None:
        """The source gave no reading; None: it gives them again."""

    def load_unavailable(self, signals: Sequence[Signal], why: str, command: str) -> None:
        """The role or the server does not allow to read these signals; the others count."""


class LoadGuard:
    """Reads the load from `start` to `close`, and writes the speed to `pace`."""

    def __init__(
        self,
        dsn: Secret,
        clock: Clock,
        limits: Limits,
        pace: Pace,
        *,
        standbys_ignored: Sequence[str] = (),
        observer: LoadObserver,
    ) -> None:
        self._dsn = dsn
        self._clock = clock
        self._limits = limits
        self._pace = pace
        self._ignored = standbys_ignored
        self._observer = observer
        self._control = SpeedControl(limits)
        self._stop = threading.Event()
        self._connection: Connection | None = None
        self._unavailable: set[Signal] = set()
        self._thread = threading.Thread(target=self._run, name="load-guard", daemon=True)

    def start(self) -> None:
        """Start the thread. It reads nothing while no limit is set."""
        self._thread.start()

    def adjust(self, limits: Limits, standbys_ignored: Sequence[str]) -> None:
        """Change the limits, from any thread. Without any, snapshots read at full speed again."""
        self._limits = self._control.limits = limits
        self._ignored = standbys_ignored

    def close(self) -> None:
        """End the thread at once."""
        self._stop.set()
        connection = self._connection
        if connection is not None:
            sever(connection)
        if self._thread.ident is not None:
            self._thread.join(_END_S)  # it may be connecting; it has no state to save

    def _run(self) -> None:
        reads = False
        while not self._clock.wait(self._stop, EVERY_S):
            last_s = self._pace.read_at_s
            if self._limits.any and last_s is not None and self._clock.monotonic_s() - last_s < _IDLE_S:
                reads = True
                self._round()
            elif reads:
                reads = False
                self._control = SpeedControl(self._limits)
                self._pace.state = self._control.state
                self._observer.load_seen(None)
                self._disconnect()
        if reads:
            self._observer.load_seen(None)
        self._disconnect()

    def _round(self) -> None:
        found: LoadReading | None = None
        try:
            found = self._read()
        except TailraceError as error:
            self._lost(error)
        except Exception as error:  # noqa: BLE001 - a guard that fails must not end capture; the observer reports it
            self._lost(InvariantError(f"the load guard failed: {log.origin(error)}"))
        else:
            self._observer.load_unread(None)
        if not self._stop.is_set():
            self._pace.state = self._control.update(found)
            self._observer.load_seen(self._pace.state)

    def _lost(self, error: TailraceError) -> None:
        self._disconnect()
        if not self._stop.is_set():
            self._observer.load_unread(error)

    def _read(self) -> LoadReading:
        if self._connection is None:
            self._connection = connect(self._dsn, application_name=_APPLICATION_NAME)
            with deadline(self._connection, _ANSWER_S):
                self._check_rights(self._connection)
        connection, limits = self._connection, self._limits
        give_up_s = max(_GIVE_UP_MIN_S, 2 * limits.commit_latency_max_ms / 1000)
        commit_s = lag_s = waiting = active = None
        name = ""
        with deadline(connection, _ANSWER_S + give_up_s):
            if self._on("commit_latency", limits.commit_latency_max_ms):
                try:
                    commit_s = commit_latency_s(connection, self._clock, give_up_s=give_up_s)
                except SourceRefused as error:
                    self._forgo(["commit_latency"], error.message, error.command)
            if self._on("standby_lag", limits.standby_lag_max_s):
                name, lag_s = standby_lag(connection, self._ignored)
            if self._on("io_waits", limits.io_waits_max_percent):
                waiting, active = session_waits(connection)
        return LoadReading(commit_s, lag_s, name, waiting, active, tuple(sorted(self._unavailable)))

    def _on(self, signal: Signal, limit: float) -> bool:
        return bool(limit) and signal not in self._unavailable

    def _check_rights(self, connection: Connection) -> None:
        """Find out at every connection, so that a right that was granted counts after a reconnect."""
        may, role = may_read_statistics(connection)
        wanted: list[tuple[Signal, float]] = [
            ("standby_lag", self._limits.standby_lag_max_s),
            ("io_waits", self._limits.io_waits_max_percent),
        ]
        needing = [signal for signal, limit in wanted if limit]
        if may:
            self._unavailable.difference_update(needing)
        elif needing:
            why = f"role {role} may not read the statistics of other sessions"
            self._forgo(needing, why, STATISTICS_GRANT.format(role))

    def _forgo(self, signals: Sequence[Signal], why: str, command: str) -> None:
        self._unavailable.update(signals)
        self._observer.load_unavailable(signals, why, command)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def rest(pace: Pace, clock: Clock, stop: threading.Event, began_s: float) -> None:
    """Pause a reader thread after the chunk that it began at `began_s`; a speed that rises ends the pause earlier."""
    ended_s = clock.monotonic_s()
    while not stop.is_set():
        now_s = pace.read_at_s = clock.monotonic_s()
        left_s = ended_s + pause_s(ended_s - began_s, pace.state.speed) - now_s
        if left_s <= 0:
            return
        clock.wait(stop, min(left_s, _PAUSE_STEP_S))
