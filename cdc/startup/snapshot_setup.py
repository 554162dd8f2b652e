"""The snapshots of a start: which tables must be read, and who reads them."""

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
from cdc.telemetry.capture_status import Status
from snapshot import table_reader
from snapshot.handover import HandOver
from snapshot.keyless_rule import CopyFilter, KeylessCopy
from snapshot.merger import Merger
from snapshot.reader_threads import ReaderThreads
from snapshot.sweep import Bounds
from snapshot.sweep_reader import SweepThread

_AHEAD_BYTES: Final = 2 << 20  # as the other readers beside a running capture
_SWEPT_AT_ONCE: Final = 1_000  # keys that a chunk looks for, by their index
_SWEPT_IN_AVRO: Final = 20_000  # for these it reads the whole table (`snapshot.key_filter`)


class Snapshots:
    """Merger, desk and crew of one replication session; `desk` is what the pipeline has of them.

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
        """Go on with what `records` say is not complete; begin what was never read, if that is wanted.

        A table that the log did not have at the last start, or that had another pg_class.oid then, is read from
        scratch, and swept: its topic may have keys of another table, or keys that were deleted meanwhile.

        `copies` are of tables without a key; `seen_to` is where the WAL was after `tables` were read from the catalog.
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
        self.desk = HandOver(
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
        self._sweeper = SweepThread(self.desk, lambda table, *rest: stale.of(self._topics[table], *rest), clock)
        self._crew = ReaderThreads(
            self.desk,
            config.source.dsn,
            clock,
            publication=config.publication,
            tables=self._look,
            workers=config.snapshot.workers,
            rows_per_s_max=config.snapshot.rows_per_s_max,
        )

    def knows(self, table: SourceTable) -> None:
        """A table that is captured since this start."""
        self._topics[table.table] = data_topic(self._config.name, table.namespace, table.name)
        if not table.key:
            self._keyless |= {table.table}

    def join(self, table: SourceTable, lsn: Lsn) -> None:
        """Read a table that is captured again, and sweep what its topic has by `lsn`; not if that goes on already."""
        with self.desk.merging() as merger:
            if not merger.tables.covers(table.table, table.oid, lsn):
                merger.requests.begin(table.table, table.oid, lsn, sweep_from=lsn)

    def unreadable(self) -> list[LeftOut]:
        """Tables whose changes are captured, and whose rows from before cannot be read."""
        return [
            LeftOut(
                table,
                0,
                "not_readable",
                f"its changes are captured, and the rows it had before are not: {error.message}",
                error.command,
                "the owner of the table, or a superuser",
            )
            for table, error in dict(self._crew.unreadable).items()
        ]

    def states(self) -> dict[str, str]:
        """What the cut index says of each table."""
        incomplete = self._given_up | self._merger.incomplete
        return {table.table: "snapshotting" if table.table in incomplete else "complete" for table in self._tables}

    def read_again(self, facts: TableFacts, lsn: int, *, sweep: bool) -> bool:
        """See `cdc.capture.ddl_watch.ReadAgain`. What is not complete yet looks at the table once more in the end.

        One without a key is never read again; its copy settles what was found before.
        """
        table = facts.table
        if not self._config.snapshot.wants(table) or table in self._planner.left_out:
            return False
        if table in self._keyless:
            return table in self._copies and self._copies[table].l_hi > lsn
        self._topics[table] = data_topic(self._config.name, facts.namespace, facts.name)
        with self.desk.merging() as merger:
            known = merger.tables.get(table)
            anew = known is None or known.relation != facts.oid
            if sweep:
                anew = anew or not merger.tables.covers(table, facts.oid, Lsn(lsn))
            elif known is not None:
                anew = anew or known.selective or (known.state == "complete" and known.ended < lsn)
            if known is None or anew:
                merger.requests.begin(table, facts.oid, Lsn(lsn), sweep_from=Lsn(lsn) if sweep else None)
                return False
            return known.state not in {"begun", "stopped"}

    def start(
        self, sql: Connection, ddl: DdlWatch, status: Status, signals: SignalsRecord | None, topic_id: str
    ) -> None:
        """Begin to read, also what `ddl` finds, and to listen to signals, of which the log has those of `signals`.

        The stream is open: what starts later than the server runs now is another one.
        """
        ddl.read_again = self.read_again
        self.desk.joined = status.snapshot_joined
        self._crew.start(table_reader.now(sql).started)
        self._sweeper.start()
        self._listener = listener(self._config, self._clock, self.desk, self._look, signals, topic_id, status.signals)
        if self._listener is not None:
            self._listener.start()
        self._unreport = status.report_snapshots(self._crew.report)

    def close(self) -> None:
        """Stop reading."""
        self._unreport()
        if self._listener is not None:
            self._listener.close()
        self._sweeper.close()
        self._crew.close()

    def _resume(
        self, restored: Restored, records: Mapping[str, SnapshotRecord], at: Lsn, seen_to: Lsn
    ) -> frozenset[str]:
        """Go on with snapshots and begin others; returns the tables that are not complete and not wanted any more."""
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
            # Of another table of that name, or of this one before it was left out.
            before = records.get(table.table)
            if config.snapshot.wants(table.table) or (before is not None and (before.sweep or before.sweep_from_lsn)):
                sweep = table.table in joined or before is not None
                self._merger.requests.begin(table.table, table.oid, at, sweep_from=seen_to if sweep else None)
        return frozenset(given_up)

    def _reach(self, table: str) -> Bounds:
        """Where the topic of a table ends with the commit under way; opens it if this start did not."""
        topic = self._topics[table]
        self._planner.open(table, 0, topic, compacted=True)
        return self._accounts.reach(topic)

    def _check(self) -> None:
        self._crew.check()
        self._sweeper.check()

    def _look(self, sql: Connection) -> Sequence[SourceTable]:
        source = self._config.source
        found = catalog_queries.tables_matching(sql, source.tables, source.keyless, source.keys)
        return [table for table in found if table.table not in self._planner.left_out]


def _joined(tables: Sequence[SourceTable], recorded: Identity | None) -> frozenset[str]:
    """Tables that were not captured, or not under this name, when the log was last written."""
    if recorded is None:
        return frozenset()
    return frozenset(table.table for table in tables if recorded.tables.get(table.table, (0, 0))[0] != table.oid)


def _goes_on(record: SnapshotRecord, config: Config) -> bool:
    """Whether what is not complete is still wanted: by the configuration, or because somebody asked for it."""
    return config.snapshot.wants(record.table) or record.asked
