"""Records that lack values the stream does not have (TOAST), and wait for them before they are published.

A transcoder notes a hole beside the record it made without these values; a `cdc.contracts.Reselect` fills it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from cdc.model.relation import Relation

_FIRST_GUESS_BYTES: Final = 16 << 10  # of a row's missing values, until some were read; out of line begins at 2 KB

ReadValues = Mapping[int, bytes | None]
"""Column index -> the server's text of a value, None for null."""


class IncompleteRecord(msgspec.Struct, frozen=True, eq=False):
    """One record.

    Attributes:
        key_columns, missing: indexes into the relation's columns.
        key: the server's text of each key column.
        record_key: the same as the log has it.
        xid: of the row's transaction, 32 bits.
        fill: makes the record anew with what was found, possibly of some columns only; the others stay unchanged.
            Raises RowRefused.
    """

    relation: Relation
    key_columns: tuple[int, ...]
    key: tuple[str, ...]
    record_key: bytes
    missing: tuple[int, ...]
    xid: int
    fill: Callable[[ReadValues], None]


class IncompleteRecords:
    """Those of the records that are buffered, in the order of the stream. One thread."""

    __slots__ = ("_bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: list[IncompleteRecord] = []
        self._bytes: dict[int, int] = {}

    def add(self, hole: IncompleteRecord) -> int:
        """Note it; returns how many bytes its values are expected to have, for the caps of a batch."""
        self.waiting.append(hole)
        return self._bytes.get(hole.relation.oid, _FIRST_GUESS_BYTES)

    def learn(self, oid: int, size: int, count: int) -> None:
        """The values that so many rows of a table lacked had `size` bytes together."""
        self._bytes[oid] = size // count
