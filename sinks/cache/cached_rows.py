"""The format of rows and version marks in the store, and their content for comparison. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from sinks.cache.scripts import STATE
from sinks.contract import Content

_DIGITS: Final = 19  # of 2^63 - 1, the largest possible offset
_NULL: Final = "null"
_tokens: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_values: Final = msgspec.json.Decoder(dict[str, object]).decode
_text: Final = msgspec.json.Decoder(str).decode

ROW: Final = "r"
GONE: Final = "d"
UNSTORED: Final = "i"


class Mark(NamedTuple):
    """The version mark beside a row: offset, kind of entry, tag of the topic, and key."""

    version: int
    flag: str
    tag: str
    key: bytes


def tag_of(topic_id: str) -> str:
    """Return six digits that distinguish a topic from a later one of the same name."""
    return hashlib.sha256(topic_id.encode()).hexdigest()[:6]


def digits(offset: int) -> bytes:
    """Return an offset as text that sorts like the number."""
    return b"%0*d" % (_DIGITS, offset)


def mark_text(offset: int, flag: str, tag: str, key: bytes) -> str:
    """Return a mark as the scripts read it."""
    return f"{offset:019d}{flag}{tag}{key.decode()}"


def parsed_mark(text: bytes | None) -> Mark | None:
    """Parse a mark from the store; None without one, and for a value that another program wrote."""
    if text is None or len(text) < STATE or not text[:STATE].isascii() or not text[:_DIGITS].isdigit():
        return None
    state = text[_DIGITS:STATE].decode()
    return Mark(int(text[:_DIGITS]), state[0], state[1:], text[STATE:])


def fields_of(row: bytes) -> list[str]:
    """Return a row as field names and values of a hash: text as it is, NULL left out, everything else as JSON."""
    found: list[str] = []
    for column, raw in _tokens(row).items():
        token = str(raw, "utf-8")
        if token[0] == '"':
            found += (column, token[1:-1] if "\\" not in token else _text(token))
        elif token != _NULL:
            found += (column, token)
    return found


def columns_missing(row: bytes, kept: Iterable[str]) -> list[str]:
    """Return the columns of `kept` that are missing in the row."""
    there = _tokens(row)
    return [column for column in kept if column not in there]


def content_of_value(text: bytes) -> Content:
    """Return a stored value by column; a value that is not a row becomes a column without a name."""
    try:
        return _values(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {"": text}


def content_of_hash(fields: Mapping[bytes, bytes]) -> Content:
    """Return a stored hash by column, as texts: a hash does not record types."""
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
