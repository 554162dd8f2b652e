"""The threads that read tables: one plans them, the others read chunks; each has its own connection.

None of them uses the stream or Kafka. An error that they cannot handle ends capture through `check`, by the policy of
its class. They end with the replication session; the next session starts new ones.
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
from snapshot.load_control import Pace
from snapshot.load_guard import rest
from snapshot.obstacle import Obstacles
from snapshot.snapshot_progress import Rates, WaitReasons, document
from snapshot.throttle import Throttle

_POLL_S: Final = 0.05  # between checks of what is visible; delays the planning of a table
_RETRY_CHUNK_S: Final = 0.25  # pause after a lock prevented a read
_LOCKED_S: Final = 0.5  # pause after a lock timeout of the same length, so that half of the time is left for other work
_OPEN_BYTES_MAX: Final = 96 << 20  # of rows that wait to join
_OPEN_CHUNKS_MAX: Final = 12
_BEHIND_BYTES_MAX: Final = 64 << 20  # lag of the stream above which no chunk is read
_FAILURES_MAX: Final = 3  # broken connections of one thread in a row, before capture restarts
_RETRY_S: Final = 1.0
_DENIED_S: Final = 2.0  # pause before a table that the role may not read is tried again
_SAMPLE_S: Final = 0.7  # between samples of the progress


@dataclass(slots=True)
class Failures:
    """How often the connection of one thread broke since its last success."""

    in_row: int = 0


Tables = Callable[[Connection], Sequence[SourceTable]]
"""Returns the captured tables as the catalog has them now."""


class ReaderThreads:
    """Reads the chunks that the merger plans, until closed. The threads raise nothing; see `check`.

    Attributes:
        unreadable: tables whose rows the role may not all read, with the error and the statement that grants it.
    """

    def __init__(
        self,
        handover: HandOver,
        dsn: Secret,
        clock: Clock,
        *,
        publication: str,
        tables: Tables,
        workers: int,
        rows_per_s_max: int = 0,
        pace: Pace,
    ) -> None:
        """`rows_per_s_max` limits all workers together; 0 for no limit. `pace` is what the load guard allows."""
        self._handover = handover
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
        self._pace = pace
        self._rates = Rates()
        self._blockers: dict[int, str] = {}
        self._obstacles = Obstacles()
        self._locked_s = 0.0
        self.unreadable: dict[str, SourceRefused] = {}
        self._denied_s: dict[str, float] = {}
        self._sampled_s = 0.0
        self._workers = self._readers = workers
        self._threads = [self._thread("snapshot-tables", self._plan_tables)]
        self._threads += [self._thread(f"snapshot-{number}", self._read_chunks) for number in range(1, workers + 1)]

    def start(self, started: str) -> None:
        """Start the threads. `started` is the run of the server that the stream comes from (`ServerState.started`)."""
        self._started = started
        for thread in self._threads:
            thread.start()

    def adjust(self, *, workers: int, rows_per_s_max: int) -> None:
        """Take over new limits while the threads run. A thread that is too many ends after its chunk."""
        with self._handover.merging():
            self._throttle.limit(rows_per_s_max)
        with self._connecting:
            self._workers = workers
            missing = 0 if self._stop.is_set() else max(0, workers - self._readers)
            self._readers += missing
            names = [f"snapshot-{len(self._threads) + number}" for number in range(missing)]
            made = [self._thread(name, self._read_chunks) for name in names]
            self._threads += made
            for thread in made:
                thread.start()

    def _thread(self, name: str, work: Callable[[Connection, Failures], None]) -> threading.Thread:
        return threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)

    def _is_surplus(self) -> bool:
        """Whether the calling reader is one too many; it must end then."""
        with self._connecting:
            surplus = self._readers > self._workers
            self._readers -= surplus
        return surplus

    def check(self) -> None:
        """Raise the error with which a thread ended."""
        if self._failure is not None:
            raise self._failure

    def report(self) -> list[dict[str, Any]]:
        """Return the entry in /status of every table that has or had a snapshot. Any thread may call this."""
        now_s = self._clock.monotonic_s()
        with self._handover.merging() as merger:
            tables = merger.progress()
        limited = not self._throttle.open(now_s)
        pressure = WaitReasons(self._behind, limited, self._blockers, self._obstacles.reported, self._pace.slowed)
        return [document(one, self._rates.of(now_s, one), pressure) for one in tables]

    def close(self) -> None:
        """End the threads at once."""
        self._stop.set()
        with self._connecting:
            for connection in self._connections:
                sever(connection)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _guarded(self, work: Callable[[Connection, Failures], None]) -> None:
        """Run `work` on a connection; reconnect when it breaks."""
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
                self._failure = self._failure or InvariantError(f"a snapshot thread failed: {error!r}")
                raise

    def _wait_until_active(self) -> None:
        while not self._handover.active and not self._clock.wait(self._stop, IDLE_WAIT_S):
            pass

    def _connect(self, closing: ExitStack) -> Connection:
        """Connect. `close` severs the connection; a connection made after that is not used."""
        connection = connect(self._dsn, application_name=f"cdc {threading.current_thread().name}")
        closing.callback(connection.close)
        with self._connecting:
            self._connections.append(connection)
        closing.callback(self._disconnected, connection)
        return connection

    def _disconnected(self, connection: Connection) -> None:
        with self._connecting:
            self._connections.remove(connection)

    def _plan_tables(self, connection: Connection, failures: Failures) -> None:
        handover = self._handover
        while not self._clock.wait(self._stop, _POLL_S if handover.active else IDLE_WAIT_S):
            if not handover.active:
                continue
            now = table_reader.now(connection)
            table_reader.check_same_run(now.started, self._started)
            self._behind = now.inserted > handover.boundary + _BEHIND_BYTES_MAX
            with handover.merging() as merger:
                merger.seen(now.snapshot)
                begun, due = merger.plans.begun(), [*merger.plans.tables_to_plan(), *merger.plans.tables_to_check()]
            self._sample(connection)
            if begun:
                ids = table_reader.open_transaction_ids(connection)
                with handover.merging() as merger:
                    merger.plans.suspect(begun, ids)
                log.get().info("snapshot_begun", tables=len(begun), transactions_waited_for=len(ids))
            if due:
                self._plan(connection, due)
            failures.in_row = 0

    def _plan(self, connection: Connection, names: Sequence[str]) -> None:
        there = {(table.table, table.oid): table for table in self._tables(connection) if table.key}
        with self._handover.merging() as merger:
            wanted = {name: (name, merger.tables[name].relation) for name in names if name in merger.tables}
        layouts = self._layouts(connection, [there[table] for table in wanted.values() if table in there])
        gone = [name for name, table in wanted.items() if table not in there]
        with self._handover.merging() as merger:
            for name in gone:
                merger.requests.abandon(name)
            layouts = {name: one for name, one in layouts.items() if merger.tables.has(name, one.form.relation.oid)}
            conditions = {name: merger.tables[name].condition for name in layouts}
        for name, condition in conditions.items():
            if condition is not None and not self._fits(connection, layouts[name].form, condition):
                del layouts[name]
        with self._handover.merging() as merger:
            # Skip tables whose snapshot was begun again meanwhile.
            plans = merger.plans
            layouts = {name: one for name, one in layouts.items() if merger.tables.has(name, one.form.relation.oid)}
            due = [name for name in (*plans.tables_to_plan(), *plans.tables_to_check()) if name in layouts]
            for name in due:
                plans.plan(name, layouts[name].form, layouts[name].leaves, self._handover.boundary)
            complete = [name for name in due if merger.states[name] == "complete"]
        for name in layouts:
            self._passed(name)
            self.unreadable.pop(name, None)
        for name in gone:
            self.unreadable.pop(name, None)
        for name in gone:
            log.get().info("snapshot_abandoned", table=name, reason="the name has no such table now")
        for name in complete:
            log.get().info("snapshot_complete", table=name)

    def _layouts(self, connection: Connection, tables: Sequence[SourceTable]) -> dict[str, table_reader.TableLayout]:
        """Return the layouts of tables; none while a published table is locked, because the view waits for all."""
        if self._clock.monotonic_s() < self._locked_s:
            return {}
        now_s = self._clock.monotonic_s()
        readable = [table for table in tables if self._denied_s.get(table.table, now_s) <= now_s]
        try:
            try:
                return table_reader.table_layouts(connection, self._publication, readable)
            except SourceRefused:  # one table must not delay the others
                return self._layouts_one_by_one(connection, readable)
        except table_reader.ReadLater as reason:
            for table in tables:
                self._obstructed(table.table, reason)
            self._locked_s = self._clock.monotonic_s() + _LOCKED_S
            return {}

    def _layouts_one_by_one(
        self, connection: Connection, tables: Sequence[SourceTable]
    ) -> dict[str, table_reader.TableLayout]:
        """Return the layouts of tables that the role may read; report the others, and retry them later."""
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
            self._obstructed(form.relation.table, reason)
            return False
        if problem:
            self._end(form.relation.table, condition, problem)
        return not problem

    def _end(self, name: str, condition: Condition | None, why: str) -> None:
        """Stop a snapshot of selected rows that cannot be read; capture goes on."""
        log.get().warning("snapshot_stopped", table=name, reason=why)
        with self._handover.merging() as merger:
            if (
                name in merger.tables.live
                and merger.tables[name].selective
                and merger.tables[name].condition == condition
            ):
                merger.requests.stop(name)

    def _sample(self, connection: Connection) -> None:
        """Update rates and blockers for /status from time to time."""
        now_s = self._clock.monotonic_s()
        if now_s - self._sampled_s < _SAMPLE_S:
            return
        self._sampled_s = now_s
        with self._handover.merging() as merger:
            tables = merger.progress()
        self._rates.sample(now_s, tables)
        xids = frozenset().union(*(table.waits_for for table in tables))
        self._blockers = holders(connection, sorted(xids)) if xids else {}

    def _read_chunks(self, connection: Connection, failures: Failures) -> None:
        while not self._stop.is_set() and not self._is_surplus():
            chunk = self._open()
            if chunk is None:
                self._clock.wait(self._stop, _POLL_S if self._handover.active else IDLE_WAIT_S)
                continue
            began_s = self._pace.read_at_s = self._clock.monotonic_s()
            try:
                self._read(connection, chunk)
                failures.in_row = 0
                rest(self._pace, self._clock, self._stop, began_s)
            except table_reader.ReadLater as reason:
                self._obstructed(chunk.spec.table, reason)
                with self._handover.merging() as merger:
                    if reason.gone:
                        merger.chunks.plan_again(chunk)  # otherwise chunks of a dropped table would delay all others
                    else:
                        merger.chunks.give_back(chunk, halve=reason.halve)
                self._clock.wait(self._stop, _RETRY_CHUNK_S)
            except SourceRefused as error:
                if not self._signalled(chunk):
                    raise
                self._end(chunk.spec.table, chunk.spec.condition, error.message)
            except BaseException as error:
                expected = isinstance(error, TailraceError) or not isinstance(error, Exception)
                if expected or not self._signalled(chunk):
                    with self._handover.merging() as merger:
                        merger.chunks.give_back(chunk)
                    raise
                self._end(chunk.spec.table, chunk.spec.condition, f"it failed: {log.origin(error)}")

    def _signalled(self, chunk: Chunk) -> bool:
        """Whether a chunk belongs to a request for selected rows; an error in such a request must not stop capture."""
        spec = chunk.spec
        if spec.named or spec.sweep:
            return False
        with self._handover.merging() as merger:
            return spec.table in merger.tables.live and merger.tables[spec.table].selective

    def _obstructed(self, table: str, reason: table_reader.ReadLater) -> None:
        """Log an obstacle; as a warning, once, if it has lasted for long."""
        log.get().debug("snapshot_chunk_again", table=table, reason=str(reason))
        if self._obstacles.met(table, str(reason), self._clock.monotonic_s()):
            log.get().warning("snapshot_hindered", table=table, reason=str(reason))

    def _passed(self, table: str) -> None:
        if self._obstacles.passed(table):
            log.get().info("snapshot_goes_on", table=table)

    def _open(self) -> Chunk | None:
        if self._behind:
            return None
        with self._handover.merging() as merger:
            if not self._throttle.open(self._clock.monotonic_s()):
                return None
            if len(merger.chunks) >= _OPEN_CHUNKS_MAX or merger.chunks.size >= _OPEN_BYTES_MAX:
                return None
            spec = merger.plans.next_chunk()
            chunk = None if spec is None else merger.chunks.open(spec)
        if chunk is not None:
            chunk.began_s = self._clock.wall_s()
        return chunk

    def _read(self, connection: Connection, chunk: Chunk) -> None:
        handover = self._handover

        def taken(snapshot: PgSnapshot, l_hi: Lsn, filenode: int | None, form: Form) -> bool:
            with handover.merging() as merger:
                return merger.chunks.taken(chunk, snapshot, l_hi, filenode, form)

        wanted = None
        if chunk.spec.leaf is None:
            key_of, keys = handover.key_of(chunk.spec.form, self._stop), frozenset(chunk.spec.keys)
            if key_of is None:
                return  # the threads are closing
            wanted = partial(_wanted, key_of, keys)
        found = table_reader.read_chunk(connection, chunk, self._publication, self._started, taken, wanted)
        if found is not None:
            self._passed(chunk.spec.table)
            with handover.merging() as merger:
                self._throttle.read(len(found[0]), self._clock.monotonic_s())
                merger.chunks.arrived(chunk, *found)


def _wanted(key_of: Callable[[bytes], bytes], keys: frozenset[bytes], line: bytes) -> bool:
    """Whether a line has one of the requested keys."""
    return key_of(line) in keys
