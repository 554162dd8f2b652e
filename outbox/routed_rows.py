"""Row messages of an outbox to records: what the router does for each row. Pure.

Offsets into a frame are those of `cdc.encode.row_records`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

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
from outbox.row_form import Extra, RowForm

if TYPE_CHECKING:
    from outbox.router import Router

NO_KEY: Final = "no_key"
_LENGTH: Final = struct.Struct(">I").unpack_from
_TRUE: Final = {b"t": b"true", b"f": b"false"}
_NO_HEADERS: Final = frozenset({None, b"{}", b"null", b""})
_texts_of: Final = msgspec.json.Decoder(dict[str, str]).decode
_headers_of: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text_of: Final = msgspec.json.Decoder(str).decode
_json: Final = msgspec.json.encode

Texts = list[bytes | None]


@dataclass(slots=True)
class RefusedEvent:
    """An event that cannot be published as it is, with what there is of it."""

    reason: str
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class RoutedRows:
    """See `cdc.contracts.Transcoding`, for one shape of an outbox."""

    def __init__(self, router: Router, form: RowForm, copied: CopiedOutbox | None) -> None:
        self._router = router
        self.form = self._form = form
        self._copied = copied
        self._column_count = form.column_count.to_bytes(2, "big")
        self._columns = range(form.column_count)
        self._size_max = router.row_bytes_max
        # Behind the columns stands a null, for fields that the table does not have.
        self._places = tuple(
            form.column_count if place is None else place
            for place in (
                *(form.id, form.type, form.aggregate_type, form.aggregate_id, form.ordering_key, form.version),
                *(form.content_type, form.headers, form.payload, form.payload_bytes),
            )
        )
        self._plain = not form.in_headers and not form.in_envelope
        self._null_refused = router.settings.null_payload == "refuse"
        self._default_type = b"application/octet-stream" if form.binary else b"application/json" if form.json else None

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """An Insert message: an event. Raises DecodeError."""
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
        """An Update message: the row is an event already. Raises SourceRefused when that is to stop capture."""
        if self._router.settings.on_update == "stop":
            raise SourceRefused(
                f'a row of the outbox {self._form.table} was updated, and [outbox] on_update is "stop"',
                hint="the event is published as it was inserted; have the program insert another one, and ignore this",
                command='[outbox] on_update = "ignore"',
                table=self._form.table,
            )
        self._router.counts.ignored += 1
        return 0

    def delete(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """A Delete message: somebody tidies up."""

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:  # noqa: ARG002
        """Nothing: events are no state."""
        return 0

    def copied_keyless(self, lines: Sequence[bytes], stamp: Stamp, ordinal: int) -> int:
        """Rows that were read from the table, as `cdc.encode.row_records.RowRecords.copied_keyless`."""
        size = 0
        for number, line in enumerate(lines, ordinal):
            self._event(copy_text.texts(line, self._form.column_count), len(line), stamp, number)
            size += len(line)
        return size

    def _texts(self, frame: bytes) -> tuple[Texts, int]:
        """Texts of the columns, and the offset behind them. Raises IndexError or struct.error past the end."""
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
        """Put the event of a row where it belongs; `size` is that of all its texts, or more."""
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
        router = self._router
        route = router.routes.get(aggregate or b"") or router.new_route(aggregate or b"")
        if not identity or not kind or not key or isinstance(route, str):
            reason = route if isinstance(route, str) else NO_KEY if not key else "no_id" if not identity else "no_type"
            router.refuse(self._refused(reason, texts, key, value), stamp, ordinal)
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
        if 2 * size > self._size_max and _size(key, value, headers) > self._size_max:
            reason, value = "too_large", None
        if reason:
            router.refuse(self._refused(reason, texts, key, value), stamp, ordinal)
            return
        router.counts.events += 1
        partitions = route.partitions
        partitions[(murmurhash2(key, SEED) & 0x7FFFFFFF) % len(partitions)].append((key, value, headers))

    def _with_extra(self, texts: Texts, value: bytes | None, headers: Headers, reason: str) -> tuple[bytes | None, str]:
        """The further columns: `headers` get those that go there; the value with those that go around it."""
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
        told = [
            ("aggregate-type", texts[form.aggregate_type]),
            ("aggregate-id", texts[form.aggregate_id]),
            ("id", texts[form.id]),
            ("type", texts[form.type]),
            ("version", None if form.version is None else texts[form.version]),
            ("content-type", self._default_type if form.content_type is None else texts[form.content_type]),
            ("event-headers", None if form.headers is None else texts[form.headers]),
        ]
        headers = [(name, None if text is None else text[:_TOLD_BYTES]) for name, text in told]
        return RefusedEvent(reason, key, value, headers)

    def _broken(self, frame: bytes) -> NoReturn:
        """Ask the exact decoder what is wrong; it must find something."""
        message = pgoutput.decode(frame[PAYLOAD_OFFSET:])
        row = getattr(message, "new", None)
        if row is not None and len(row) != self._form.column_count:
            detail = f"has {len(row)} columns, the relation {self._form.table} has {self._form.column_count}"
            raise DecodeError(chr(frame[PAYLOAD_OFFSET]), TUPLE_AT - PAYLOAD_OFFSET, detail=detail)
        if isinstance(message, pgoutput.Insert):
            raise DecodeError("I", 6, detail="has an unchanged value where there can be none")
        raise InvariantError(f"the router refused a message of {self._form.table} that is well formed")


_TOLD_BYTES: Final = 4096
"""Of one field of an event that is refused: an operator must know it again, and the record must fit."""


def _bytes(text: bytes) -> bytes:
    r"""A bytea as PostgreSQL prints it, ``\x`` and hex digits."""
    return bytes.fromhex(text[2:].decode())


def _add_headers(headers: Headers, text: bytes) -> bool:
    """Add the event's own; False when they are no object. Text is itself, null is left out, others are their JSON."""
    try:
        headers += [(name, value.encode()) for name, value in _texts_of(text).items() if name not in RESERVED_HEADERS]
    except msgspec.DecodeError:
        return _add_others(headers, text)
    return True


def _add_others(headers: Headers, text: bytes) -> bool:
    """As `_add_headers`, where not all of them are text."""
    try:
        given = _headers_of(text)
    except msgspec.DecodeError:
        return False
    for name, raw in given.items():
        value = bytes(raw)
        if name not in RESERVED_HEADERS and value != b"null":
            headers.append((name, _text_of(value).encode() if value[:1] == b'"' else value))
    return True


def _size(key: bytes, value: bytes | None, headers: Headers) -> int:
    return len(key) + len(value or b"") + sum(len(name) + len(text) for name, text in headers)


def _member(extra: Extra, texts: Texts) -> bytes:
    text = texts[extra.index]
    if text is None:
        return b"null"
    if extra.kind == "bare":
        return text
    return _TRUE[text] if extra.kind == "bool" else _json(text.decode(errors="replace"))
