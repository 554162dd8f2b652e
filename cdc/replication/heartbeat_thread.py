"""Runs the operator's heartbeat statement on the source at an interval, on a connection of its own.

The statement advances the WAL of an idle database, and its effect shows how long a change takes to reach the log. If it
fails, capture continues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import psycopg

from cdc.clock import Clock
from cdc.config.secret import Secret
from cdc.errors import InvariantError, TailraceError
from cdc.lsn import Lsn
from cdc.replication.catalog_queries import current_wal
from cdc.replication.connect import Connection, connect, deadline, sever, translate
from cdc.telemetry import log

_STATEMENT_S: Final = 10.0  # a statement that waits longer, e.g. for a lock, has failed
_WRONG: Final = "42"  # SQLSTATE class of statements that are invalid or not permitted
_HINT: Final = "qualify names (search_path is empty), and grant the role the privilege that the statement needs"
_STEP_S: Final = 1.0  # after which a pause notices another interval
_ANSWER_S: Final = 15.0  # a server that does not answer for longer counts as unreachable


class HeartbeatThread:
    """Runs the statement once in `start`, so that an invalid statement is reported at once, then in a thread."""

    def __init__(
        self,
        dsn: Secret,
        statement: str,
        clock: Clock,
        *,
        interval_s: float,
        sent: Callable[[Lsn, float], None],
        failed: Callable[[TailraceError | None], None],
    ) -> None:
        """`sent` receives the LSN below which the effect lies, and when it began; `failed` None on recovery."""
        self._dsn = dsn
        self._statement = statement
        self._clock = clock
        self._interval_s = interval_s
        self._sent = sent
        self._failed = failed
        self._stop = threading.Event()
        self._working = True
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        """Run the statement once, then every `interval_s`. Raises an error that needs an operator, and closes then."""
        self._try()
        self._thread.start()

    def pace(self, interval_s: float) -> None:
        """Replace the interval, from any thread."""
        self._interval_s = interval_s

    def close(self) -> None:
        """Stop the thread at once, also in the middle of a statement."""
        self._stop.set()
        connection = self._connection
        if connection is not None:
            sever(connection)
        if self._thread.is_alive():
            self._thread.join()
        self._hang_up()

    def _run(self) -> None:
        while self._paused():
            # A statement that worked at the start may fail later: the table is dropped, or a privilege is revoked.
            try:
                self._try()
            except TailraceError as error:
                self._lost(error)
            except Exception as error:  # noqa: BLE001 - the thread goes on; the observer reports it
                self._hang_up()
                self._lost(InvariantError(f"capture.heartbeat_query failed: {log.origin(error)}"))

    def _paused(self) -> bool:
        """Wait until the next statement is due. Returns False if the thread must end."""
        began_s = self._clock.monotonic_s()
        while (left_s := began_s + self._interval_s - self._clock.monotonic_s()) > 0:
            if self._clock.wait(self._stop, min(left_s, _STEP_S)):
                return False
        return not self._stop.is_set()

    def _try(self) -> None:
        """Run the statement. Report an error that passes with time; raise any other."""
        try:
            self._beat()
        except TailraceError as error:
            self._hang_up()
            if error.retry != "timed":
                raise
            self._lost(error)
        else:
            if not self._working:
                self._failed(None)
            self._working = True

    def _lost(self, error: TailraceError) -> None:
        self._working = False
        if not self._stop.is_set():
            self._failed(error)

    def _beat(self) -> None:
        if self._connection is None:
            self._connection = connect(self._dsn, application_name="cdc heartbeat")
        connection, began_s = self._connection, self._clock.monotonic_s()
        with deadline(connection, _ANSWER_S):
            try:
                connection.execute(f"set statement_timeout = {int(_STATEMENT_S * 1000)}".encode())
                connection.execute(self._statement.encode())
            except psycopg.Error as error:
                wrong = (error.sqlstate or "").startswith(_WRONG)
                raise translate(error, "run capture.heartbeat_query", hint=_HINT if wrong else "") from error
            lsn = current_wal(connection).before_header()
        self._sent(lsn, began_s)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
