"""The snapshots of a start: which tables must be read, and who reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cdc.capture.ddl import DdlWatch
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.contracts import PlannedRelation
from cdc.lsn import Lsn
from cdc.model.relation import Relation
from cdc.model.signals import SignalsRecord
from cdc.model.snapshot import SnapshotRecord
from cdc.progress.restore import Restored
from cdc.replication import catalog
from cdc.replication.connect import Connection
from cdc.replication.table import SourceTable
from cdc.startup.signals import SignalListener
from cdc.telemetry.status import Status
from snapshot import reader
from snapshot.crew import Crew
from snapshot.desk import Desk
from snapshot.merger import Merger


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
        *,
        epoch: int,
    ) -> None:
        """Go on with what `records` say is not complete; begin what was never read, if that is wanted."""
        self._config = config
        self._clock = clock
        self._listener: SignalListener | None = None
        self._unreport: Callable[[], None] = lambda: None
        self._tables = tables
        self._merger = Merger(chunk_bytes=config.snapshot.chunk_bytes)
        wanted = config.snapshot.mode == "initial"
        known = {
            table.table: record
            for table in tables
            if (record := records.get(table.table)) is not None and record.relation == table.oid
        }
        self._given_up = {
            name for name, record in known.items() if record.told != "complete" and not _goes_on(record, config)
        }
        self._merger.resume(
            {name: record for name, record in known.items() if name not in self._given_up},
            (restored.progress.pending_visibility or ()) if restored.progress else (),
        )
        at = restored.position.end_lsn if restored.position else Lsn(0)
        for table in tables:
            if wanted and table.table not in known and table.key:
                self._merger.begin(table.table, table.oid, at)
        incomplete = "omit" in {config.toast.mode, *config.toast.tables.values()}
        self.desk = Desk(self._merger, plan, epoch=epoch, incomplete=incomplete, check=self._check)
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
        """See `cdc.capture.ddl.ReadAgain`. What is not complete yet looks at the table once more in the end."""
        if self._config.snapshot.mode == "never":
            return False
        with self.desk.merging() as merger:
            state = merger.states.get(table)
            if state is None or (state == "complete" and merger.ended(table) < lsn):
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
        self._listener = SignalListener(self._config, self._clock, self.desk, self._tables, signals, topic_id)
        self._listener.start()
        self._unreport = status.snapshots_are(self._crew.report)

    def close(self) -> None:
        """Stop reading."""
        self._unreport()
        if self._listener is not None:
            self._listener.close()
        self._crew.close()

    def _check(self) -> None:
        self._crew.check()

    def _look(self, sql: Connection) -> Sequence[SourceTable]:
        source = self._config.source
        return catalog.tables_matching(sql, source.tables, source.keyless, source.keys)


def _goes_on(record: SnapshotRecord, config: Config) -> bool:
    """Whether what is not complete is still wanted: by the configuration, or because somebody asked for it."""
    return config.snapshot.mode == "initial" or record.asked
