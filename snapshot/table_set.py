"""The tables that have or had a snapshot, and the records about them that must still go into the log. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.lsn import Lsn
from cdc.model.snapshot_record import SnapshotRecord
from snapshot.table_state import TableState


class TableSet(dict[str, TableState]):
    """The states by table. Not thread-safe.

    Attributes:
        changed: the new record of each table whose state changed since its last record.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[str, SnapshotRecord] = {}

    @property
    def live(self) -> frozenset[str]:
        """The tables whose transactions must be reported."""
        return frozenset(name for name, table in self.items() if table.live)

    def has(self, name: str, relation: int) -> bool:
        """Whether a table has a snapshot, and this is its pg_class.oid."""
        return name in self and self[name].relation == relation

    def covers(self, name: str, relation: int, lsn: Lsn) -> bool:
        """Whether a snapshot of this relation sweeps what another table left in the topic up to `lsn`."""
        table = self.get(name)
        return table is not None and table.relation == relation and table.swept >= lsn

    def note(self, name: str) -> None:
        """Write the present state of a table to the log with the next commit."""
        self.changed[name] = self[name].record(name)

    def noted(self, records: Mapping[str, SnapshotRecord]) -> None:
        """Forget records that are in a commit."""
        for name, record in records.items():
            if self.changed.get(name) is record:
                del self.changed[name]
