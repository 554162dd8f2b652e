"""The snapshots of a start: which tables must be read, and who reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cdc.capture.ddl import DdlWatch
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.contracts import PlannedRelation
from cdc.lsn import Lsn
from cdc.model.relation import Relation
from cdc.model.snapshot import STATES, SnapshotRecord
from cdc.progress.restore import Restored
from cdc.replication import catalog
from cdc.replication.connect import Connection
from cdc.replication.table import SourceTable
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
        self._tables = tables
        self._merger = Merger(chunk_bytes=config.snapshot.chunk_bytes)
        wanted = config.snapshot.mode == "initial"
        known = {
            table.table: record
            for table in tables
            if (record := records.get(table.table)) is not None and record.relation == table.oid
        }
        self._given_up = {name for name, record in known.items() if record.state != "complete" and not wanted}
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
        )

    def states(self) -> dict[str, str]:
        """What the cut index says of each table."""
        states = self._merger.states
        return {
            table.table: STATES["running"]
            if table.table in self._given_up or states.get(table.table, "complete") != "complete"
            else STATES["complete"]
            for table in self._tables
        }

    def read_again(self, table: str, relation: int, lsn: int) -> bool:
        """See `cdc.capture.ddl.ReadAgain`. What is not complete yet looks at the table once more in the end."""
        if self._config.snapshot.mode == "never":
            return False
        with self.desk.merging() as merger:
            state = merger.states.get(table)
            if state is None or (state == "complete" and merger.ended(table) < lsn):
                merger.begin(table, relation, Lsn(lsn))
                return False
            return state != "begun"

    def start(self, sql: Connection, ddl: DdlWatch) -> None:
        """Begin to read, also what `ddl` finds. The stream is open: a server that starts later is another one."""
        ddl.read_again = self.read_again
        self._crew.start(reader.now(sql).started)

    def close(self) -> None:
        """Stop reading."""
        self._crew.close()

    def _check(self) -> None:
        self._crew.check()

    def _look(self, sql: Connection) -> Sequence[SourceTable]:
        source = self._config.source
        return catalog.tables_matching(sql, source.tables, source.keyless, source.keys)
