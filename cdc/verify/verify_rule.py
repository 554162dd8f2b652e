"""The rule that gives a key's expected row: one record at a time, in offset order. Pure.

`cdc verify` compares stores and tables with it, so it must not share code with what it checks: nothing of
`sinks.runner.key_fold`, nothing of a sink, no batches. docs/howto/large-values.md states the same rule in words.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec


class Event(NamedTuple):
    """What one record says, whatever its format.

    Attributes:
        op: ``c``, ``r``, ``u``, ``d``; "" for a tombstone that says nothing else.
        row: the row as a JSON object; None: the key is gone.
        unchanged: columns that are not in `row`, because PostgreSQL did not send them.
        omitted: columns that capture left out of `row` because it was too large.
        xid: the transaction, 32 bits; None when the record does not have it.
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
        row: a JSON object; None: the key is gone.
        unsure: columns whose value the log alone does not tell: a store that read the records which compaction has
            removed since may have another value than `row`, and be right.
        absent: columns that `row` lacks and a store must lack, too.
    """

    row: bytes | None
    unsure: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


_values: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def after(event: Event, before: State | None) -> State:
    """Apply one record to what was known of its key; None: the log has no earlier record of it.

    1. A tombstone or a delete: the key is gone.
    2. An insert or a snapshot row (`c`, `r`): the row is what the record has. Columns in `unchanged` are absent.
       Nothing comes from a row that had the key before.
    3. An update (`u`): the row is what the record has, but each column in `unchanged` keeps the value that the row had
       before the record. Where that row lacks the column, it is absent.

    Columns in `reselected` have their value in the record.
    """
    if event.row is None:
        return State(None)
    absent = {*event.unchanged, *event.omitted}
    if event.op != "u" or not event.unchanged:
        return State(event.row, (), tuple(sorted(absent)))
    if before is None or before.row is None:  # compaction has removed the record that made the row
        return State(event.row, event.unchanged, tuple(sorted({*event.omitted})))
    row, earlier = _values(event.row), _values(before.row)
    row |= {name: earlier[name] for name in event.unchanged if name in earlier}
    unsure = tuple(name for name in event.unchanged if name in before.unsure)
    return State(msgspec.json.encode(row), unsure, tuple(sorted(absent - row.keys() - {*unsure})))
