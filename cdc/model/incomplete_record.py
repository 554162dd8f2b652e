"""Records that lack TOAST values, which the stream does not contain, and wait for them before they are published.

A transcoder encodes a record without these values and adds an `IncompleteRecord`; a `cdc.contracts.Reselect` reads the
values and completes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from cdc.model.relation import Relation

_FIRST_GUESS_BYTES: Final = 16 << 10  # missing values of a row, until some were read; TOAST begins at 2 KB

ReadValues = Mapping[int, bytes | None]
"""Column index -> the server's text of a value, None for null."""


class IncompleteRecord(msgspec.Struct, frozen=True, eq=False):
    """A buffered record that lacks values.

    Attributes:
        key_columns, missing: indexes into the relation's columns.
        key: the server's text of each key column.
        record_key: the key of the record in the log.
        xid: transaction of the row, 32 bits.
        fill: encodes the record again with the values read, possibly only of some columns; the others stay missing.
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
    """The buffered records that lack values, in stream order. Used by one thread."""

    __slots__ = ("_bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: list[IncompleteRecord] = []
        self._bytes: dict[int, int] = {}

    def add(self, record: IncompleteRecord) -> int:
        """Add a record; returns the expected size of its missing values, for the limits of a batch."""
        self.waiting.append(record)
        return self._bytes.get(record.relation.oid, _FIRST_GUESS_BYTES)

    def learn(self, oid: int, size: int, count: int) -> None:
        """Record that the missing values of `count` rows of a table had `size` bytes in total."""
        self._bytes[oid] = size // count
