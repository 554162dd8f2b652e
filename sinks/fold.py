"""Records of the log -> what their keys are to be. Pure.

Only the newest record of a key counts. Where it does not have all values of its own (`source.reselected`,
`source.unchanged`), they come from the record before it, as far as that is at hand; what is left a store keeps as it
has it (`Change.kept`). A delete is an event and a tombstone behind it; either alone says that the key is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from cdc.errors import TopicMismatch
from sinks.contract import Change

if TYPE_CHECKING:
    from cdc.progress.restore import LogRecord

Key: TypeAlias = tuple[str, int, bytes]
"""Topic, partition, key."""

_NULL: Final = b"null"


class _Source(msgspec.Struct, frozen=True):
    epoch: int
    commit_lsn: int
    schema_id: str = ""
    unchanged: tuple[str, ...] = ()
    reselected: tuple[str, ...] = ()


class _Envelope(msgspec.Struct, frozen=True):
    after: msgspec.Raw
    source: _Source
    op: str
    ts_ms: int


_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_values: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def by_key(records: Iterable[LogRecord]) -> dict[Key, list[LogRecord]]:
    """Records of each key, in their order; keys in the order of their first record.

    Raises TopicMismatch for a record without a key: no compacted topic has one.
    """
    found: dict[Key, list[LogRecord]] = {}
    for record in records:
        topic, partition, _, _, key, _, _ = record
        if key is None:
            raise _foreign(record, "it has no key")
        found.setdefault((topic, partition, key), []).append(record)
    return found


def change_of(records: Sequence[LogRecord]) -> Change:
    """What one key is to be after these records of it, in log order; at least one.

    `epoch`, `commit_lsn` and `ts_ms` of a lone tombstone are 0: it does not say.
    Raises TopicMismatch for a value that is no event of ours.
    """
    newest = records[-1]
    event = _event(newest)
    if event is None:  # a tombstone: what it does not say, the delete before it does
        event = _event(records[-2]) if len(records) > 1 else None
        return _gone(newest, event)
    if event.op == "d":
        return _gone(newest, event)
    row, kept = bytes(event.after), event.source.unchanged + event.source.reselected
    if kept and len(records) > 1:
        row, kept = _completed(row, kept, records[:-1])
    source = event.source
    return Change(*_place(newest), row, kept, source.schema_id, source.epoch, source.commit_lsn, event.ts_ms)


def merged(row: bytes, kept: Iterable[str], before: bytes) -> bytes:
    """The row with the values of `kept` as the row `before` has them; those it lacks stay as they are."""
    earlier = _values(before)
    values = _values(row) | {column: earlier[column] for column in kept if column in earlier}
    return msgspec.json.encode(values)


def _completed(row: bytes, kept: tuple[str, ...], before: Sequence[LogRecord]) -> tuple[bytes, tuple[str, ...]]:
    """Take the values of `kept` from the key's records before, if they have them of their own."""
    earlier = change_of(before)
    if earlier.row is None:
        return row, kept
    still = tuple(column for column in kept if column in earlier.kept)
    return merged(row, (column for column in kept if column not in earlier.kept), earlier.row), still


def _gone(record: LogRecord, event: _Envelope | None) -> Change:
    epoch, lsn, ts_ms = (event.source.epoch, event.source.commit_lsn, event.ts_ms) if event else (0, 0, 0)
    return Change(*_place(record), None, (), "", epoch, lsn, ts_ms)


def _place(record: LogRecord) -> tuple[str, int, int, bytes]:
    topic, partition, offset, _, key, _, _ = record
    if key is None:
        raise _foreign(record, "it has no key")
    return topic, partition, offset, key


def _event(record: LogRecord) -> _Envelope | None:
    value = record[5]
    if value is None:
        return None
    try:
        event = _envelope(value)
    except msgspec.MsgspecError as error:
        raise _foreign(record, str(error)) from None
    if event.op != "d" and bytes(event.after) == _NULL:
        raise _foreign(record, f"op {event.op!r} without a row")
    return event


def _foreign(record: LogRecord, why: str) -> TopicMismatch:
    topic, partition, offset = record[:3]
    return TopicMismatch(
        f"record {offset} of {topic}-{partition} is no event of Tailrace: {why}",
        hint="another program writes to the topic; Tailrace must be its only writer",
        topic=topic,
        partition=partition,
        offset=offset,
    )
