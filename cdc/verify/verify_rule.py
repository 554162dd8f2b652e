"""Computes the expected row of a key, one record at a time, in offset order. Pure.

`cdc verify` compares stores and tables with this rule, so it must not share code with them: nothing from
`sinks.runner.key_fold` or any sink, and no batches. docs/howto/large-values.md states the same rule in words.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec


class Event(NamedTuple):
    """The content of one record, in any format.

    Attributes:
        op: ``c``, ``r``, ``u``, ``d``; "" for a tombstone without headers.
        row: the row as a JSON object; None if the key is deleted.
        unchanged: columns that are not in `row`, because PostgreSQL did not send them.
        omitted: columns that capture left out of `row` because it was too large.
        xid: the transaction, 32 bits; None when the record does not contain it.
    """

    op: str
    row: bytes | None
    unchanged: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()
    schema_id: str = ""
    epoch: int = 0
    commit_lsn: int = 0
    ts_ms: int = 0
    xid: int | None = None


class State(NamedTuple):
    """A key after a record.

    Attributes:
        row: a JSON object; None if the key is deleted.
        unsure: columns whose value the log no longer determines: a store that read records before compaction removed
            them may correctly have another value than `row`.
        absent: columns that `row` lacks and a store must lack, too.
    """

    row: bytes | None
    unsure: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


_values: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def after(event: Event, before: State | None) -> State:
    """Apply one record to the state of its key; `before` is None if the log has no earlier record of it.

    1. Tombstone or delete: the key is deleted.
    2. Insert or snapshot row (`c`, `r`): the row is that of the record. Columns in `unchanged` are absent. Nothing is
       taken from an earlier row with the same key.
    3. Update (`u`): the row is that of the record, but each column in `unchanged` keeps its value from the row before.
       If that row lacks the column, it is absent.

    Columns in `reselected` have their value in the record.
    """
    if event.row is None:
        return State(None)
    absent = {*event.unchanged, *event.omitted}
    if event.op != "u" or not event.unchanged:
        return State(event.row, (), tuple(sorted(absent)))
    if before is None or before.row is None:  # compaction removed the record that created the row
        return State(event.row, event.unchanged, tuple(sorted({*event.omitted})))
    row, earlier = _values(event.row), _values(before.row)
    row |= {name: earlier[name] for name in event.unchanged if name in earlier}
    unsure = tuple(name for name in event.unchanged if name in before.unsure)
    return State(msgspec.json.encode(row), unsure, tuple(sorted(absent - row.keys() - {*unsure})))
