"""Drops stream changes of tables without a key that their copy already includes. Pure.

Such a table is copied once, as a whole, in one snapshot S. Its records have no key, so each change must be either in
the copy or an event, never both and never neither. A transaction that S sees is in the copy, any other is not. The
transaction id decides, not the LSN of the commit. Nothing of the table is published before its copy, and S sees every
commit before the beginning of the stream (`cdc.startup.keyless_copy` waits for that).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.model.visibility import PgSnapshot


@dataclass(frozen=True, slots=True)
class KeylessCopy:
    """The copy of a table: its snapshot, and the end of the WAL right after it, above every commit that it sees."""

    snapshot: PgSnapshot
    l_hi: Lsn


class CopyFilter:
    """Removes rows that are in a copy from the buffers. The capture thread reports every transaction to it."""

    def __init__(self, copies: Mapping[str, KeylessCopy]) -> None:
        self._copies = dict(copies)
        self._buffers: dict[str, TopicBuffer] = {}
        self._marks: dict[str, list[int]] = {}
        self._hidden: frozenset[str] = frozenset()

    @property
    def active(self) -> bool:
        """Whether a transaction that is in a copy may still arrive."""
        return bool(self._copies)

    def watch(self, table: str, buffer: TopicBuffer) -> None:
        """Register the buffer of a table."""
        if table not in self._copies:
            return
        self._buffers[table] = buffer
        if table in self._hidden:
            self._marks.setdefault(table, _lengths(buffer))

    def begun(self, xid: int) -> None:
        """Start a transaction."""
        self._hidden = frozenset(table for table, copy in self._copies.items() if copy.snapshot.sees(xid))
        self._marks = {table: _lengths(self._buffers[table]) for table in self._hidden & self._buffers.keys()}

    def gather(self) -> None:
        """Remove rows before the buffers are emptied."""
        self._remove_rows()
        for marks in self._marks.values():
            marks[:] = [0] * len(marks)

    def ended(self) -> None:
        """End the transaction; all its rows are in the buffers."""
        self._remove_rows()
        self._marks, self._hidden = {}, frozenset()

    def passed(self, boundary: Lsn) -> None:
        """Forget copies that cannot include later transactions: every commit below `boundary` was reported."""
        if any(boundary >= copy.l_hi for copy in self._copies.values()):
            self._copies = {table: copy for table, copy in self._copies.items() if boundary < copy.l_hi}

    def _remove_rows(self) -> None:
        for table, marks in self._marks.items():
            for records, mark in zip(self._buffers[table].partitions, marks, strict=True):
                del records[mark:]


def _lengths(buffer: TopicBuffer) -> list[int]:
    return [len(records) for records in buffer.partitions]
