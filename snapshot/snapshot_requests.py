"""Begins, pauses and stops snapshots: which tables are read, and which of their rows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from cdc.lsn import Lsn
from cdc.model.snapshot_record import IncompleteKey
from snapshot.open_chunks import OpenChunks
from snapshot.sweep import Sweep
from snapshot.sweep_set import Sweeps
from snapshot.table_set import TableSet
from snapshot.table_state import RowSelection, TableState, condition_of

INCOMPLETE_MAX: Final = 1000  # keys per table; the table's record contains them and is written at each change
INCOMPLETE_BYTES_MAX: Final = 128 << 10


class SnapshotRequests:
    """The requests for snapshots of one merger. Not thread-safe.

    Attributes:
        abandoned: pg_class.oid of the tables that were abandoned in the middle of a snapshot, by their names then.
    """

    def __init__(self, tables: TableSet, chunks: OpenChunks, sweeps: Sweeps) -> None:
        self._tables = tables
        self._chunks = chunks
        self._sweeps = sweeps
        self.abandoned: dict[str, int] = {}

    def begin(
        self, name: str, relation: int, at: Lsn, marks: tuple[int, ...] = (), *, sweep_from: Lsn | None = None
    ) -> None:
        """Begin a snapshot of a table. Afterwards call `Plans.suspect` with ids that are read after this returns.

        Args:
            name: of the table.
            relation: its pg_class.oid.
            at: the position of the log.
            marks: sweep the table at the end, with these marks (`snapshot.sweep.Sweep`). A sweep that the previous
                snapshot had not finished is repeated in any case.
            sweep_from: another table had the name before. The snapshot waits until the stream has reached this LSN, and
                then sweeps every key that the topic has by then.
        """
        before = self._tables.get(name)
        self.abandoned.pop(name, None)
        self._chunks.give_up(name)
        table = TableState(relation, before.number + 1 if before else 1, "begun", at)
        marks = marks or (before.marks if before else ())
        table.sweep_from = sweep_from or (before.sweep_from if before else Lsn(0))
        table.swept = max(table.sweep_from, before.swept if before else Lsn(0))
        table.sweep = Sweep(marks) if marks and not table.sweep_from else None
        self._tables[name] = table
        self._sweeps.await_position(name)

    def order(self, name: str, relation: int, at: Lsn, rows: RowSelection) -> None:
        """Begin a snapshot on request; the log records it with the next commit.

        It is recorded at once, together with the signal that requested it and before the open transactions are known.
        Otherwise a crash in between would lose the request.
        """
        before = self._tables.get(name)
        self.begin(name, relation, at)
        table = self._tables[name]
        table.asked, table.keyed = True, bool(rows.keys)
        table.where, table.condition = rows.where, condition_of(rows.where)
        table.repair = set(rows.keys)
        if before is not None and (before.state == "complete" or before.again):
            table.again, table.ended = True, before.ended
        self._tables.note(name)

    def read_incomplete(self, rows: Mapping[tuple[str, int], Collection[IncompleteKey]], at: Lsn) -> bool:
        """Read rows later whose records lack TOAST values; by table and its pg_class.oid.

        Returns False, and requests nothing, if one of them cannot be read later: its table has no snapshot, because
        then its record would claim that the rows from before capture are in the topic, or the table's record would be
        too large. Afterwards call `Plans.suspect`, as after `begin`.
        """
        for (name, relation), keys in rows.items():
            table = self._tables.get(name)
            if table is None or table.state == "stopped" or table.relation != relation:
                return False
            all_keys = table.incomplete.keys() | {one.key for one in keys}
            if len(all_keys) > INCOMPLETE_MAX or sum(map(len, all_keys)) > INCOMPLETE_BYTES_MAX:
                return False
        for (name, relation), keys in rows.items():
            if not self._tables[name].live:
                self.order(name, relation, at, RowSelection())
                self._tables[name].keyed = True
            self._tables[name].incomplete |= {one.key: one for one in keys}
            self._tables.note(name)
        return True

    def pause(self, name: str, *, paused: bool) -> None:
        """Start no further chunk of a table, or continue. Transactions are still reported, so its chunks stay done."""
        self._tables[name].paused = paused
        self._tables.note(name)

    def stop(self, name: str) -> None:
        """Stop a snapshot and forget its finished chunks: without reported transactions they do not stay done.

        A table that was complete before still reads its incomplete records.
        """
        self._chunks.give_up(name)
        table = self._tables[name]
        if table.again and table.incomplete:
            table.keep_incomplete()
        else:
            table.state = "complete" if table.again else "stopped"
            table.end()
        self._tables.note(name)

    def abandon(self, name: str) -> None:
        """Forget a table that its name no longer has; it may come back."""
        self._chunks.give_up(name)
        table = self._tables.pop(name, None)
        if table is not None:
            self.abandoned[name] = table.relation
