"""Names of aliases, indices and documents: unique, legal in OpenSearch, and stable. Pure.

The alias of a table is ``<name>.<sink>.<schema>.<table>``. Lower-case letters, digits and ``_`` stay; every other byte
becomes ``-`` and two hex digits, because index names have no capitals. Its index is ``<alias>-g<N>-<T>``: N is the
generation, and T is a hash of the topic's id, so that a recreated topic never uses the index of the old one. Writes
go to ``<index>-w``, an alias of the index: they can require that it exists.

The id of a document is made of the key's values in the order of the key, joined by commas. Characters other than
letters, digits and ``_:@.-`` become ``%`` and two hex digits. A longer id becomes ``~`` and its SHA-256.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes

import msgspec

from cdc.errors import DecodeError

ALIAS_BYTES_MAX: Final = 220
"""OpenSearch allows 255 bytes for an index name; the generation needs some of them."""
ID_BYTES_MAX: Final = 512
"""OpenSearch's limit: it refuses the whole request for a longer `_id`."""
REQUIRED: Final = {"require_alias": "true"}
"""Parameter of bulk requests that name `writable` aliases."""
_PLAIN: Final = frozenset((string.ascii_lowercase + string.digits + "_").encode())
_SAFE: Final = "_:@.-"
_HASHED: Final = "~"
NO_DOCUMENT: Final = "%"
"""An `_id` that no document has: two hex digits follow this character."""
_DIGEST_LENGTH: Final = 16
_GENERATION: Final = re.compile(r"-g([1-9][0-9]{0,8})-[0-9a-f]{8}")
# Nearly every key: one column, an integer or a text that needs no escape.
_ORDINARY: Final = re.compile(rb'\{"[^"\\]*":(?:(-?[0-9]+)|"([A-Za-z0-9_:@.-]+)")\}')
_VALUES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)


class IndexName(NamedTuple):
    """The parts of an index name: alias and generation."""

    alias: str
    generation: int


def alias_of(pipeline: str, sink: str, table: str) -> str:
    """Return the alias of ``schema.table``, which readers search."""
    namespace, _, name = table.partition(".")
    alias = ".".join(_escape(part) for part in (pipeline, sink, namespace, name))
    if len(alias) <= ALIAS_BYTES_MAX:
        return alias
    digest = hashlib.sha256(alias.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{alias[: ALIAS_BYTES_MAX - _DIGEST_LENGTH - 2]}-h{digest}"


def every_of(pipeline: str, sink: str) -> str:
    """Return a pattern that matches every alias of a sink. No alias is cut inside these two names."""
    return f"{_escape(pipeline)}.{_escape(sink)}.*"


def index_of(alias: str, generation: int, topic_id: str) -> str:
    """Return the name of the index behind an alias."""
    return f"{alias}-g{generation}-{hashlib.sha256(topic_id.encode()).hexdigest()[:8]}"


def writable(index: str) -> str:
    """Return the alias of an index that writes name; no escape has a w.

    A write that names a deleted index creates it, without mapping and alias, unless `action.auto_create_index` is off.
    A write with `REQUIRED` that names an alias fails.
    """
    return f"{index}-w"


def parse_index(index: str) -> IndexName | None:
    """Parse a name from `index_of`; None for any other name."""
    found = _GENERATION.search(index)
    if found is None or found.end() != len(index):
        return None
    return IndexName(index[: found.start()], int(found[1]))


def document_id(key: bytes) -> str:
    """Return the `_id` of a key as the topic has it. Raises DecodeError when it is not a JSON object."""
    ordinary = _ORDINARY.fullmatch(key)
    if ordinary is not None:
        text = (ordinary[1] or ordinary[2]).decode()
    else:
        try:
            text = ",".join(_part(value) for value in _VALUES.decode(key).values())
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise DecodeError("a record's key", 0, detail="is not a JSON object") from None
    if text and len(text) <= ID_BYTES_MAX:
        return text
    return _HASHED + hashlib.sha256(text.encode()).hexdigest()


def key_of(values: dict[str, msgspec.Raw], columns: Sequence[str]) -> bytes | None:
    """Return the key, as the topic has it, from a document's values; None when a key column is missing."""
    if not columns or any(column not in values for column in columns):
        return None
    return msgspec.json.encode({column: _spelled(values[column]) for column in columns})


def _spelled(value: msgspec.Raw) -> msgspec.Raw | str:
    """Return a value as keys have it: texts in one spelling, numbers with their digits."""
    raw = bytes(value)
    return _TEXT.decode(raw) if raw[:1] == b'"' else value


def _part(value: msgspec.Raw) -> str:
    raw = bytes(value)
    return quote_from_bytes(_TEXT.decode(raw).encode() if raw[:1] == b'"' else raw, _SAFE)


def _escape(identifier: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"-{byte:02x}" for byte in identifier.encode())
