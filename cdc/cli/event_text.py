"""Formats an event for `cdc tail`: one line for people, one compact JSON document for programs.

Values come from databases and may hold anything: control characters are escaped, long values are truncated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
import msgspec
from rich.cells import cell_len, set_cell_size

from cdc.cli.output import plain
from cdc.lsn import Lsn

if TYPE_CHECKING:
    from cdc.inspect.log_reading import Event, Table
    from cdc.model.change_records import Headers
    from cdc.model.event_envelope import EventEnvelope

Piece: TypeAlias = tuple[str, dict[str, Any]]
"""A text and its `click.style` arguments."""

VALUE_CHARACTERS_MAX: Final = 40
_OPS: Final[dict[str, tuple[str, str]]] = {
    "c": ("insert", "green"),
    "u": ("update", "yellow"),
    "d": ("delete", "red"),
    "r": ("read", "blue"),
}
_DIM: Final = {"dim": True}
_PLAIN_TEXT: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:@+-/")
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Layout:
    """What all lines of one call share.

    Attributes:
        table_width: cells of the longest table name.
        width: cells of a line; 0 for no limit.
        with_offset: also show topic, partition and offset.
    """

    table_width: int
    width: int = 0
    with_offset: bool = False


def layout(tables: Sequence[Table], *, width: int, with_offset: bool) -> Layout:
    """Return the layout for events of these tables."""
    return Layout(max((cell_len(plain(table.name)) for table in tables), default=0), width, with_offset)


def line(event: Event, shape: Layout, today: str) -> str:
    """Return one coloured line; empty for a tombstone, whose delete was already shown.

    A date equal to `today` is not shown.
    """
    envelope = event.envelope
    if envelope is None:
        return ""
    source = envelope.source
    moment = datetime.fromtimestamp(envelope.ts_ms / 1000).astimezone()
    date = f"{moment:%Y-%m-%d}"
    verb, colour = _OPS.get(envelope.op, (envelope.op, "magenta"))
    table = plain(f"{source.schema}.{source.table}")
    pieces: list[Piece] = [
        (f"{'' if date == today else date + ' '}{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}  ", _DIM),
        (f"{Lsn(source.commit_lsn)!s:<11}", {"fg": "cyan"}),
        (f"{verb:<7}", {"fg": colour, "bold": True}),
        (set_cell_size(table, max(shape.table_width, cell_len(table))), {"bold": True}),
        ("  ", {}),
    ]
    if shape.with_offset:
        topic, partition, offset = event.record[:3]
        pieces.append((f"{plain(topic)}-{partition}@{offset}  ", _DIM))
    pieces += _row(envelope, event.record.key, event.record.headers)
    return _styled(pieces, shape.width)


def document(event: Event) -> bytes:
    """Return one line of JSON: the record as in Kafka, key and value byte for byte."""
    topic, partition, offset, timestamp_ms, key, value, headers = event.record
    extra = b""
    if headers:
        pairs = b",".join(_json(name) + b":" + _json(text.decode(errors="replace")) for name, text in headers)
        extra = b',"headers":{%b}' % pairs
    return b'{"topic":%b,"partition":%d,"offset":%d,"timestamp_ms":%d,"key":%b,"value":%b%b}\n' % (
        _json(topic),
        partition,
        offset,
        timestamp_ms,
        key or b"null",
        value or b"null",
        extra,
    )


_json: Final = msgspec.json.encode


def _row(envelope: EventEnvelope, key: bytes | None, headers: Headers | None) -> list[Piece]:
    before, after = _object(envelope.before), _object(envelope.after)
    keys = json.loads(key) if key else {}
    pieces: list[Piece] = [(f"{plain(column)}={_text(value)}  ", {"bold": True}) for column, value in keys.items()]
    moved = {name: text for name, text in headers or () if name.startswith("__debezium.")}
    for name, word in (("__debezium.newkey", "becomes"), ("__debezium.oldkey", "was")):
        if name in moved:
            old = " ".join(f"{plain(column)}={_text(value)}" for column, value in json.loads(moved[name]).items())
            pieces.append((f"({word} {old})  ", {"fg": "magenta"}))
    if envelope.op == "u" and before is not None:
        pieces += _difference(before, after or {})
    else:
        image = after if after is not None else before
        pieces += [
            piece for column, value in (image or {}).items() if column not in keys for piece in _pair(column, value)
        ]
    for column in envelope.source.unchanged:
        pieces += [(f"{plain(column)}=", _DIM), ("(unchanged)  ", _DIM)]
    for column in envelope.source.omitted:
        pieces += [(f"{plain(column)}=", _DIM), ("(left out: too large)  ", {"fg": "red"})]
    return pieces


def _difference(before: dict[str, Any], after: dict[str, Any]) -> list[Piece]:
    pieces: list[Piece] = []
    for column, value in after.items():
        old = before.get(column, _ABSENT)
        if old == value:
            continue
        if old is _ABSENT:
            pieces += _pair(column, value)
        else:
            pieces += [
                (f"{plain(column)}: ", _DIM),
                (_text(old), {"fg": "red"}),
                (" → ", _DIM),
                (f"{_text(value)}  ", {"fg": "green"}),
            ]
    return pieces or [("(no column changed)", _DIM)]


def _pair(column: str, value: object) -> list[Piece]:
    return [(f"{plain(column)}=", _DIM), (f"{_text(value)}  ", _DIM if value is None else {})]


def _text(value: object) -> str:
    """A value, truncated; text is quoted unless it is a plain word or looks like JSON."""
    if isinstance(value, str):
        cut = value if len(value) <= VALUE_CHARACTERS_MAX else value[: VALUE_CHARACTERS_MAX - 1] + "…"
        bare = value[:1] in ("{", "[") or (value and _PLAIN_TEXT.issuperset(value))
        return plain(cut) if bare else f'"{plain(cut)}"'
    text = plain(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 1] + "…"


def _object(raw: msgspec.Raw) -> dict[str, Any] | None:
    found = json.loads(bytes(raw))
    return found if isinstance(found, dict) else None


def _styled(pieces: Sequence[Piece], width: int) -> str:
    """Join the pieces in colour, truncated to `width` cells, without trailing blanks."""
    shown: list[str] = []
    room = width or 1 << 30
    for text, style in (*pieces[:-1], (pieces[-1][0].rstrip(), pieces[-1][1])):
        length = cell_len(text)
        if length > room:
            shown.append(click.style(set_cell_size(text, room - 1) + "…" if room > 0 else "", **style))
            break
        shown.append(click.style(text, **style) if style else text)
        room -= length
    return "".join(shown)
