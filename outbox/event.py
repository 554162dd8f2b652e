"""The event that an application writes: its fields, its checks, and its text as a logical message. Pure.

The text of ``pg_logical_emit_message(true, 'outbox', text)`` is one JSON object with the columns of the outbox table as
fields. Fields with a default may be missing::

    {"id": "0199…", "aggregate_type": "order", "aggregate_id": "7", "type": "OrderPlaced", "version": 1,
     "payload": {…}, "headers": {"traceparent": "00-…"}, "ordering_key": null, "created_at": "2026-11-23T…Z"}

``payload`` is JSON and is published byte for byte. ``payload_bytes`` is base64 and replaces it.
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

EVENT_BYTES_MAX: Final = 1_000_000  # a broker's default max.message.bytes is 1,048,588, including headers and key
NAME_BYTES_MAX: Final = 200  # of a type, which is part of a topic name; a topic name has at most 249 characters
KEY_BYTES_MAX: Final = 2_000  # of an id or key: an entry of a PostgreSQL index has at most about 2,700 bytes
HEADER_COUNT_MAX: Final = 100
RESERVED_HEADERS: Final = frozenset({"id", "type", "version", "content-type"})
"""Headers that the service sets from the event itself; an event's own headers cannot have these names."""
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
    """An event. Raises EventRefused if a field is invalid; the message contains no values.

    Attributes:
        aggregate_type: type of the entity that the event is about; determines the topic. May be any text: the router
            escapes characters that a topic name cannot have.
        aggregate_id: id of that entity; the key of the record unless `ordering_key` is given.
        type: what happened, e.g. ``OrderPlaced``.
        payload: JSON text, published as it is, or None.
        payload_bytes: bytes, published as they are, e.g. Avro; or None. If both are None, the event has no body.
        version: version of the payload's contract.
        content_type: media type of the payload; by default ``application/json``, or octet-stream for bytes.
        headers: text by name, including W3C's ``traceparent`` and ``tracestate``.
        ordering_key: events with the same key keep their order, even of different aggregates; None: `aggregate_id`.
        id: identifies the event for consumers, which filter repetitions by it. Default: a new UUIDv7.
        created_at: time of the event; None: the database's clock when the event is written.
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
            raise EventRefused(f"invalid version: expected an integer from 1 to {VERSION_MAX}")
        if not isinstance(self.id, uuid.UUID):
            raise EventRefused("invalid id: expected a uuid.UUID")
        if self.created_at is not None and self.created_at.tzinfo is None:
            raise EventRefused("created_at has no time zone", hint="pass e.g. datetime.now(UTC)")
        _check_headers(self.headers)
        _check_payload(self)

    @property
    def key(self) -> str:
        """Return the key of the record; events with the same key keep their order."""
        return self.aggregate_id if self.ordering_key is None else self.ordering_key

    @property
    def size_bytes(self) -> int:
        """Return the size of payload, headers and names, which is about the size of the record."""
        body = len(self.payload.encode()) if self.payload is not None else len(self.payload_bytes or b"")
        words = (self.aggregate_type, self.aggregate_id, self.type, self.content_type, self.ordering_key or "")
        named = sum(len(name.encode()) + len(value.encode()) for name, value in self.headers.items())
        return body + named + sum(len(word.encode()) for word in words)


def json_text(value: object) -> str:
    """Return a value as compact JSON; keeps the order of members and non-ASCII characters.

    Raises PayloadInvalid for values that JSON cannot represent, such as NaN, infinity, or keys that are not text.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_no_json)
    except (ValueError, TypeError, RecursionError) as error:
        raise PayloadInvalid(
            f"the payload cannot be written as JSON: {_reason(error)}",
            hint="use text, numbers, lists and dicts; convert other types to text first",
        ) from None
    return text


def check_size(event: Event, limit_bytes: int = EVENT_BYTES_MAX) -> None:
    """Raise PayloadTooLarge when the event is larger than `limit_bytes`."""
    size = event.size_bytes
    if size > limit_bytes:
        raise PayloadTooLarge(
            f"event {event.type} of {event.aggregate_type} has {size:,} bytes; the limit is {limit_bytes:,}",
            hint="store large data elsewhere and put a reference into the event, or raise both the writer's bytes_max "
            "and max.message.bytes of the topic",
            type=event.type,
            size_bytes=size,
            limit_bytes=limit_bytes,
        )


def to_message(event: Event) -> str:
    """Return the event as the text of a logical message; `read_message` is the inverse."""
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
    # Insert the text of the payload: parsing it would change how its numbers are written.
    return text if event.payload is None else f'{text[:-1]},"payload":{event.payload}}}'


def read_message(text: str | bytes) -> Event:
    """Parse a logical message. Raises MessageInvalid, without values, if it is not a valid event."""
    spans = _members(_decoded(text))
    unknown = sorted(set(spans) - set(_FIELDS))
    if unknown:
        raise MessageInvalid(f"the outbox message has {len(unknown)} unknown fields")
    found = {name: value for name, (value, _) in spans.items() if value is not None}
    missing = [name for name in _REQUIRED if name not in found]
    if missing:
        raise MessageInvalid(f"the outbox message lacks {', '.join(missing)}")
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
        raise MessageInvalid(f"the outbox message is not a valid event: {error.message}") from None


def _members(text: str) -> dict[str, tuple[object, str]]:
    """Return the value and the original text of each field."""
    decoder = json.JSONDecoder(parse_constant=_no_constant, parse_int=_whole)
    found: dict[str, tuple[object, str]] = {}
    try:
        at = _after(text, 0, "{")
        more = text[at : at + 1] != "}"
        while more:
            name, at = decoder.raw_decode(text, at)
            if not isinstance(name, str) or name in found:
                raise MessageInvalid("the outbox message has a duplicate field, or a field name that is not text")
            begins = _after(text, at, ":")
            value, ends = decoder.raw_decode(text, begins)
            found[name] = (value, text[begins:ends])
            at = _skip(text, ends)
            more = text[at : at + 1] == ","
            at = _skip(text, at + 1) if more else at
        if _after(text, at, "}") != len(text):
            raise MessageInvalid("the outbox message has text after its JSON object")
    except (ValueError, RecursionError):
        raise MessageInvalid("the outbox message is not one JSON object") from None
    return found


def _after(text: str, at: int, sign: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise JSONDecodeError("missing", "", 0)
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
        raise MessageInvalid("the outbox message is not UTF-8") from None


def _uuid(value: object) -> uuid.UUID:
    try:
        return uuid.UUID(value if isinstance(value, str) else "")
    except ValueError:
        raise MessageInvalid("invalid id in the outbox message: expected a UUID") from None


def _base64(value: object) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise MessageInvalid("invalid payload_bytes in the outbox message: expected base64") from None


def _time(value: object) -> datetime:
    try:
        return datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise MessageInvalid("invalid created_at in the outbox message: expected e.g. 2026-11-23T10:00:00Z") from None


def _text(name: str, value: object, bytes_max: int) -> None:
    if not isinstance(value, str) or not value:
        raise EventRefused(f"invalid {name}: expected text that is not empty", field=name)
    length = len(_utf8(name, value))
    if length > bytes_max:
        raise EventRefused(f"{name} has {length:,} bytes; the limit is {bytes_max:,}", field=name)


def _utf8(name: str, value: str) -> bytes:
    """Encode a text; PostgreSQL's type text allows neither a zero byte nor an unpaired surrogate."""
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise EventRefused(f"{name} cannot be encoded as UTF-8", field=name) from None
    if b"\0" in data:
        raise EventRefused(f"{name} contains a zero byte", field=name)
    return data


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Mapping) or len(headers) > HEADER_COUNT_MAX:
        raise EventRefused(f"invalid headers: expected a mapping with at most {HEADER_COUNT_MAX} names")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise EventRefused("invalid headers: names and values must be text", hint="convert numbers to text")
        if name in RESERVED_HEADERS:
            raise EventRefused(f"header {name!r} is reserved for the record itself", hint="rename your header")
        _utf8("a header", name)
        _utf8("a header", value)


def _check_payload(event: Event) -> None:
    if event.payload is not None and event.payload_bytes is not None:
        raise EventRefused("an event cannot have both payload and payload_bytes")
    if event.payload_bytes is not None and not isinstance(event.payload_bytes, bytes):
        raise PayloadInvalid("invalid payload_bytes: expected bytes")
    if event.payload is None:
        return
    if not isinstance(event.payload, str):
        raise PayloadInvalid("invalid payload: expected JSON text", hint="outbox.event.json_text(value) returns it")
    if "\0" in event.payload:
        raise PayloadInvalid("the payload contains a zero byte")
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
    """Keep long numbers as text: Python parses at most 4,300 digits, JSON has no limit, and only `version` matters."""
    return int(digits) if len(digits) <= _DIGITS_MAX else digits


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and infinity are not JSON")


def _no_json(value: object) -> NoReturn:
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


def _reason(error: Exception) -> str:
    """Return the standard library's message if it contains no value, else the class of the error."""
    known = ("NaN and infinity", "a value of type", "Circular reference", "Out of range float values")
    text = str(error)
    return text.partition(":")[0] if text.startswith(known) else type(error).__name__
