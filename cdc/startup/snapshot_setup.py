"""Creates the snapshots of a start: decides which tables must be read, and starts the reader threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from cdc.capture.ddl_watch import DdlWatch
from cdc.capture.table_planner import TablePlanner
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.left_out import LeftOut
from cdc.model.progress_record import Identity
from cdc.model.signal_record import SignalsRecord
from cdc.model.snapshot_record import SnapshotRecord
from cdc.model.table_facts import TableFacts
from cdc.model.topic_names import data_topic
from cdc.progress.restore import Restored
from cdc.publish.live_keys import StaleKeys
from cdc.replication import catalog_queries
from cdc.replication.connect import Connection
from cdc.replication.table_shape import SourceTable
from cdc.startup.signal_reader import SignalListener, listener
from cdc.startup.topic_check import LedgerTopics
from cdc.telemetry import log
from cdc.telemetry.capture_status import Status
from snapshot import table_reader
from snapshot.handover import HandOver
from snapshot.keyless_rule import CopyFilter, KeylessCopy
from snapshot.load_control import Limits, Pace
from snapshot.load_guard import LoadGuard
from snapshot.merger import Merger
from snapshot.reader_threads import ReaderThreads
from snapshot.sweep import Bounds
from snapshot.sweep_reader import SweepThread

_AHEAD_BYTES: Final = 2 << 20  # like other readers beside a running capture
_SWEPT_AT_ONCE: Final = 1_000  # keys that a chunk looks up, by their index
_SWEPT_IN_AVRO: Final = 20_000  # for these it reads the whole table (`snapshot.key_filter`)


class Snapshots:
    """Merger, hand-over and reader threads of one replication session; the pipeline uses `hand_over`.

    Attributes:
        unread: tables that joined at this start and are not read, and where the WAL was then.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        tables: Sequence[SourceTable],
        restored: Restored,
        records: Mapping[str, SnapshotRecord],
        planner: TablePlanner,
        copies: Mapping[str, KeylessCopy],
        accounts: LedgerTopics,
        *,
        epoch: int,
        seen_to: Lsn,
    ) -> None:
        """Continue incomplete snapshots of `records`, and begin those of tables that were never read, if configured.

        A table that was not captured at the last start, or had another pg_class.oid then, is read from scratch and
        swept. Its topic may have keys of another table, or keys that were deleted meanwhile.

        `copies` are those of tables without a key; `seen_to` is the WAL position after `tables` were read from the
        catalog.
        """
        self._config = config
        self._clock = clock
        self._listener: SignalListener | None = None
        self._unreport: Callable[[], None] = lambda: None
        self._tables = tables
        self._keyless = frozenset(table.table for table in tables if not table.key)
        self._accounts = accounts
        self._planner = planner
        self._topics = {table.table: data_topic(config.name, table.namespace, table.name) for table in tables}
        at = restored.position.end_lsn if restored.position else Lsn(0)
        self._merger = Merger(chunk_bytes=config.snapshot.chunk_bytes)
        self._given_up = self._resume(restored, records, at, seen_to)
        joined = _joined(tables, restored.identity)
        self.unread = [
            (table, seen_to)
            for table in tables
            if table.table in joined
            and (table.table in records or not config.snapshot.wants(table.table))
            and not (table.key and config.snapshot.wants(table.table))
        ]
        self._copies = copies
        self.hand_over = HandOver(
            self._merger,
            planner.plan,
            epoch=epoch,
            reach=self._reach,
            copied=CopyFilter({table: copy for table, copy in copies.items() if copy.l_hi > at}),
            check=self._check,
        )
        stale = StaleKeys(
            partial(LogReader, config.kafka, client_id="tailrace-sweep", ahead_bytes=_AHEAD_BYTES),
            at_once=_SWEPT_IN_AVRO if config.encode.format == "avro" else _SWEPT_AT_ONCE,
        )
        self._sweeper = SweepThread(self.hand_over, lambda table, *rest: stale.of(self._topics[table], *rest), clock)
        self._pace = Pace()
        self._guard: LoadGuard | None = None
        self._readers = ReaderThreads(
            self.hand_over,
            config.source.dsn,
            clock,
            publication=config.publication,
            tables=self._selected_tables,
            workers=config.snapshot.workers,
            rows_per_s_max=config.snapshot.rows_per_s_max,
            pace=self._pace,
        )

    def knows(self, table: SourceTable) -> None:
        """Register a table that is captured since this start."""
        self._topics[table.table] = data_topic(self._config.name, table.namespace, table.name)
        if not table.key:
            self._keyless |= {table.table}

    def join(self, table: SourceTable, lsn: Lsn) -> None:
        """Read a table that is captured again, and sweep what its topic has by `lsn`; not if that goes on already."""
        with self.hand_over.merging() as merger:
            if not merger.tables.covers(table.table, table.oid, lsn):
                merger.requests.begin(table.table, table.oid, lsn, sweep_from=lsn)

    def resume_abandoned(self, tables: Sequence[SourceTable], connection: Connection) -> None:
        """Begin again the snapshots of tables that had another name when they were read, and have their own again."""
        abandoned = self.abandoned()
        back = [table for table in tables if abandoned.get(table.table) == table.oid]
        if back:
            lsn = catalog_queries.current_wal(connection)
            for table in back:
                log.get().info("snapshot_resumed", table=table.table, reason="the table has its former name again")
                self.join(table, lsn)

    def abandoned(self) -> dict[str, int]:
        """See `snapshot.snapshot_requests.SnapshotRequests.abandoned`."""
        with self.hand_over.merging() as merger:
            return dict(merger.requests.abandoned)

    def unreadable(self) -> list[LeftOut]:
        """Return tables whose changes are captured, but whose earlier rows cannot be read."""
        return [
            LeftOut(
                table,
                0,
                "not_readable",
                f"its changes are captured, but its earlier rows are not: {error.message}",
                error.command,
                "the owner of the table, or a superuser",
            )
            for table, error in dict(self._readers.unreadable).items()
        ]

    def states(self) -> dict[str, str]:
        """Return the state of each table in the cut index."""
        incomplete = self._given_up | self._merger.incomplete
        return {table.table: "snapshotting" if table.table in incomplete else "complete" for table in self._tables}

    def read_again(self, facts: TableFacts, lsn: int, *, sweep: bool) -> bool:
        """See `cdc.capture.ddl_watch.ReadAgain`. An incomplete snapshot checks the table once more at its end anyway.

        A table without a key is never read again; its copy settles earlier findings.
        """
        table = facts.table
        if not self._config.snapshot.wants(table) or table in self._planner.left_out:
            return False
        if table in self._keyless:
            return table in self._copies and self._copies[table].l_hi > lsn
        self._topics[table] = data_topic(self._config.name, facts.namespace, facts.name)
        with self.hand_over.merging() as merger:
            known = merger.tables.get(table)
            restart = known is None or known.relation != facts.oid
            if sweep:
                restart = restart or not merger.tables.covers(table, facts.oid, Lsn(lsn))
            elif known is not None:
                restart = restart or known.selective or (known.state == "complete" and known.ended < lsn)
            if known is None or restart:
                merger.requests.begin(table, facts.oid, Lsn(lsn), sweep_from=Lsn(lsn) if sweep else None)
                return False
            return known.state not in {"begun", "stopped"}

    def start(
        self, sql: Connection, ddl: DdlWatch, status: Status, signals: SignalsRecord | None, topic_id: str
    ) -> None:
        """Begin to read, including what `ddl` finds, and to listen to signals; `signals` is their recorded state.

        Call it after the stream is open: if the server's start time changes later, it was restarted.
        """
        ddl.read_again = self.read_again
        self.hand_over.joined = status.snapshot_joined
        self._readers.start(table_reader.now(sql).started)
        self._sweeper.start()
        self._guard = _load_guard(self._config, self._clock, self._pace, status)
        self._guard.start()
        self._listener = listener(
            self._config, self._clock, self.hand_over, self._selected_tables, signals, topic_id, status.signals
        )
        if self._listener is not None:
            self._listener.start()
        self._unreport = status.report_snapshots(self._readers.report)

    def adopt(self, config: Config) -> None:
        """Take over new limits of reading and of signals."""
        self._readers.adjust(workers=config.snapshot.workers, rows_per_s_max=config.snapshot.rows_per_s_max)
        if self._guard is not None:
            self._guard.adjust(_limits(config), config.snapshot.standbys_ignored)
        if self._listener is not None:
            self._listener.adopt(config)

    def close(self) -> None:
        """Stop reading."""
        self._unreport()
        if self._listener is not None:
            self._listener.close()
        if self._guard is not None:
            self._guard.close()
        self._sweeper.close()
        self._readers.close()

    def _resume(
        self, restored: Restored, records: Mapping[str, SnapshotRecord], at: Lsn, seen_to: Lsn
    ) -> frozenset[str]:
        """Continue and begin snapshots. Returns the tables that are incomplete and no longer configured to be read."""
        config, joined = self._config, _joined(self._tables, restored.identity)
        known = {
            table.table: record
            for table in self._tables
            if table.key
            and table.table not in joined
            and (record := records.get(table.table)) is not None
            and record.relation == table.oid
        }
        given_up = {
            name for name, record in known.items() if record.cut_state != "complete" and not _goes_on(record, config)
        }
        self._merger.resume(
            {name: record for name, record in known.items() if name not in given_up},
            (restored.progress.pending_visibility or ()) if restored.progress else (),
        )
        for table in self._tables:
            if table.table in known or not table.key:
                continue
            # The record of another table of that name, or of this one before it was left out.
            before = records.get(table.table)
            if config.snapshot.wants(table.table) or (before is not None and (before.sweep or before.sweep_from_lsn)):
                sweep = table.table in joined or before is not None
                self._merger.requests.begin(table.table, table.oid, at, sweep_from=seen_to if sweep else None)
        return frozenset(given_up)

    def _reach(self, table: str) -> Bounds:
        """Return the offsets up to which the commit under way extends a table's topic. Opens the topic if necessary."""
        topic = self._topics[table]
        self._planner.open(table, 0, topic, compacted=True)
        return self._accounts.reach(topic)

    def _check(self) -> None:
        self._readers.check()
        self._sweeper.check()

    def _selected_tables(self, sql: Connection) -> Sequence[SourceTable]:
        source = self._config.source
        found = catalog_queries.tables_matching(sql, source.tables, source.keyless, source.keys)
        return [table for table in found if table.table not in self._planner.left_out]


def _load_guard(config: Config, clock: Clock, pace: Pace, status: Status) -> LoadGuard:
    ignored = config.snapshot.standbys_ignored
    return LoadGuard(config.source.dsn, clock, _limits(config), pace, standbys_ignored=ignored, observer=status.load)


def _limits(config: Config) -> Limits:
    settings = config.snapshot
    return Limits(settings.commit_latency_max_ms, settings.standby_lag_max_s, settings.io_waits_max_percent)


def _joined(tables: Sequence[SourceTable], recorded: Identity | None) -> frozenset[str]:
    """Return tables that were not captured, or not under this name, when the log was last written."""
    if recorded is None:
        return frozenset()
    return frozenset(table.table for table in tables if recorded.tables.get(table.table, (0, 0))[0] != table.oid)


def _goes_on(record: SnapshotRecord, config: Config) -> bool:
    """Return whether an incomplete snapshot is still wanted: by the configuration, or by an operator's signal."""
    return config.snapshot.wants(record.table) or record.asked
