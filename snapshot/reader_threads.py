"""The threads that read: one that looks after the tables, and workers that read chunks, each with a connection.

None of them touches the stream or Kafka. What none can mend is kept as `failure`, which ends capture by the error's own
policy; with the replication session everything here is thrown away and begun anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from cdc.capture.no_snapshots import IDLE_WAIT_S
from cdc.clock import Clock
from cdc.config.secret import Secret
from cdc.errors import InvariantError, SourceRefused, SourceUnreachable, TailraceError
from cdc.lsn import Lsn
from cdc.model.visibility import PgSnapshot
from cdc.replication.blockers import holders
from cdc.replication.connect import Connection, connect, sever
from cdc.replication.table_shape import SourceTable
from cdc.telemetry import log
from snapshot import table_reader
from snapshot.chunk import Chunk, Form
from snapshot.condition import Condition
from snapshot.handover import HandOver
from snapshot.obstacle import Obstacles
from snapshot.snapshot_progress import Rates, WaitReasons, document
from snapshot.throttle import Throttle

_LOOK_S: Final = 0.05  # between looks at what is visible: how late a chunk can be planned
_IN_THE_WAY_S: Final = 0.25  # after somebody's lock was in the way
_LOCKED_S: Final = 0.5  # as long as a look waits for a lock, so that it has half of the time for all else
_OPEN_BYTES_MAX: Final = 96 << 20  # of rows that wait; DESIGN section 6
_OPEN_CHUNKS_MAX: Final = 12
_BEHIND_BYTES_MAX: Final = 64 << 20  # of the stream, before it has the source for itself
_FAILURES_MAX: Final = 3  # in a row, of a thread whose connection broke: then capture starts over
_RETRY_S: Final = 1.0
_DENIED_S: Final = 2.0  # before a table that the role may not read is tried again
_SAMPLE_S: Final = 0.7  # between looks at how far everything is


@dataclass(slots=True)
class Failures:
    """Of one thread: how often its connection broke since it last did what it is for."""

    in_row: int = 0


Tables = Callable[[Connection], Sequence[SourceTable]]
"""The captured tables as the catalog has them now."""


class ReaderThreads:
    """Reads what the desk's merger wants read, until closed. Nothing raises here; see `check`.

    Attributes:
        unreadable: tables that wait because the role may not read all their rows, and the error with the statement.
    """

    def __init__(
        self,
        desk: HandOver,
        dsn: Secret,
        clock: Clock,
        *,
        publication: str,
        tables: Tables,
        workers: int,
        rows_per_s_max: int = 0,
    ) -> None:
        """`rows_per_s_max` is for all workers together; 0 for no limit."""
        self._desk = desk
        self._dsn = dsn
        self._clock = clock
        self._publication = publication
        self._tables = tables
        self._stop = threading.Event()
        self._failure: TailraceError | None = None
        self._connections: list[Connection] = []
        self._connecting = threading.Lock()
        self._started = ""
        self._behind = False
        self._throttle = Throttle(rows_per_s_max)
        self._rates = Rates()
        self._blockers: dict[int, str] = {}
        self._hindrances = Obstacles()
        self._locked_s = 0.0
        self.unreadable: dict[str, SourceRefused] = {}
        self._denied_s: dict[str, float] = {}
        self._sampled_s = 0.0
        names = ["snapshot-tables", *(f"snapshot-{number + 1}" for number in range(workers))]
        works = [self._look_after, *[self._read_on] * workers]
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            for name, work in zip(names, works, strict=True)
        ]

    def start(self, started: str) -> None:
        """`started` is the run of the server that the stream comes from, as `snapshot.table_reader.now` has it."""
        self._started = started
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raise what a thread could not mend."""
        if self._failure is not None:
            raise self._failure

    def report(self) -> list[dict[str, Any]]:
        """What /status says of every table there is or was a snapshot of. From any thread."""
        now_s = self._clock.monotonic_s()
        with self._desk.merging() as merger:
            tables = merger.progress()
        pressure = WaitReasons(self._behind, not self._throttle.open(now_s), self._blockers, self._hindrances.told)
        return [document(one, self._rates.of(now_s, one), pressure) for one in tables]

    def close(self) -> None:
        """End the threads, at once."""
        self._stop.set()
        with self._connecting:
            for connection in self._connections:
                sever(connection)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _guarded(self, work: Callable[[Connection, Failures], None]) -> None:
        """Run `work` on a connection, on another one when that broke."""
        failures = Failures()
        while not self._stop.is_set():
            try:
                with ExitStack() as closing:
                    self._wait_until_active()
                    connection = self._connect(closing)
                    if not self._stop.is_set():
                        work(connection, failures)
                    return
            except SourceUnreachable as error:
                if self._stop.is_set():
                    return
                failures.in_row += 1
                log.get().warning("snapshot_interrupted", attempt=failures.in_row, **log.error_fields(error))
                if failures.in_row >= _FAILURES_MAX:
                    self._failure = self._failure or error
                    return
                self._clock.wait(self._stop, _RETRY_S)
            except TailraceError as error:
                self._failure = self._failure or error
                return
            except Exception as error:
                self._failure = self._failure or InvariantError(f"a snapshot thread broke: {error!r}")
                raise

    def _wait_until_active(self) -> None:
        while not self._desk.active and not self._clock.wait(self._stop, IDLE_WAIT_S):
            pass

    def _connect(self, closing: ExitStack) -> Connection:
        """A connection that `close` severs; one that is made after that is not used any more."""
        connection = connect(self._dsn, application_name=f"cdc {threading.current_thread().name}")
        closing.callback(connection.close)
        with self._connecting:
            self._connections.append(connection)
        closing.callback(self._disconnected, connection)
        return connection

    def _disconnected(self, connection: Connection) -> None:
        with self._connecting:
            self._connections.remove(connection)

    def _look_after(self, connection: Connection, failures: Failures) -> None:
        desk = self._desk
        while not self._clock.wait(self._stop, _LOOK_S if desk.active else IDLE_WAIT_S):
            if not desk.active:
                continue
            now = table_reader.now(connection)
            table_reader.check_same_run(now.started, self._started)
            self._behind = now.inserted > desk.boundary + _BEHIND_BYTES_MAX
            with desk.merging() as merger:
                merger.seen(now.snapshot)
                begun, due = merger.begun(), [*merger.tables_to_plan(), *merger.tables_to_check()]
            self._sample(connection)
            if begun:
                ids = table_reader.open_transaction_ids(connection)
                with desk.merging() as merger:
                    merger.suspect(begun, ids)
                log.get().info("snapshot_begun", tables=len(begun), transactions_waited_for=len(ids))
            if due:
                self._plan(connection, due)
            failures.in_row = 0

    def _plan(self, connection: Connection, names: Sequence[str]) -> None:
        tables = [table for table in self._tables(connection) if table.table in set(names)]
        sights = self._sights(connection, [table for table in tables if table.key])
        gone = set(names) - {table.table for table in tables if table.key}
        with self._desk.merging() as merger:
            for name in gone:
                merger.abandon(name)
            conditions = {name: merger.condition(name) for name in sights}
        for name, condition in conditions.items():
            if condition is not None and not self._fits(connection, sights[name].form, condition):
                del sights[name]
        with self._desk.merging() as merger:
            # Not those that somebody began anew meanwhile.
            due = [name for name in (*merger.tables_to_plan(), *merger.tables_to_check()) if name in sights]
            for name in due:
                merger.plan(name, sights[name].form, sights[name].leaves, self._desk.boundary)
            complete = [name for name in due if merger.states[name] == "complete"]
        for name in sights:
            self._passed(name)
            self.unreadable.pop(name, None)
        for name in gone:
            self.unreadable.pop(name, None)
        for name in gone:
            log.get().info("snapshot_abandoned", table=name, reason="there is no such table to capture any more")
        for name in complete:
            log.get().info("snapshot_complete", table=name)

    def _sights(self, connection: Connection, tables: Sequence[SourceTable]) -> dict[str, table_reader.TableLayout]:
        """Nothing while a published table is locked: the view of what is published waits for every one of them."""
        if self._clock.monotonic_s() < self._locked_s:
            return {}
        now_s = self._clock.monotonic_s()
        readable = [table for table in tables if self._denied_s.get(table.table, now_s) <= now_s]
        try:
            try:
                return table_reader.table_layouts(connection, self._publication, readable)
            except SourceRefused:  # one of them must not keep the others waiting
                return self._sights_one_by_one(connection, readable)
        except table_reader.ReadLater as reason:
            for table in tables:
                self._hindered(table.table, reason)
            self._locked_s = self._clock.monotonic_s() + _LOCKED_S
            return {}

    def _sights_one_by_one(
        self, connection: Connection, tables: Sequence[SourceTable]
    ) -> dict[str, table_reader.TableLayout]:
        """Of those that the role may read; the others are reported, and tried again later."""
        found: dict[str, table_reader.TableLayout] = {}
        for table in tables:
            try:
                found |= table_reader.table_layouts(connection, self._publication, [table])
            except SourceRefused as error:
                if table.table not in self.unreadable:
                    log.get().warning("snapshot_not_allowed", **{**log.error_fields(error), "table": table.table})
                self.unreadable[table.table] = error
                self._denied_s[table.table] = self._clock.monotonic_s() + _DENIED_S
        return found

    def _fits(self, connection: Connection, form: Form, condition: Condition) -> bool:
        try:
            problem = table_reader.condition_problem(connection, form, condition)
        except table_reader.ReadLater as reason:
            self._hindered(form.relation.table, reason)
            return False
        if problem:
            self._end(form.relation.table, condition, problem)
        return not problem

    def _end(self, name: str, condition: Condition | None, why: str) -> None:
        """Stop a snapshot of some rows that cannot be read, which is no reason to stop capture."""
        log.get().warning("snapshot_stopped", table=name, reason=why)
        with self._desk.merging() as merger:
            if name in merger.tracked and merger.selective(name) and merger.condition(name) == condition:
                merger.stop(name)

    def _sample(self, connection: Connection) -> None:
        """From time to time, for people: how fast it is, and who holds it up."""
        now_s = self._clock.monotonic_s()
        if now_s - self._sampled_s < _SAMPLE_S:
            return
        self._sampled_s = now_s
        with self._desk.merging() as merger:
            tables = merger.progress()
        self._rates.look(now_s, tables)
        xids = frozenset().union(*(table.waits_for for table in tables))
        self._blockers = holders(connection, sorted(xids)) if xids else {}

    def _read_on(self, connection: Connection, failures: Failures) -> None:
        while not self._stop.is_set():
            chunk = self._open()
            if chunk is None:
                self._clock.wait(self._stop, _LOOK_S if self._desk.active else IDLE_WAIT_S)
                continue
            try:
                self._read(connection, chunk)
                failures.in_row = 0
            except table_reader.ReadLater as reason:
                self._hindered(chunk.spec.table, reason)
                with self._desk.merging() as merger:
                    if reason.gone:
                        merger.plan_again(chunk)  # else the chunks of a table that is gone keep all others waiting
                    else:
                        merger.give_back(chunk, halve=reason.halve)
                self._clock.wait(self._stop, _IN_THE_WAY_S)
            except SourceRefused as error:
                if not self._signalled(chunk):
                    raise
                self._end(chunk.spec.table, chunk.spec.condition, error.message)
            except BaseException as error:
                expected = isinstance(error, TailraceError) or not isinstance(error, Exception)
                if expected or not self._signalled(chunk):
                    with self._desk.merging() as merger:
                        merger.give_back(chunk)
                    raise
                self._end(chunk.spec.table, chunk.spec.condition, f"it failed: {log.origin(error)}")

    def _signalled(self, chunk: Chunk) -> bool:
        """Whether a chunk is read only because a signal asked for some rows: no mistake in these may stop capture."""
        spec = chunk.spec
        if spec.named or spec.sweep:
            return False
        with self._desk.merging() as merger:
            return spec.table in merger.tracked and merger.selective(spec.table)

    def _hindered(self, table: str, reason: table_reader.ReadLater) -> None:
        """Tried again soon; said once when that has gone on for long."""
        log.get().debug("snapshot_chunk_again", table=table, reason=str(reason))
        if self._hindrances.met(table, str(reason), self._clock.monotonic_s()):
            log.get().warning("snapshot_hindered", table=table, reason=str(reason))

    def _passed(self, table: str) -> None:
        if self._hindrances.passed(table):
            log.get().info("snapshot_goes_on", table=table)

    def _open(self) -> Chunk | None:
        if self._behind:
            return None
        with self._desk.merging() as merger:
            if not self._throttle.open(self._clock.monotonic_s()):
                return None
            if merger.open_count >= _OPEN_CHUNKS_MAX or merger.open_bytes >= _OPEN_BYTES_MAX:
                return None
            spec = merger.next()
            return None if spec is None else merger.open(spec)

    def _read(self, connection: Connection, chunk: Chunk) -> None:
        desk = self._desk

        def taken(snapshot: PgSnapshot, l_hi: Lsn, filenode: int | None, form: Form) -> bool:
            with desk.merging() as merger:
                return merger.taken(chunk, snapshot, l_hi, filenode, form)

        wanted = None
        if chunk.spec.leaf is None:
            key_of, keys = desk.key_of(chunk.spec.form, self._stop), frozenset(chunk.spec.keys)
            if key_of is None:
                return  # the end: what is open dies with the crew
            wanted = partial(_wanted, key_of, keys)
        found = table_reader.read_chunk(connection, chunk, self._publication, self._started, taken, wanted)
        if found is not None:
            self._passed(chunk.spec.table)
            with desk.merging() as merger:
                self._throttle.read(len(found[0]), self._clock.monotonic_s())
                merger.arrived(chunk, *found)


def _wanted(key_of: Callable[[bytes], bytes], keys: frozenset[bytes], line: bytes) -> bool:
    """Whether a line has a key that is asked for."""
    return key_of(line) in keys
