"""What a row is in the store, and a mark; and what both say for comparison. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from sinks.cache.scripts import STATE
from sinks.contract import Content

_DIGITS: Final = 19  # of 2^63 - 1, the largest offset there can be
_NULL: Final = "null"
_tokens: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_values: Final = msgspec.json.Decoder(dict[str, object]).decode
_text: Final = msgspec.json.Decoder(str).decode

ROW: Final = "r"
GONE: Final = "d"
UNSTORED: Final = "i"


class Mark(NamedTuple):
    """What stands beside a row: the offset it is as of, whether it is one, of which topic, and its key."""

    version: int
    flag: str
    tag: str
    key: bytes


def tag_of(topic_id: str) -> str:
    """Six digits that tell a topic from one of the same name that is made later."""
    return hashlib.sha256(topic_id.encode()).hexdigest()[:6]


def digits(offset: int) -> bytes:
    """An offset as texts compare."""
    return b"%0*d" % (_DIGITS, offset)


def mark_text(offset: int, flag: str, tag: str, key: bytes) -> str:
    """A mark as the scripts read it."""
    return f"{offset:019d}{flag}{tag}{key.decode()}"


def parsed_mark(text: bytes | None) -> Mark | None:
    """A mark as it is in the store; None for none, and for what is not one of ours."""
    if text is None or len(text) < STATE or not text[:STATE].isascii() or not text[:_DIGITS].isdigit():
        return None
    state = text[_DIGITS:STATE].decode()
    return Mark(int(text[:_DIGITS]), state[0], state[1:], text[STATE:])


def fields_of(row: bytes) -> list[str]:
    """A row as names and values of a hash: texts as they are, NULL by its absence, everything else as JSON has it."""
    found: list[str] = []
    for column, raw in _tokens(row).items():
        token = str(raw, "utf-8")
        if token[0] == '"':
            found += (column, token[1:-1] if "\\" not in token else _text(token))
        elif token != _NULL:
            found += (column, token)
    return found


def columns_missing(row: bytes, kept: Iterable[str]) -> list[str]:
    """Those of `kept` that the row has no value for at all."""
    there = _tokens(row)
    return [column for column in kept if column not in there]


def content_of_value(text: bytes) -> Content:
    """A stored value by column; one that is no row of ours is a column without a name."""
    try:
        return _values(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {"": text}


def content_of_hash(fields: Mapping[bytes, bytes]) -> Content:
    """A stored hash by column, as texts: what type a value is of a hash does not tell."""
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
