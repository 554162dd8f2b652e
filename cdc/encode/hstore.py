r"""Converts hstore text to a JSON object: `encode.hstore = "json"`. Pure.

Parses the output of hstore_out, ``"a"=>"1", "b"=>NULL`` with ``\`` before quotes and backslashes
(https://www.postgresql.org/docs/18/hstore.html#HSTORE-EXTERNAL-REP).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from cdc.encode.arrays import unescaped
from cdc.errors import DecodeError

_TEXT: Final = rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_pair: Final = re.compile(rb"%b=>(?:NULL|%b)(, (?=.)|\Z)" % (_TEXT, _TEXT), re.DOTALL).match
_json_text: Final = msgspec.json.Encoder().encode


def hstore_object(text: bytes) -> bytes:
    """Encode keys and values as `hstore_to_jsonb` does: strings, or null. Raises DecodeError."""
    pairs = hstore_pairs(text)
    return b"{%b}" % b",".join(b"%b:%b" % (_string(key), _string(value)) for key, value in pairs)


def hstore_pairs(text: bytes) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values without escapes, None for null. Raises DecodeError."""
    pairs: list[tuple[bytes, bytes | None]] = []
    at = 0
    while at < len(text):
        match = _pair(text, at)
        if match is None:
            raise DecodeError("hstore", at, detail="invalid pair")
        value = match[2]
        pairs.append((unescaped(match[1]), None if value is None else unescaped(value)))
        at = match.end()
    return pairs


def _string(text: bytes | None) -> bytes:
    return b"null" if text is None else _json_text(text.decode())
