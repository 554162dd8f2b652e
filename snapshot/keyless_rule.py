"""What of the stream is in the copy of a table without a key already, and must not be published again. Pure.

Such a table is copied once, whole, in one snapshot S. A row of its topic cannot take the place of another, so each
change must be in the copy or an event, never both and never neither: a transaction that S sees is in the copy, any
other is not, wherever its commit record lies. Nothing of the table is published before its copy is, and S sees all that
commits before the stream begins (`cdc.startup.keyless_copy` waits for that).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.model.visibility import PgSnapshot


@dataclass(frozen=True, slots=True)
class KeylessCopy:
    """The copy of a table: its snapshot, and the end of the WAL right after. What that sees commits below `l_hi`."""

    snapshot: PgSnapshot
    l_hi: Lsn


class CopyFilter:
    """Takes the rows out of the buffers that are in a copy. The capture thread tells it of every transaction."""

    def __init__(self, copies: Mapping[str, KeylessCopy]) -> None:
        self._copies = dict(copies)
        self._buffers: dict[str, TopicBuffer] = {}
        self._marks: dict[str, list[int]] = {}
        self._hidden: frozenset[str] = frozenset()

    @property
    def active(self) -> bool:
        """Whether a transaction may still come that is in a copy."""
        return bool(self._copies)

    def watch(self, table: str, buffer: TopicBuffer) -> None:
        """From now on rows of the table come into this buffer."""
        if table not in self._copies:
            return
        self._buffers[table] = buffer
        if table in self._hidden:
            self._marks.setdefault(table, _lengths(buffer))

    def begun(self, xid: int) -> None:
        """A transaction begins."""
        self._hidden = frozenset(table for table, copy in self._copies.items() if copy.snapshot.sees(xid))
        self._marks = {table: _lengths(self._buffers[table]) for table in self._hidden & self._buffers.keys()}

    def gather(self) -> None:
        """The buffers are about to be emptied."""
        self._take_out()
        for marks in self._marks.values():
            marks[:] = [0] * len(marks)

    def ended(self) -> None:
        """The transaction is in the buffers, up to its end."""
        self._take_out()
        self._marks, self._hidden = {}, frozenset()

    def passed(self, boundary: Lsn) -> None:
        """Everything that commits below `boundary` was told."""
        if any(boundary >= copy.l_hi for copy in self._copies.values()):
            self._copies = {table: copy for table, copy in self._copies.items() if boundary < copy.l_hi}

    def _take_out(self) -> None:
        for table, marks in self._marks.items():
            for records, mark in zip(self._buffers[table].partitions, marks, strict=True):
                del records[mark:]


def _lengths(buffer: TopicBuffer) -> list[int]:
    return [len(records) for records in buffer.partitions]
