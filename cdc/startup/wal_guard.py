"""Watches the WAL that the slot holds back, every few seconds, in every state of capture.

It runs in a thread with a connection of its own, for as long as the process lives. The catalog watch lives only while
the stream does, but WAL also piles up while capture waits for a broker. The guard only reports, unless
`source.on_wal_pressure` allows it to drop the slot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import psycopg

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import SlotHeld, SourceGap, TailraceError
from cdc.model.wal_reading import WalReading
from cdc.publish.topic_setup import REPAIR
from cdc.replication.connect import Connection, connect, deadline, sever
from cdc.replication.slot import drop_slot, slot_facts
from cdc.replication.wal_pressure import wal_reading
from cdc.startup.start_rules import RESNAPSHOT_HINT
from cdc.telemetry import log
from cdc.telemetry.capture_status import Status

_ANSWER_S: Final = 10.0
_DROP_TRIES: Final = 20  # a reader that was disconnected may reconnect once or twice before the slot is free
_DROP_S: Final = 60.0
_END_S: Final = 2.0
_ENDS_MS: Final = 1000  # for a walsender to end
_APPLICATION_NAME: Final = "cdc wal guard"

T = TypeVar("T")


class WalGuard:
    """Checks from `start` to `close`. If the server does not answer, the next check tries again."""

    def __init__(self, config: Config, clock: Clock, status: Status) -> None:
        self._config = config
        self._clock = clock
        self._status = status
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wal-guard", daemon=True)
        self._connection: Connection | None = None
        self._failure: SourceGap | None = None

    def adopt(self, config: Config) -> None:
        """Take over new limits, from any thread; the next check uses them."""
        self._config = config

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, at once."""
        self._stop.set()
        connection = self._connection
        if connection is not None:
            sever(connection)
        self._thread.join(_END_S)  # it may be connecting to a host that does not answer; it has no state to save

    def guarded(self, start: Callable[[], T]) -> T:
        """Start capture, or raise SourceGap if this guard has dropped the slot."""
        if self._failure is not None:
            raise self._failure
        return start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.check()
            except TailraceError as error:
                log.get().debug("wal_guard_waits", **log.error_fields(error))
                self._disconnect()
            except Exception as error:  # noqa: BLE001 - the guard continues; the age of its last check shows the failure
                log.get().error("wal_guard_failed", error=log.origin(error))
                self._disconnect()
            self._clock.wait(self._stop, self._config.source.wal_check_s)
        self._disconnect()

    def check(self) -> None:
        """Check once. Raises a TailraceError if there was no answer."""
        source = self._config.source
        if self._connection is None:
            self._connection = connect(source.dsn, application_name=_APPLICATION_NAME)
        with deadline(self._connection, _ANSWER_S):
            reading = wal_reading(self._connection, self._config.slot, failover=source.failover)
        if reading is None:
            return
        self._status.wal_seen(
            reading, alarm_bytes=source.wal_alarm_bytes, transaction_alarm_s=source.transaction_alarm_s
        )
        if source.on_wal_pressure == "drop_slot" and reading.kept_bytes >= source.wal_drop_bytes:
            self._drop(self._connection, reading)

    def _drop(self, connection: Connection, reading: WalReading) -> None:
        """Drop the slot to save the server's disk, and let capture end with a GAP that names the unknown range."""
        with deadline(connection, _DROP_S):
            _drop_slot(connection, reading.slot)
        captured = self._status.position
        known = max(reading.confirmed_lsn, captured.end_lsn if captured is not None else reading.confirmed_lsn)
        log.get().error(
            "slot_dropped",
            slot=reading.slot,
            kept_bytes=reading.kept_bytes,
            drop_bytes=self._config.source.wal_drop_bytes,
            known_to=str(known),
            resumes_at=str(reading.current_lsn),
        )
        self._failure = SourceGap(
            f"replication slot {reading.slot!r} was dropped by source.on_wal_pressure, with {reading.kept_bytes} bytes "
            f"of WAL kept for it; what was committed between {known} and {reading.current_lsn} is unknown",
            known_to=known,
            resumes_at=reading.current_lsn,
            hint=RESNAPSHOT_HINT,
            command=REPAIR,
            slot=reading.slot,
        )

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _drop_slot(connection: Connection, slot: str) -> None:
    """Drop the slot, also from under its reader. Raises SlotHeld if the reader reconnects every time."""
    for _ in range(_DROP_TRIES):
        pid = slot_facts(connection, slot).active_pid
        try:
            if pid is not None:
                connection.execute("select pg_terminate_backend(%(pid)s, %(ms)s)", {"pid": pid, "ms": _ENDS_MS})
            drop_slot(connection, slot)
        except (SlotHeld, psycopg.Error) as error:
            log.get().debug("slot_still_held", slot=slot, pid=pid, error=type(error).__name__)
        else:
            return
    raise SlotHeld(f"cannot drop slot {slot!r}: its reader reconnects each time", slot=slot)
