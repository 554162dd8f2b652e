"""The snapshots of a start: which tables must be read, and who reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from cdc.capture.ddl import DdlWatch
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.contracts import PlannedRelation
from cdc.kafka.consumer import LogReader
from cdc.lsn import Lsn
from cdc.model.names import data_topic
from cdc.model.relation import Relation
from cdc.model.signals import SignalsRecord
from cdc.model.snapshot import SnapshotRecord
from cdc.progress.restore import Restored
from cdc.publish.ledger import Ledger
from cdc.publish.livekeys import StaleKeys
from cdc.replication import catalog
from cdc.replication.connect import Connection
from cdc.replication.table import SourceTable
from cdc.startup.signals import SignalListener, listener
from cdc.telemetry.status import Status
from snapshot import reader
from snapshot.crew import Crew
from snapshot.desk import Desk
from snapshot.keyless import Copied, CopiedRows
from snapshot.merger import Merger
from snapshot.sweeper import Sweeper

_AHEAD_BYTES: Final = 2 << 20  # as the other readers beside a running capture
_SWEPT_AT_ONCE: Final = 1_000  # keys that a chunk looks for, by their index
_SWEPT_IN_AVRO: Final = 20_000  # for these it reads the whole table (`snapshot.keyfilter`)


class Snapshots:
    """Merger, desk and crew of one replication session; `desk` is what the pipeline has of them."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        tables: Sequence[SourceTable],
        restored: Restored,
        records: Mapping[str, SnapshotRecord],
        plan: Callable[[Relation, Lsn], PlannedRelation | None],
        copies: Mapping[str, Copied],
        ledger: Ledger,
        *,
        epoch: int,
    ) -> None:
        """Go on with what `records` say is not complete; begin what was never read, if that is wanted.

        `copies` are of tables without a key.
        """
        self._config = config
        self._clock = clock
        self._listener: SignalListener | None = None
        self._unreport: Callable[[], None] = lambda: None
        self._tables = tables
        self._keyless = frozenset(table.table for table in tables if not table.key)
        self._merger = Merger(chunk_bytes=config.snapshot.chunk_bytes)
        known = {
            table.table: record
            for table in tables
            if table.key and (record := records.get(table.table)) is not None and record.relation == table.oid
        }
        self._given_up = {
            name for name, record in known.items() if record.told != "complete" and not _goes_on(record, config)
        }
        self._merger.resume(
            {name: record for name, record in known.items() if name not in self._given_up},
            (restored.progress.pending_visibility or ()) if restored.progress else (),
        )
        self._copies = copies
        at = restored.position.end_lsn if restored.position else Lsn(0)
        for table in tables:
            if table.table in known or not table.key:
                continue
            before = records.get(table.table)  # of a table of that name that was dropped
            if config.snapshot.wants(table.table) or (before is not None and before.sweep):
                self._merger.begin(table.table, table.oid, at, before.sweep if before is not None else ())
        topics = {table.table: data_topic(config.name, table.namespace, table.name) for table in tables}
        self.desk = Desk(
            self._merger,
            plan,
            epoch=epoch,
            reach=lambda table: ledger.reach(topics[table]),
            copied=CopiedRows({table: copy for table, copy in copies.items() if copy.l_hi > at}),
            check=self._check,
        )
        stale = StaleKeys(
            partial(LogReader, config.kafka, client_id="tailrace-sweep", ahead_bytes=_AHEAD_BYTES),
            at_once=_SWEPT_IN_AVRO if config.encode.format == "avro" else _SWEPT_AT_ONCE,
        )
        self._sweeper = Sweeper(self.desk, lambda table, *rest: stale.of(topics[table], *rest), clock)
        self._crew = Crew(
            self.desk,
            config.source.dsn,
            clock,
            publication=config.publication,
            tables=self._look,
            workers=config.snapshot.workers,
            rows_per_s_max=config.snapshot.rows_per_s_max,
        )

    def states(self) -> dict[str, str]:
        """What the cut index says of each table."""
        incomplete = self._given_up | self._merger.incomplete
        return {table.table: "snapshotting" if table.table in incomplete else "complete" for table in self._tables}

    def read_again(self, table: str, relation: int, lsn: int) -> bool:
        """See `cdc.capture.ddl.ReadAgain`. What is not complete yet looks at the table once more in the end.

        One without a key is never read again; its copy settles what was found before.
        """
        if not self._config.snapshot.wants(table):
            return False
        if table in self._keyless:
            return table in self._copies and self._copies[table].l_hi > lsn
        with self.desk.merging() as merger:
            state = merger.states.get(table)
            if state is None or merger.selective(table) or (state == "complete" and merger.ended(table) < lsn):
                merger.begin(table, relation, Lsn(lsn))
                return False
            return state not in {"begun", "stopped"}

    def start(
        self, sql: Connection, ddl: DdlWatch, status: Status, signals: SignalsRecord | None, topic_id: str
    ) -> None:
        """Begin to read, also what `ddl` finds, and to listen to signals, of which the log has those of `signals`.

        The stream is open: what starts later than the server runs now is another one.
        """
        ddl.read_again = self.read_again
        self.desk.joined = status.snapshot_joined
        self._crew.start(reader.now(sql).started)
        self._sweeper.start()
        self._listener = listener(self._config, self._clock, self.desk, self._look, signals, topic_id, status.signals)
        if self._listener is not None:
            self._listener.start()
        self._unreport = status.snapshots_are(self._crew.report)

    def close(self) -> None:
        """Stop reading."""
        self._unreport()
        if self._listener is not None:
            self._listener.close()
        self._sweeper.close()
        self._crew.close()

    def _check(self) -> None:
        self._crew.check()
        self._sweeper.check()

    def _look(self, sql: Connection) -> Sequence[SourceTable]:
        source = self._config.source
        return catalog.tables_matching(sql, source.tables, source.keyless, source.keys)


def _goes_on(record: SnapshotRecord, config: Config) -> bool:
    """Whether what is not complete is still wanted: by the configuration, or because somebody asked for it."""
    return config.snapshot.wants(record.table) or record.asked
