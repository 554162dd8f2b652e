"""Decodes records in the formats ``json`` and ``flat`` for `cdc verify`: record -> `Event`. Pure.

The decoders share no code with the sinks, so that faults of a sink's decoder show. `cdc.verify.avro_events` decodes
``avro``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from cdc.errors import TopicMismatch
from cdc.model.change_records import Headers
from cdc.model.log_record import LogRecord
from cdc.verify.verify_rule import Event


class _Source(msgspec.Struct, frozen=True):
    epoch: int
    commit_lsn: int
    schema_id: str = ""
    unchanged: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()
    txId: int | None = None  # noqa: N815 - Debezium's name


class _Envelope(msgspec.Struct, frozen=True):
    after: msgspec.Raw
    source: _Source
    op: str
    ts_ms: int


class Format(NamedTuple):
    """The functions that read the records of a topic.

    Attributes:
        event: decodes a record. Raises TopicMismatch for a record that capture did not write.
        key: returns a key as a JSON object.
    """

    event: Callable[[LogRecord], Event]
    key: Callable[[bytes], bytes]


_OPS: Final = frozenset("crud")
_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_Headers: TypeAlias = dict[str, bytes]


def json_event(record: LogRecord) -> Event:
    """Read an event of `encode.format = "json"`. Raises TopicMismatch."""
    value = record.value
    checked_key(record)
    if value is None:
        return Event("", None)
    try:
        found = _envelope(value)
    except msgspec.MsgspecError as error:
        raise foreign(record, str(error)) from None
    source, row = found.source, bytes(found.after)
    event = Event(
        found.op,
        None if found.op == "d" or row == b"null" else row,
        source.unchanged,
        source.omitted,
        source.schema_id,
        source.epoch,
        source.commit_lsn,
        found.ts_ms,
        source.txId,
    )
    return checked(record, event)


def flat_event(record: LogRecord) -> Event:
    """Read a row of `encode.format = "flat"`, whose position is in headers. Raises TopicMismatch."""
    checked_key(record)
    headers = _texts(record.headers)
    try:
        if record.value is not None:
            _object(record.value)
        event = Event(
            headers["__op"].decode(),
            record.value,
            _listed(headers, "__unchanged"),
            (),
            headers["__schema_id"].decode(),
            int(headers["__epoch"]),
            int(headers["__commit_lsn"]),
            int(headers["__ts_ms"]),
        )
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise foreign(record, f"its headers or value do not have the format flat ({error})") from None
    return checked(record, event)


def checked(record: LogRecord, event: Event) -> Event:
    """Return the event. Raises TopicMismatch when its operation and row do not match."""
    if event.op not in _OPS or (event.row is None) is not (event.op == "d"):
        raise foreign(record, f"op {event.op!r} {'without' if event.row is None else 'with'} a row")
    return event


def checked_key(record: LogRecord) -> bytes:
    """Return the key. Raises TopicMismatch for a record without one; compacted topics have none."""
    if record.key is None:
        raise foreign(record, "it has no key")
    return record.key


def foreign(record: LogRecord, why: str) -> TopicMismatch:
    """Return the error for a record that capture did not write."""
    return TopicMismatch(
        f"record {record.offset} of {record.topic}-{record.partition} is not a Tailrace event: {why}",
        hint="another program writes to the topic; Tailrace must be its only writer",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )


def same_key(key: bytes) -> bytes:
    """Return the key unchanged: in these formats it is JSON."""
    return key


JSON: Final = Format(json_event, same_key)
FLAT: Final = Format(flat_event, same_key)


def _texts(headers: Headers | None) -> _Headers:
    return dict(headers or ())


def _listed(headers: _Headers, name: str) -> tuple[str, ...]:
    return _names(headers[name]) if name in headers else ()
