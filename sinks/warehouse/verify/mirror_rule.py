"""The rule for the expected row of a lake's mirror: one record at a time, in offset order. Pure.

`cdc verify` compares mirrors with it, so it must not share code with the driver: it imports nothing of the product.
docs/howto/large-values.md states the rule in words. The rule moves no values: for each column that some update did not
send, it finds the record that has the column's value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Position = tuple[int, int, int]
"""Epoch, commit LSN and ordinal of an event. A changed key is a delete and an insert at one position."""


class Record(NamedTuple):
    """The content of one record of a key.

    Attributes:
        op: ``c``, ``r``, ``u``, ``d``.
        kept: indices of the columns in `unchanged` or `reselected`: the record lacks the value of the event.
        empty: those of `kept` that are null or absent in the row.
    """

    key: Sequence[str | None]
    partition: int
    offset: int
    position: Position
    op: str
    kept: Sequence[int]
    empty: Sequence[int]


class Cell(NamedTuple):
    """The location of a column's value.

    Attributes:
        partition, offset: of the record whose row has the value.
        moved_at: the row had another key before, and that key's last value counts: it was deleted at this position. If
            the topic no longer has its records, the value of the record at `offset` counts.
        unsure: the topic does not have the value, so a mirror that read removed records may have any value.
    """

    partition: int
    offset: int
    moved_at: Position | None = None
    unsure: bool = False


Row = tuple[Cell, ...]


class Outcome(NamedTuple):
    """A key at its last record, or with `left` the row that a delete found.

    Attributes:
        partition, offset, position: of that record.
        row: None if the key is gone.
    """

    partition: int
    offset: int
    position: Position
    left: bool
    row: Row | None


def after(record: Record, before: Row | None, width: int) -> Row | None:
    """Apply one record to the previous row of its key. None if the key is gone, or earlier records are missing.

    1. A delete: the key is gone.
    2. A snapshot row (`r`): the row is what the record has.
    3. An insert (`c`): the row is what the record has. With columns in `kept` the row came from another key, and they
       have the values that they had there. Nothing comes from a row that had this key before.
    4. An update (`u`): the row is what the record has, but each column in `kept` has the value of the row before.
    5. The row before counts only within an epoch: what the source did between two epochs is not in the log.

    Args:
        record: the next record of the key.
        before: the result for the previous record, if it is of the same epoch.
        width: the number of columns that the rule covers.
    """
    if record.op == "d":
        return None
    row = []
    for column in range(width):
        own = Cell(record.partition, record.offset)
        if column not in record.kept or record.op == "r":
            row.append(own)
        elif record.op == "c":
            row.append(own._replace(moved_at=record.position, unsure=column in record.empty))
        elif before is None:  # compaction has removed the record that made the row
            row.append(own._replace(unsure=column in record.empty))
        else:
            row.append(before[column])
    return tuple(row)


def outcomes(records: Iterable[Record], width: int) -> Iterator[Outcome]:
    """Apply the rule to records in order of key and offset. Yields the last row of each key, and deleted rows."""
    last: Record | None = None
    row: Row | None = None
    for record in records:
        if last is not None and record.key != last.key:
            yield Outcome(last.partition, last.offset, last.position, left=False, row=row)
            row = None
        if last is not None and record.position[0] != last.position[0]:
            row = None
        if record.op == "d" and row is not None:
            yield Outcome(record.partition, record.offset, record.position, left=True, row=row)
        row = after(record, row, width)
        last = record
    if last is not None:
        yield Outcome(last.partition, last.offset, last.position, left=False, row=row)


def origin(cell: Cell, column: int, left: Mapping[Position, Row]) -> Cell:
    """Follow a row back through its earlier keys; `left` has the rows deleted at each position."""
    while cell.moved_at is not None and cell.moved_at in left:
        cell = left[cell.moved_at][column]
    return cell
