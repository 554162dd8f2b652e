r"""hstore's text to a JSON object: `encode.hstore = "json"`. Pure.

Implements what hstore_out prints, ``"a"=>"1", "b"=>NULL`` with ``\`` before quotes and backslashes
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
    """Keys and values as `hstore_to_jsonb` has them: strings, or null. Raises DecodeError."""
    members: list[bytes] = []
    at = 0
    while at < len(text):
        match = _pair(text, at)
        if match is None:
            raise DecodeError("hstore", at, detail="has something that is no pair")
        value = match[2]
        members.append(b"%b:%b" % (_string(match[1]), b"null" if value is None else _string(value)))
        at = match.end()
    return b"{%b}" % b",".join(members)


def _string(text: bytes) -> bytes:
    return _json_text(unescaped(text).decode())
