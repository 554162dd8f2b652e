"""Lets tables join or leave while capture runs: publishes, captures and reads new ones, or leaves them out.

The thread of the catalog watch calls `check`. It judges all selected tables as a start does
(`cdc.replication.eligibility`), adds new ones to the publication and reports those that are left out, with a reason.
The rest runs on the capture thread, as a side writer of the pipeline (`cdc.contracts.SideWriter`). Topic, schema record
and identity of a table that joined are written with the next commit.

A snapshot reads the rows that a new table already has. `cdc.capture.ddl_watch` begins it, because the table is a
finding there; `check` begins that of a table whose key came back. A table without a key is copied before its changes
are published. Only a start does that, so capture starts over for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from cdc.capture.ddl_watch import DdlWatch
from cdc.capture.table_planner import TablePlanner
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.left_out import LeftOut
from cdc.model.topic_names import data_topic
from cdc.publish.publisher import KafkaPublisher
from cdc.replication import catalog_queries
from cdc.replication.catalog_watch import CatalogWatch
from cdc.replication.connect import Connection
from cdc.replication.eligibility import Judgement, judge, not_addable
from cdc.replication.publication import PublicationFacts, add_tables, publication_facts
from cdc.replication.table_shape import SourceTable
from cdc.startup.identity_record import IdentityRecord
from cdc.startup.refused_forms import RefusedForms
from cdc.startup.snapshot_setup import Snapshots
from cdc.startup.source_identity import Source
from cdc.startup.topic_check import LedgerTopics
from cdc.telemetry import log
from snapshot.table_reader import unreadable

_RETRY_S: Final = 15.0  # after the server refused to add a table
_PACE: Final = 50  # checks take at most a fiftieth of the time, however many tables there are


class JoinObserver(Protocol):
    """Receives the tables that are left out; for logs, metrics and status. Must not block or raise."""

    def tables_left_out(self, found: Sequence[LeftOut]) -> None:
        """`found` are all tables that source.tables selects and that are not captured."""


class TableJoins:
    """The tables that join and leave during one start.

    Attributes:
        over: set if capture must start over for a table.
        outbox_left_out: the outbox, if it is left out. It joins at a start, once it is published.
    """

    def __init__(
        self,
        config: Config,
        source: Source,
        planner: TablePlanner,
        snapshots: Snapshots,
        accounts: LedgerTopics,
        publisher: KafkaPublisher,
        identity: IdentityRecord,
        ddl: DdlWatch,
        clock: Clock,
        observer: JoinObserver,
    ) -> None:
        """`source` has the tables that the start captures; `planner` says which relations must be skipped."""
        self._ddl = ddl
        self.over = threading.Event()
        self._config = config
        self._planner = planner
        self._snapshots = snapshots
        self._accounts = accounts
        self._publisher = publisher
        self._identity = identity
        self._clock = clock
        self._observer = observer
        self._outbox = 0 if source.outbox is None else source.outbox.oid
        self._captured = {table.oid: table.table for table in source.tables}
        self._refused = {one.oid for one in source.left_out}
        self._unreadable = {one.oid: one for one in source.left_out if one.reason == "not_readable"}
        outbox = config.outbox.table if config.outbox is not None else ""
        self.outbox_left_out = [one for one in source.left_out if one.table == outbox]
        self._refused_forms = RefusedForms()
        self._lock = threading.Lock()
        self._joining: dict[str, tuple[SourceTable, PublicationFacts, Lsn | None]] = {}
        # Tables of these names have, or had, a topic. If one joins, keys of an earlier table must be swept from it.
        self._passed_over = {one.table for one in source.left_out} | set(planner.topic_keys)
        self._passed_over -= set(self._captured.values())
        self._left: set[str] = set()
        self._tried: dict[int, tuple[float, SourceTable, str]] = {}
        self._unread = list(snapshots.unread)
        self._next_check_s = float("-inf")
        self._settled: tuple[str, int] | None = None
        self._left_out: list[LeftOut] = []
        planner.leave = self._passes_over
        observer.tables_left_out(source.left_out)

    # Called by the thread of the catalog watch.

    def check(self, connection: Connection, watch: CatalogWatch) -> None:
        """Let new tables join, and report those that are left out. Raises SourceError if the catalog cannot be read."""
        began_s = self._clock.monotonic_s()
        if began_s < self._next_check_s:
            return
        config, version = self._config, self._version(connection)
        if version == self._settled and not self._planner.left_out:
            self._report()
            return
        with catalog_queries.one_snapshot(connection, "check the tables"):
            tables = catalog_queries.tables_matching(
                connection, config.source.tables, config.source.keyless, config.source.keys
            )
            facts = publication_facts(connection, config.publication)
        if facts is None:
            return  # the watch reports it
        left_out = self._still_unreadable(connection, tables)
        waiting = {one.oid for one in left_out}
        judged = self._judge([table for table in tables if table.oid not in waiting], facts)
        left_out += judged.left_out
        if judged.to_add and not self._must_start_over(judged.to_add):
            left_out += self._add(connection, judged.to_add)
            facts = publication_facts(connection, config.publication) or facts
        there = [table for table in judged.captured if table.oid in facts.tables]
        unfit = self._unfit_for_topic(there)
        left_out += unfit
        out = {one.oid for one in left_out}
        with self._lock:
            self._passed_over.update(one.table for one in left_out)
        names = {table.table for table in there}
        joining = [table for table in there if table.oid not in out and self._captured.get(table.oid) != table.table]
        with self._lock:
            # A name that a captured table had until now may belong to a new table already.
            formers = {self._captured[table.oid] for table in joining if table.oid in self._captured}
            self._passed_over |= formers & {table.table for table in joining if table.oid not in self._captured}
        for table in joining:
            self._join(table, facts, connection, names)
        self._forget(tables, out, watch)
        self._snapshots.resume_abandoned([table for table in there if table.oid not in out], connection)
        self._watch_all(facts, watch)
        self._left_out = left_out
        self._report()
        calm = not (judged.to_add or joining or waiting or self._tried or self._snapshots.abandoned())
        self._settled = version if calm else None
        self._next_check_s = self._clock.monotonic_s() + _PACE * (self._clock.monotonic_s() - began_s)

    def _version(self, connection: Connection) -> tuple[str, int]:
        """Return what the next check depends on, except for tables that wait for something else than the catalog.

        It is read before everything else, so what changes meanwhile is seen by the next check.
        """
        return catalog_queries.visible_transactions(connection), self._planner.form_count

    def _report(self) -> None:
        self._observer.tables_left_out([*self._left_out, *self.outbox_left_out, *self._snapshots.unreadable()])

    def settle(self) -> None:
        """Begin snapshots of tables that are captured again, unless a DDL finding has begun them already."""
        with self._lock:
            unread, self._unread = self._unread, []
        for table, lsn in unread:
            if table.key and self._config.snapshot.wants(table.table):
                self._snapshots.join(table, lsn)
            else:
                self._ddl.rejoined(table.table, lsn)

    def _add(self, connection: Connection, tables: Sequence[SourceTable]) -> list[LeftOut]:
        """Add tables to the publication. Returns those that the server refused, now or a moment ago."""
        now_s, name = self._clock.monotonic_s(), self._config.publication
        waiting = {
            table.oid
            for table in tables
            if table.oid in self._tried
            and self._tried[table.oid][1] == table
            and now_s - self._tried[table.oid][0] < _RETRY_S
        }
        refused = add_tables(connection, name, [table for table in tables if table.oid not in waiting])
        self._tried = {oid: tried for oid, tried in self._tried.items() if oid in waiting}
        self._tried |= {table.oid: (now_s, table, refused[table.oid]) for table in tables if table.oid in refused}
        return [not_addable(table, name, why) for _, table, why in self._tried.values()]

    def _judge(self, tables: Sequence[SourceTable], facts: PublicationFacts) -> Judgement:
        others = [table for table in tables if table.oid != self._outbox]
        config, keys = self._config, self._planner.topic_keys
        return judge(others, facts, name=config.publication, create=config.source.create, topic_keys=keys)

    def _still_unreadable(self, connection: Connection, tables: Sequence[SourceTable]) -> list[LeftOut]:
        """Return tables without a key that wait for a right to be read. Capture starts over once one is readable."""
        waiting = [table for table in tables if table.oid in self._unreadable]
        refused = unreadable(connection, waiting) if waiting else {}
        if len(refused) < len(waiting) and not self.over.is_set():
            readable = [table.table for table in waiting if table.table not in refused]
            log.get().info("capture_starts_over", tables=readable[:20], reason="readable")
            self.over.set()
        return [self._unreadable[table.oid] for table in waiting]

    def _must_start_over(self, added: Sequence[SourceTable]) -> bool:
        """Return whether one of them must be copied before its changes are published, which only a start does."""
        new = [
            table
            for table in added
            if not table.key and self._config.snapshot.wants(table.table) and table.oid not in self._refused
        ]
        if new and not self.over.is_set():
            log.get().info("capture_starts_over", tables=[table.table for table in new][:20], reason="no key")
            self.over.set()
        return bool(new)

    def _unfit_for_topic(self, tables: Sequence[SourceTable]) -> list[LeftOut]:
        """Return tables whose relations the planner skips; others that it refused join again, and it decides again."""
        stay, again = self._refused_forms.sort(tables, self._planner.left_out, self._has_topic)
        for table in again:
            self._planner.left_out.pop(table.table, None)
            self._captured.pop(table.oid, None)
        return stay

    def _has_topic(self, table: SourceTable) -> bool:
        return self._accounts.exists(data_topic(self._config.name, table.namespace, table.name))

    def _join(
        self, table: SourceTable, facts: PublicationFacts, connection: Connection, names: Collection[str]
    ) -> None:
        former = self._captured.get(table.oid)
        self._captured[table.oid] = table.table
        self._snapshots.knows(table)
        with self._lock:
            if former is not None:
                self._left.add(former)
                if former not in names:
                    self._passed_over.add(former)
            again = table.table in self._passed_over
            self._passed_over.discard(table.table)
            self._joining[table.table] = table, facts, catalog_queries.current_wal(connection) if again else None
        log.get().info("table_joined", table=table.table)

    def _forget(self, tables: Sequence[SourceTable], out: set[int], watch: CatalogWatch) -> None:
        """Stop watching tables that are no longer captured: they may leave the publication."""
        selected = {table.oid for table in tables}
        gone = {oid for oid in self._captured if oid not in selected or oid in out}
        for oid in gone:
            name = self._captured.pop(oid)
            with self._lock:
                self._passed_over.add(name)
                self._left.add(name)
        if gone:
            watch.watch({oid: known for oid, known in watch.watched.items() if oid not in gone})

    def _watch_all(self, facts: PublicationFacts, watch: CatalogWatch) -> None:
        new = {
            oid: (name, facts.tables[oid])
            for oid, name in self._captured.items()
            if oid in facts.tables and (oid not in watch.watched or watch.watched[oid][0] != name)
        }
        if new:
            watch.watch({**watch.watched, **new})

    # Called by the capture thread.

    def due(self) -> bool:
        """See `cdc.contracts.SideWriter.due`."""
        return bool(self._joining or self._left)

    def write(self, position: StreamPosition) -> bool:
        """See `cdc.contracts.SideWriter.write`."""
        with self._lock:
            joining, self._joining = self._joining, {}
            left, self._left = self._left - set(dict(self._captured).values()), set()
        for name in left:
            self._identity.table_left(name)
        for name, (table, published, unread_to) in joining.items():
            records = self._planner.introduce([table], published.columns, position.end_lsn)
            if name in self._planner.left_out:
                continue
            topic = data_topic(self._config.name, table.namespace, table.name)
            if self._planner.open(name, table.oid, topic, compacted=bool(table.key)) is None:
                continue
            facts = self._accounts.facts(topic)
            if facts is not None:
                self._identity.topic_opened(topic, facts)
            member = published.tables.get(table.oid, 0)
            self._identity.table_joined(name, table.oid, member)
            read = bool(table.key) and self._config.snapshot.wants(name) and bool(member)
            self._publisher.tables.setdefault(name, "snapshotting" if read else "complete")
            self._publisher.write([], records)
            if unread_to is not None:
                with self._lock:
                    self._unread.append((table, unread_to))
        return False

    def written(self) -> None:
        """See `cdc.contracts.SideWriter.written`."""

    def _passes_over(self, table: str) -> None:
        """The stream shows the table in a form that cannot be written: its rows are skipped from here on."""
        log.get().warning("table_passed_over", **self._planner.left_out[table].document())
        self._identity.table_left(table)
        with self._lock:
            self._passed_over.add(table)
            self._joining.pop(table, None)


class EitherEvent(threading.Event):
    """An event that is also set while another event or condition is."""

    def __init__(self, other: threading.Event, is_over: Callable[[], bool]) -> None:
        super().__init__()
        self._other = other
        self._is_over = is_over

    def is_set(self) -> bool:
        """Return whether this event, the other event or the condition is set."""
        return super().is_set() or self._other.is_set() or self._is_over()
