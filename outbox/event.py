"""An event as it is handed in, its checks, and its text as a logical message. Pure; knows no table and no driver.

A message of ``pg_logical_emit_message(true, 'outbox', text)`` is one JSON object with the columns of the outbox table
as its fields. What has its default may be left out::

    {"id": "0199…", "aggregate_type": "order", "aggregate_id": "7", "type": "OrderPlaced", "version": 1,
     "payload": {…}, "headers": {"traceparent": "00-…"}, "ordering_key": null, "created_at": "2026-11-23T…Z"}

``payload`` is JSON as it was written, to the byte; ``payload_bytes`` is base64 and stands in its place.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from json import JSONDecodeError
from typing import Final, NoReturn

from outbox.errors import EventRefused, MessageInvalid, PayloadInvalid, PayloadTooLarge
from outbox.ids import new_id

MESSAGE_PREFIX: Final = "outbox"
"""The prefix of logical messages that are events."""

JSON_TYPE: Final = "application/json"
AVRO_TYPE: Final = "application/avro"
BYTES_TYPE: Final = "application/octet-stream"

EVENT_BYTES_MAX: Final = 1_000_000  # a broker's default max.message.bytes is 1,048,588, headers and key included
NAME_BYTES_MAX: Final = 200  # of types: part of a topic's name and of headers; a topic's name has 249 characters
KEY_BYTES_MAX: Final = 2_000  # of ids and keys: an entry of a PostgreSQL index takes about 2,700 bytes
HEADER_COUNT_MAX: Final = 100
RESERVED_HEADERS: Final = frozenset({"id", "type", "version", "content-type"})
"""Headers that a record has from the event itself, so that no other can take their names."""
VERSION_MAX: Final = (1 << 31) - 1
_DIGITS_MAX: Final = 20

_FIELDS: Final = (
    "id", "aggregate_type", "aggregate_id", "type", "version", "payload", "payload_bytes", "content_type", "headers",
    "ordering_key", "created_at",
)  # fmt: skip
_REQUIRED: Final = ("id", "aggregate_type", "aggregate_id", "type")
_BLANK: Final = " \t\n\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event. Raises EventRefused when a field is not what the table takes; values are never in the message.

    Attributes:
        aggregate_type: what kind of thing it is about; the topic is made of it. Any text: what a topic's name does not
            take is escaped by the router, each in its own way.
        aggregate_id: which one; the key of the record unless `ordering_key` is given.
        type: what happened, as ``OrderPlaced``.
        payload: JSON text as it is to be published, or None.
        payload_bytes: bytes as they are to be published, Avro or others, or None. Both None: an event without a body.
        version: of the payload's contract.
        content_type: what the payload is; ``application/json`` unless it is bytes.
        headers: text to text; W3C's ``traceparent`` and ``tracestate`` are here.
        ordering_key: events with the same one keep their order, whatever their aggregates; None: the aggregate's id.
        id: UUIDv7 of this process unless given. Consumers know a repetition by it.
        created_at: None: the database's clock when it is written.
    """

    aggregate_type: str
    aggregate_id: str
    type: str
    payload: str | None = None
    payload_bytes: bytes | None = None
    version: int = 1
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str | None = None
    id: uuid.UUID = field(default_factory=new_id)
    created_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.content_type:
            object.__setattr__(self, "content_type", JSON_TYPE if self.payload_bytes is None else BYTES_TYPE)
        _text("aggregate_type", self.aggregate_type, NAME_BYTES_MAX)
        _text("aggregate_id", self.aggregate_id, KEY_BYTES_MAX)
        _text("type", self.type, NAME_BYTES_MAX)
        _text("content_type", self.content_type, NAME_BYTES_MAX)
        if self.ordering_key is not None:
            _text("ordering_key", self.ordering_key, KEY_BYTES_MAX)
        if type(self.version) is not int or not 1 <= self.version <= VERSION_MAX:
            raise EventRefused(f"version of an event is a whole number from 1 to {VERSION_MAX}")
        if not isinstance(self.id, uuid.UUID):
            raise EventRefused("id of an event is a uuid.UUID")
        if self.created_at is not None and self.created_at.tzinfo is None:
            raise EventRefused("created_at of an event has no time zone", hint="datetime.now(UTC)")
        _check_headers(self.headers)
        _check_payload(self)

    @property
    def key(self) -> str:
        """The key of the record: who has the same one keeps the order."""
        return self.aggregate_id if self.ordering_key is None else self.ordering_key

    @property
    def size_bytes(self) -> int:
        """Of payload, headers and names together, about what the record takes in a topic."""
        body = len(self.payload.encode()) if self.payload is not None else len(self.payload_bytes or b"")
        words = (self.aggregate_type, self.aggregate_id, self.type, self.content_type, self.ordering_key or "")
        named = sum(len(name.encode()) + len(value.encode()) for name, value in self.headers.items())
        return body + named + sum(len(word.encode()) for word in words)


def json_text(value: object) -> str:
    """A value as JSON, compact, in the order given, non-ASCII as it is. Raises PayloadInvalid for what JSON has not.

    NaN and infinity are none of it, nor keys that are no text.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_no_json)
    except (ValueError, TypeError, RecursionError) as error:
        raise PayloadInvalid(
            f"the payload cannot be written as JSON: {_reason(error)}",
            hint="hand in text, numbers, lists and dicts; turn others into text first",
        ) from None
    return text


def check_size(event: Event, limit_bytes: int = EVENT_BYTES_MAX) -> None:
    """Raise PayloadTooLarge when the event is larger than `limit_bytes`."""
    size = event.size_bytes
    if size > limit_bytes:
        raise PayloadTooLarge(
            f"event {event.type} of {event.aggregate_type} has {size:,} bytes; the limit is {limit_bytes:,}",
            hint="keep what is large elsewhere and name its place in the event, or raise the writer's limit and "
            "max.message.bytes of the topic together",
            type=event.type,
            size_bytes=size,
            limit_bytes=limit_bytes,
        )


def to_message(event: Event) -> str:
    """The text of a logical message; `read_message` of it is the event."""
    members: dict[str, object] = {
        "id": str(event.id),
        "aggregate_type": event.aggregate_type,
        "aggregate_id": event.aggregate_id,
        "type": event.type,
        "version": event.version,
    }
    if event.payload_bytes is not None:
        members["payload_bytes"] = base64.b64encode(event.payload_bytes).decode()
    members["content_type"] = event.content_type
    members["headers"] = dict(event.headers)
    if event.ordering_key is not None:
        members["ordering_key"] = event.ordering_key
    if event.created_at is not None:
        members["created_at"] = event.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    # As written: a payload that went through a parser would lose what its numbers looked like.
    return text if event.payload is None else f'{text[:-1]},"payload":{event.payload}}}'


def read_message(text: str | bytes) -> Event:
    """The event of a logical message. Raises MessageInvalid, without values, for anything that is none."""
    spans = _members(_decoded(text))
    unknown = sorted(set(spans) - set(_FIELDS))
    if unknown:
        raise MessageInvalid(f"an outbox message has {len(unknown)} fields that an event has not")
    found = {name: value for name, (value, _) in spans.items() if value is not None}
    missing = [name for name in _REQUIRED if name not in found]
    if missing:
        raise MessageInvalid(f"an outbox message has no {', '.join(missing)}")
    arguments: dict[str, object] = {**found, "id": _uuid(found["id"])}
    if isinstance(headers := found.get("headers"), dict):
        arguments["headers"] = {name: value for name, value in headers.items() if name not in RESERVED_HEADERS}
    if "payload" in spans and not ("payload_bytes" in found and spans["payload"][0] is None):
        arguments["payload"] = spans["payload"][1]
    if "payload_bytes" in found:
        arguments["payload_bytes"] = _base64(found["payload_bytes"])
    if "created_at" in found:
        arguments["created_at"] = _time(found["created_at"])
    try:
        return Event(**arguments)  # type: ignore[arg-type]  # Event checks each field itself
    except EventRefused as error:
        raise MessageInvalid(f"an outbox message is no event: {error.message}") from None


def _members(text: str) -> dict[str, tuple[object, str]]:
    """Field -> its value and the text that it was written as."""
    decoder = json.JSONDecoder(parse_constant=_no_constant, parse_int=_whole)
    found: dict[str, tuple[object, str]] = {}
    try:
        at = _behind(text, 0, "{")
        more = text[at : at + 1] != "}"
        while more:
            name, at = decoder.raw_decode(text, at)
            if not isinstance(name, str) or name in found:
                raise MessageInvalid("an outbox message names a field twice, or not as text")
            begins = _behind(text, at, ":")
            value, ends = decoder.raw_decode(text, begins)
            found[name] = (value, text[begins:ends])
            at = _skip(text, ends)
            more = text[at : at + 1] == ","
            at = _skip(text, at + 1) if more else at
        if _behind(text, at, "}") != len(text):
            raise MessageInvalid("an outbox message goes on behind its JSON object")
    except (ValueError, RecursionError):
        raise MessageInvalid("an outbox message is not one JSON object") from None
    return found


def _behind(text: str, at: int, sign: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise JSONDecodeError("not there", "", 0)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _decoded(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise MessageInvalid("an outbox message is not UTF-8") from None


def _uuid(value: object) -> uuid.UUID:
    try:
        return uuid.UUID(value if isinstance(value, str) else "")
    except ValueError:
        raise MessageInvalid("id of an outbox message is no UUID") from None


def _base64(value: object) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise MessageInvalid("payload_bytes of an outbox message is not base64") from None


def _time(value: object) -> datetime:
    try:
        return datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise MessageInvalid("created_at of an outbox message is no time as 2026-11-23T10:00:00Z") from None


def _text(name: str, value: object, bytes_max: int) -> None:
    if not isinstance(value, str) or not value:
        raise EventRefused(f"{name} of an event is text, and not empty", field=name)
    length = len(_utf8(name, value))
    if length > bytes_max:
        raise EventRefused(f"{name} of an event has {length:,} bytes; it takes {bytes_max:,}", field=name)


def _utf8(name: str, value: str) -> bytes:
    """PostgreSQL's text takes neither a zero byte nor half of a surrogate pair."""
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise EventRefused(f"{name} of an event cannot be written as UTF-8", field=name) from None
    if b"\0" in data:
        raise EventRefused(f"{name} of an event has a zero byte", field=name)
    return data


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Mapping) or len(headers) > HEADER_COUNT_MAX:
        raise EventRefused(f"headers of an event are a mapping of at most {HEADER_COUNT_MAX} names")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise EventRefused("headers of an event are text to text", hint="turn numbers into text")
        if name in RESERVED_HEADERS:
            raise EventRefused(f"a record has a header {name!r} of its own", hint="give yours another name")
        _utf8("a header", name)
        _utf8("a header", value)


def _check_payload(event: Event) -> None:
    if event.payload is not None and event.payload_bytes is not None:
        raise EventRefused("an event has a payload or payload_bytes, not both")
    if event.payload_bytes is not None and not isinstance(event.payload_bytes, bytes):
        raise PayloadInvalid("payload_bytes of an event are bytes")
    if event.payload is None:
        return
    if not isinstance(event.payload, str):
        raise PayloadInvalid("payload of an event is JSON text", hint="outbox.event.json_text(value) makes it")
    if "\0" in event.payload:
        raise PayloadInvalid("payload of an event has a zero byte")
    try:
        event.payload.encode()
        json.loads(event.payload, parse_constant=_no_constant, parse_int=str)  # of any number of digits
    except JSONDecodeError as error:
        raise PayloadInvalid(
            f"payload of {event.type} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise PayloadInvalid(f"payload of {event.type} is not JSON: {_reason(error)}") from None


def _whole(digits: str) -> int | str:
    """Python takes no number of more than 4,300 digits; JSON does, and only `version` is read as one."""
    return int(digits) if len(digits) <= _DIGITS_MAX else digits


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and infinity are not JSON")


def _no_json(value: object) -> NoReturn:
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


def _reason(error: Exception) -> str:
    """What the standard library says holds no value in these cases; its other messages might."""
    known = ("NaN and infinity", "a value of type", "Circular reference", "Out of range float values")
    text = str(error)
    return text.partition(":")[0] if text.startswith(known) else type(error).__name__
