"""Folds the records of a key into the change that a store must apply. Pure.

Only the newest record of a key counts. An update may lack values (`source.unchanged`). They come from earlier records
of the key in the same batch, and otherwise from the row in the store (`Change.kept`). No value is carried across a
delete, an insert or a snapshot row, because there a new row begins that never had the old values. Values in
`source.reselected` are used as they are: the store's own value may be older than a record that compaction has removed.
A delete is an event followed by a tombstone; either one alone deletes the key.

docs/howto/large-values.md states the rule. `cdc.verify.verify_rule` implements it a second time, record by record, to
check this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from cdc.errors import TopicMismatch
from cdc.model.event_envelope import EventEnvelope, decode_envelope
from sinks.contract import Change

if TYPE_CHECKING:
    from cdc.model.log_record import LogRecord

Key: TypeAlias = tuple[str, int, bytes]
"""Topic, partition, key."""

_NULL: Final = b"null"


_values: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def by_key(records: Iterable[LogRecord]) -> dict[Key, list[LogRecord]]:
    """Group records by key, in log order; keys in the order of their first record.

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
    """Return the state of a key after these records of it, at least one, in log order.

    `epoch`, `commit_lsn` and `ts_ms` are 0 for a tombstone without its delete event, because it lacks them.

    Raises:
        TopicMismatch: a value is not an event of Tailrace.
    """
    newest = records[-1]
    event = _event(newest)
    if event is None:  # a tombstone: the delete event before it has the position
        event = _event(records[-2]) if len(records) > 1 else None
        return _gone(newest, event)
    if event.op == "d":
        return _gone(newest, event)
    row, source = bytes(event.after), event.source
    kept = source.unchanged
    lacks: tuple[str, ...] = ()
    if kept:
        row, kept, lacks = _completed(row, kept, records[:-1] if event.op == "u" else None)
    place = _place(newest)
    return Change(*place, row, kept, source.schema_id, source.epoch, source.commit_lsn, event.ts_ms, lacks)


def merged(row: bytes, kept: Iterable[str], before: bytes) -> bytes:
    """Return the row with the values that `before` has for the columns `kept`; other columns stay as they are."""
    earlier = _values(before)
    values = _values(row) | {column: earlier[column] for column in kept if column in earlier}
    return msgspec.json.encode(values)


def _completed(
    row: bytes, unchanged: tuple[str, ...], before: Sequence[LogRecord] | None
) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """Take unchanged values from the key's earlier records; None: the row is new, so no earlier record counts.

    Returns the row, the columns whose values the store must keep, and the columns without any known value.
    """
    found: dict[str, msgspec.Raw] = {}
    wanted, begun = set(unchanged), before is None
    for record in reversed(before or ()):
        if begun or not wanted:
            break
        event = _event(record)
        if event is None or event.op == "d":
            begun = True
            break
        values = _values(event.after)
        found |= {column: values[column] for column in wanted if column in values}
        begun = event.op != "u"
        wanted &= {*event.source.unchanged}
    if found:
        row = msgspec.json.encode(_values(row) | found)
    if begun:
        return row, (), tuple(column for column in unchanged if column not in found)
    return row, tuple(column for column in unchanged if column in wanted), ()


def _gone(record: LogRecord, event: EventEnvelope | None) -> Change:
    epoch, lsn, ts_ms = (event.source.epoch, event.source.commit_lsn, event.ts_ms) if event else (0, 0, 0)
    return Change(*_place(record), None, (), "", epoch, lsn, ts_ms)


def _place(record: LogRecord) -> tuple[str, int, int, bytes]:
    topic, partition, offset, _, key, _, _ = record
    if key is None:
        raise _foreign(record, "it has no key")
    return topic, partition, offset, key


def _event(record: LogRecord) -> EventEnvelope | None:
    value = record.value
    if value is None:
        return None
    try:
        event = decode_envelope(value)
    except msgspec.MsgspecError as error:
        raise _foreign(record, str(error)) from None
    if event.op != "d" and bytes(event.after) == _NULL:
        raise _foreign(record, f"op {event.op!r} without a row")
    return event


def _foreign(record: LogRecord, why: str) -> TopicMismatch:
    topic, partition, offset = record[:3]
    return TopicMismatch(
        f"record {offset} of {topic}-{partition} is not an event of Tailrace: {why}",
        hint="another program writes to the topic; Tailrace must be its only writer",
        topic=topic,
        partition=partition,
        offset=offset,
    )
