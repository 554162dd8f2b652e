"""Converts row messages of an outbox to records of event topics. Pure.

Offsets into a frame are those of `cdc.encode.row_records`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NoReturn

import msgspec
from murmurhash2 import murmurhash2

from cdc.encode.partitioner import SEED
from cdc.encode.row_records import TUPLE_AT
from cdc.errors import DecodeError, InvariantError, SourceRefused
from cdc.model.change_records import Headers, Stamp, Truncation
from cdc.wire import copy_text, pgoutput
from cdc.wire.frame import PAYLOAD_OFFSET
from outbox.copied_rows import CopiedOutbox
from outbox.event import RESERVED_HEADERS
from outbox.event_routes import NO_KEY, EventRoutes, RefusedEvent, size_of
from outbox.row_form import Extra, RowForm

_LENGTH: Final = struct.Struct(">I").unpack_from
_TRUE: Final = {b"t": b"true", b"f": b"false"}
_NO_HEADERS: Final = frozenset({None, b"{}", b"null", b""})
_texts_of: Final = msgspec.json.Decoder(dict[str, str]).decode
_headers_of: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text_of: Final = msgspec.json.Decoder(str).decode
_json: Final = msgspec.json.encode

Texts = list[bytes | None]


class RoutedRows:
    """See `cdc.contracts.Transcoding`; handles one shape of an outbox table."""

    def __init__(self, routes: EventRoutes, form: RowForm, copied: CopiedOutbox | None) -> None:
        self._routes = routes
        self.form = self._form = form
        self._copied = copied
        self._column_count = form.column_count.to_bytes(2, "big")
        self._columns = range(form.column_count)
        self._size_max = routes.row_bytes_max
        # `_event` appends a null to the columns, for fields that the table does not have.
        self._places = tuple(
            form.column_count if place is None else place
            for place in (
                *(form.id, form.type, form.aggregate_type, form.aggregate_id, form.ordering_key, form.version),
                *(form.content_type, form.headers, form.payload, form.payload_bytes),
            )
        )
        self._plain = not form.in_headers and not form.in_envelope
        self._null_refused = routes.settings.null_payload == "refuse"
        self._default_type = b"application/octet-stream" if form.binary else b"application/json" if form.json else None

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """Publish the event of an Insert message. Raises DecodeError."""
        if self._copied is not None and self._copied.has(stamp):
            return
        try:
            texts, end = self._texts(frame)
        except (IndexError, struct.error):
            self._broken(frame)
        if end != len(frame) or frame[30] != 78:
            self._broken(frame)
        self._event(texts, end, stamp, ordinal)

    def update(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:  # noqa: ARG002 - as the contract has it
        """Ignore an Update message, because the event is published already, or raise SourceRefused if configured."""
        if self._routes.settings.on_update == "stop":
            raise SourceRefused(
                f'a row of the outbox {self._form.table} was updated, and [outbox] on_update is "stop"',
                hint="the event was published as it was inserted; insert a new event instead, and ignore this update",
                command='[outbox] on_update = "ignore"',
                table=self._form.table,
            )
        self._routes.counts.ignored += 1
        return 0

    def delete(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """Ignore a Delete message: the event stays published."""

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:  # noqa: ARG002
        """Remove nothing, because an event is not the state of a key."""
        return 0

    def copied_keyless(self, lines: Sequence[bytes], stamp: Stamp, ordinal: int) -> int:
        """Publish rows that were read from the table, as `cdc.encode.row_records.RowRecords.copied_keyless`."""
        size = 0
        for number, line in enumerate(lines, ordinal):
            self._event(copy_text.texts(line, self._form.column_count), len(line), stamp, number)
            size += len(line)
        return size

    def _texts(self, frame: bytes) -> tuple[Texts, int]:
        """Return the texts of the columns and the offset after them. Raises IndexError or struct.error at the end."""
        if frame[TUPLE_AT : TUPLE_AT + 2] != self._column_count:
            raise IndexError
        at = TUPLE_AT + 2
        texts: Texts = []
        append = texts.append
        for _ in self._columns:
            kind = frame[at]
            if kind == 116:
                start = at + 5
                at = start + _LENGTH(frame, at + 1)[0]
                append(frame[start:at])
            elif kind == 110:
                append(None)
                at += 1
            else:
                raise IndexError
        return texts, at

    def _event(self, texts: Texts, size: int, stamp: Stamp, ordinal: int) -> None:
        """Put the event of a row into the buffer of its topic; `size` is at least the size of all texts."""
        texts.append(None)
        at_id, at_type, at_kind, at_aggregate, at_key, at_version, at_content, at_headers, at_payload, at_bytes = (
            self._places
        )
        identity, kind, aggregate = texts[at_id], texts[at_type], texts[at_kind]
        key = texts[at_key] or texts[at_aggregate]
        value = texts[at_bytes]
        if value is None:
            value = texts[at_payload]
            if value is not None and self._form.binary:
                value = _bytes(value)
        else:
            value = _bytes(value)
        routes = self._routes
        route = routes.routes.get(aggregate or b"") or routes.new_route(aggregate or b"")
        if not identity or not kind or not key or isinstance(route, str):
            reason = route if isinstance(route, str) else NO_KEY if not key else "no_id" if not identity else "no_type"
            routes.refuse(self._refused(reason, texts, key, value), stamp, ordinal)
            return
        content = texts[at_content] or self._default_type
        headers: Headers = [("id", identity), ("type", kind), ("version", texts[at_version] or b"1")]
        if content is not None:
            headers.append(("content-type", content))
        own, reason = texts[at_headers], ""
        if own not in _NO_HEADERS and own is not None and not _add_headers(headers, own):
            reason = "headers"
        if not self._plain:
            value, reason = self._with_extra(texts, value, headers, reason)
        if value is None and self._null_refused:
            reason = reason or "no_payload"
        if 2 * size > self._size_max and size_of(key, value, headers) > self._size_max:
            reason, value = "too_large", None
        if reason:
            routes.refuse(self._refused(reason, texts, key, value), stamp, ordinal)
            return
        routes.counts.events += 1
        if routes.traced is not None:
            routes.traced(headers)
        partitions = route.partitions
        partitions[(murmurhash2(key, SEED) & 0x7FFFFFFF) % len(partitions)].append((key, value, headers))

    def _with_extra(self, texts: Texts, value: bytes | None, headers: Headers, reason: str) -> tuple[bytes | None, str]:
        """Add the extra columns: to `headers`, or in an envelope around the value, which is returned."""
        form = self._form
        taken = {name for name, _ in headers}
        for extra in form.in_headers:
            text = texts[extra.index]
            if text is not None and extra.name not in taken:
                headers.append((extra.name, text))
        if not form.in_envelope or reason:
            return value, reason
        if form.payload_bytes is not None and texts[form.payload_bytes] is not None:
            return value, "envelope"
        payload = b"null" if value is None else value if form.json else _json(value.decode(errors="replace"))
        members = b"".join(b",%b:%b" % (_json(extra.name), _member(extra, texts)) for extra in form.in_envelope)
        return b'{"payload":%b%b}' % (payload, members), reason

    def _refused(self, reason: str, texts: Texts, key: bytes | None, value: bytes | None) -> RefusedEvent:
        form = self._form
        reported = [
            ("aggregate-type", texts[form.aggregate_type]),
            ("aggregate-id", texts[form.aggregate_id]),
            ("id", texts[form.id]),
            ("type", texts[form.type]),
            ("version", None if form.version is None else texts[form.version]),
            ("content-type", self._default_type if form.content_type is None else texts[form.content_type]),
            ("event-headers", None if form.headers is None else texts[form.headers]),
        ]
        headers = [(name, None if text is None else text[:_REPORTED_BYTES]) for name, text in reported]
        return RefusedEvent(reason, key, value, headers)

    def _broken(self, frame: bytes) -> NoReturn:
        """Raise the error that the exact decoder finds in a frame that this fast path could not read."""
        message = pgoutput.decode(frame[PAYLOAD_OFFSET:])
        row = getattr(message, "new", None)
        if row is not None and len(row) != self._form.column_count:
            detail = f"has {len(row)} columns, the relation {self._form.table} has {self._form.column_count}"
            raise DecodeError(chr(frame[PAYLOAD_OFFSET]), TUPLE_AT - PAYLOAD_OFFSET, detail=detail)
        if isinstance(message, pgoutput.Insert):
            raise DecodeError("I", 6, detail="has an unchanged value, which an insert cannot have")
        raise InvariantError(f"the router could not read a valid message of {self._form.table}")


_REPORTED_BYTES: Final = 4096
"""Maximum bytes of one field of a refused event: enough to identify it, and small enough for the record."""


def _bytes(text: bytes) -> bytes:
    r"""Decode a bytea as PostgreSQL prints it: ``\x`` and hex digits."""
    return bytes.fromhex(text[2:].decode())


def _add_headers(headers: Headers, text: bytes) -> bool:
    """Add the event's own headers; return False if they are not an object. Drops nulls; other values become JSON."""
    try:
        headers += [(name, value.encode()) for name, value in _texts_of(text).items() if name not in RESERVED_HEADERS]
    except msgspec.DecodeError:
        return _add_others(headers, text)
    return True


def _add_others(headers: Headers, text: bytes) -> bool:
    """Do the same for headers that are not all text."""
    try:
        given = _headers_of(text)
    except msgspec.DecodeError:
        return False
    for name, raw in given.items():
        value = bytes(raw)
        if name not in RESERVED_HEADERS and value != b"null":
            headers.append((name, _text_of(value).encode() if value[:1] == b'"' else value))
    return True


def _member(extra: Extra, texts: Texts) -> bytes:
    text = texts[extra.index]
    if text is None:
        return b"null"
    if extra.kind == "bare":
        return text
    return _TRUE[text] if extra.kind == "bool" else _json(text.decode(errors="replace"))
