"""An open START_REPLICATION: reads frames, sends confirmations, and answers the server with a timer.

It owns one non-blocking replication connection through libpq (`psycopg.pq`). A lock covers single libpq calls, never a
wait, so that the status timer can send while the reader is stuck behind a slow broker. Without a status the server ends
the connection after wal_sender_timeout.

Of a frame it reads only the position in its header.

https://www.postgresql.org/docs/18/protocol-replication.html
"""

from __future__ import annotations

import select
import struct
import threading
from dataclasses import dataclass
from typing import Final, Literal

import psycopg
from psycopg import pq

from cdc.clock import Clock
from cdc.config.secret import Secret
from cdc.errors import InvariantError, SourceUnreachable, TailraceError
from cdc.lsn import Lsn
from cdc.replication.connect import REPLICATION_SESSION, connect_replication, sever, text_encoding
from cdc.replication.error_mapping import translate, translate_sqlstate
from cdc.telemetry import log
from cdc.wire.frame import standby_status

_FRAMES_MAX: Final = 1000  # frames a read returns: 0.3 ms under the lock
_BYTES_MAX: Final = 1 << 20  # and their bytes
_STATUS_MAX_S: Final = 10.0
_REPLY_S: Final = 0.05  # with a request every 50 ms, an idle server flushes and reports its last WAL within 150 ms
_WAL_END: Final = struct.Struct(">Q").unpack_from
_KEEPALIVE_TAG: Final = 107
_MESSAGE_AT: Final = 25  # the message inside XLogData
_SILENT_PERIODS: Final = 3  # status periods without a frame after which the connection counts as dead


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The result of IDENTIFY_SYSTEM, and the pid of the walsender."""

    system_identifier: str
    timeline: int
    flushed: Lsn
    database: str
    backend_pid: int


class ReplicationSession:
    """Implements `cdc.contracts.ReplicationStream`. Open, identify, start, then read; close from any thread."""

    def __init__(self, dsn: Secret, *, application_name: str, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._timer: threading.Thread | None = None
        self._received = Lsn(0)
        self._flushed = Lsn(0)
        self._quiet_s = 0.0
        self._requested_s = 0.0
        self._status_s = _STATUS_MAX_S
        self._want_write = False
        self._over = False
        self._failure: TailraceError | None = None
        self._connection = connect_replication(dsn, application_name=application_name)
        self._pg = self._connection.pgconn
        try:
            for statement in REPLICATION_SESSION:
                self._execute(statement, "set up the replication session")
            encoding = text_encoding(self._pg)
            self._execute(f"set client_encoding = '{encoding}'", "set up the replication session")
            self.identity = self._identify()
            self._status_s = self._status_period()
        except TailraceError:
            self._connection.close()
            raise

    def start(self, slot: str, publication: str, at: Lsn, *, origin: Literal["any", "none"] = "any") -> None:
        """Begin to stream from `at`. The slot is the lock: raises SlotHeld if another process streams from it.

        With `origin` none, the stream leaves out changes that have a replication origin; servers before 16 refuse that.

        The server silently moves up a position below the slot's confirmed_flush_lsn, so check that first.
        """
        quoted = '"' + publication.replace('"', '""') + '"'
        options = "proto_version '1', messages 'true', publication_names '{}'".format(quoted.replace("'", "''"))
        if origin != "any":
            options += f", origin '{origin}'"
        command = f'START_REPLICATION SLOT "{slot}" LOGICAL {at} ({options})'
        result = self._pg.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._refused(result, f"stream from slot {slot!r}", slot=slot)
        self._pg.nonblocking = 1
        self._received = self._flushed = at
        self._timer = threading.Thread(target=self._keep_alive, name="replication-status", daemon=True)
        self._timer.start()

    def synchronise(self, slot: str) -> None:
        """Let an existing slot be synchronised to standbys (PostgreSQL 17). Call before `start`; same errors."""
        result = self._pg.exec_(f'ALTER_REPLICATION_SLOT "{slot}" (FAILOVER true)'.encode())
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise self._refused(result, f"synchronise slot {slot!r} to standbys", slot=slot)

    def read(self, wait_s: float) -> list[bytes]:
        """See `cdc.contracts.ReplicationStream.read`."""
        frames = self._drain()
        if not frames and wait_s > 0:
            began = self._clock.monotonic_s()
            self._wait(wait_s)
            frames = self._drain()
            if not frames:
                self._quiet_s += self._clock.monotonic_s() - began
                if self._quiet_s > _SILENT_PERIODS * self._status_s:
                    raise SourceUnreachable(f"PostgreSQL has sent nothing for {self._quiet_s:.0f} s")
        if frames:
            self._quiet_s = 0.0
            self._note_received(frames)
        return frames

    def confirm(self, lsn: Lsn) -> None:
        """See `cdc.contracts.ReplicationStream.confirm`."""
        received = min(lsn, self._received)
        if received > self._flushed:
            self._flushed = received
            self._send_status(reply_requested=False)

    def request_reply(self) -> None:
        """See `cdc.contracts.ReplicationStream.request_reply`."""
        now_s = self._clock.monotonic_s()
        if now_s - self._requested_s >= _REPLY_S:
            self._requested_s = now_s
            self._send_status(reply_requested=True)

    @property
    def confirmed(self) -> Lsn:
        """The position that PostgreSQL may discard, as last reported to it."""
        return self._flushed

    def abandon(self) -> None:
        """Cut the stream from any thread, even if the reader is stuck behind a broker, and give it an error."""
        sever(self._connection)

    def close(self) -> None:
        """End the stream. The slot is free a moment later. Safe to repeat."""
        self._stop.set()
        if self._timer is not None and self._timer is not threading.current_thread():
            self._timer.join()
        with self._lock:
            self._connection.close()

    def _note_received(self, frames: list[bytes]) -> None:
        """Read the received position from keepalives and commits. A row may have a lower one than the commit before it.

        Searches backwards, up to the newest commit: no earlier position is higher.
        """
        for frame in reversed(frames):
            if frame[0] == _KEEPALIVE_TAG:
                self._received = max(self._received, Lsn(_WAL_END(frame, 1)[0]))
            elif frame[_MESSAGE_AT : _MESSAGE_AT + 1] == b"C":
                self._received = max(self._received, Lsn(_WAL_END(frame, 9)[0]))
                return

    def _drain(self) -> list[bytes]:
        frames: list[bytes] = []
        size = 0
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise self._ended()
            pg = self._pg
            get = pg.get_copy_data
            try:
                fresh = False
                while len(frames) < _FRAMES_MAX and size < _BYTES_MAX:
                    length, data = get(1)
                    if length > 0:
                        frames.append(bytes(data))
                        size += length
                        fresh = False
                    elif length < 0 or fresh:
                        self._over = length < 0
                        break
                    else:
                        pg.consume_input()  # at most 16 kB at a time; the rest is read next
                        fresh = True
            except psycopg.Error as error:
                if frames:
                    return frames
                raise translate(error, "read the stream") from error
        return frames

    def _ended(self) -> TailraceError:
        """Return why COPY ended, from the result that follows it."""
        result = self._pg.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return self._refused(result, "read the stream")
        return SourceUnreachable("PostgreSQL ended the stream")

    def _wait(self, wait_s: float) -> None:
        try:
            fd = self._pg.socket
            writable = [fd] if self._want_write else []
            select.select([fd], writable, [], wait_s)
            if writable:
                with self._lock:
                    self._flush()
        except (OSError, ValueError, psycopg.Error) as error:
            raise SourceUnreachable(f"the replication connection broke: {error}") from error

    def _keep_alive(self) -> None:
        while not self._clock.wait(self._stop, self._status_s):
            try:
                self._send_status(reply_requested=True)
            except TailraceError as error:
                self._failure = error
                return
            except Exception as error:  # noqa: BLE001 - without a status the server would end the stream unexplained
                self._failure = InvariantError(f"sending a status to PostgreSQL failed: {log.origin(error)}")
                return

    def _send_status(self, *, reply_requested: bool) -> None:
        now_us = int(self._clock.wall_s() * 1e6)
        status = standby_status(
            written=self._received, flushed=self._flushed, now_us=now_us, reply_requested=reply_requested
        )
        try:
            with self._lock:
                self._pg.put_copy_data(status)
                self._flush()
        except psycopg.Error as error:
            raise translate(error, "send a status to PostgreSQL") from error

    def _flush(self) -> None:
        """Flush, with the lock held. What the socket does not take now is sent after the next wait."""
        self._want_write = self._pg.flush() == 1

    def _identify(self) -> ServerIdentity:
        row = self._execute("IDENTIFY_SYSTEM", "identify the server")
        pid = self._execute("select pg_catalog.pg_backend_pid()", "identify the walsender")
        return ServerIdentity(
            system_identifier=row[0],
            timeline=int(row[1]),
            flushed=Lsn.parse(row[2]),
            database=row[3],
            backend_pid=int(pid[0]),
        )

    def _status_period(self) -> float:
        row = self._execute(
            "select setting::float8 / 1000 from pg_catalog.pg_settings where name = 'wal_sender_timeout'",
            "read wal_sender_timeout",
        )
        timeout_s = float(row[0])
        return min(_STATUS_MAX_S, timeout_s / 3) if timeout_s > 0 else _STATUS_MAX_S

    def _execute(self, command: str, doing: str) -> list[str]:
        """Run one statement and return its first row as text."""
        result = self._pg.exec_(command.encode())
        if result.status not in {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}:
            raise self._refused(result, doing)
        if result.ntuples == 0:
            return []
        return [(result.get_value(0, column) or b"").decode() for column in range(result.nfields)]

    def _refused(self, result: pq.abc.PGresult, doing: str, **facts: object) -> TailraceError:
        def field(name: pq.DiagnosticField) -> str:
            return (result.error_field(name) or b"").decode(errors="replace")

        state = field(pq.DiagnosticField.SQLSTATE)
        if not state:
            return SourceUnreachable(f"cannot {doing}: {self._pg.get_error_message()}")
        detail = field(pq.DiagnosticField.MESSAGE_DETAIL)
        return translate_sqlstate(state, field(pq.DiagnosticField.MESSAGE_PRIMARY), detail, doing, **facts)
