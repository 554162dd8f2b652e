"""Names of aliases, indices and documents: injective, legal in OpenSearch, the same for ever. Pure.

A table's alias is ``<name>.<sink>.<schema>.<table>``. Small letters, digits and ``_`` stand for themselves; every other
byte is ``-`` and two hex digits, since index names have no capitals. Its index is ``<alias>-g<N>-<T>``: N is the
generation, T tells the topic's id, so that a worker of a topic that was made again finds no index of the old name.

A document's id is made of the key's values in the order of the key, with a comma between; whatever is not a letter, a
digit or one of ``_:@.-`` is ``%`` and two hex digits. Longer ones are ``~`` and the SHA-256 of it.
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
"""OpenSearch takes 255 bytes for an index; the generation needs some."""
ID_BYTES_MAX: Final = 512
"""Of OpenSearch: a longer `_id` is refused with the whole request."""
_PLAIN: Final = frozenset((string.ascii_lowercase + string.digits + "_").encode())
_SAFE: Final = "_:@.-"
_HASHED: Final = "~"
_DIGEST_LENGTH: Final = 16
_GENERATION: Final = re.compile(r"-g([1-9][0-9]{0,8})-[0-9a-f]{8}")
# Nearly every key: one column, an integer or a text that needs no escape.
_ORDINARY: Final = re.compile(rb'\{"[^"\\]*":(?:(-?[0-9]+)|"([A-Za-z0-9_:@.-]+)")\}')
_VALUES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)


class IndexName(NamedTuple):
    """An index of ours: of which alias, and which generation."""

    alias: str
    generation: int


def alias_of(pipeline: str, sink: str, table: str) -> str:
    """What readers search: the alias of ``schema.table``."""
    namespace, _, name = table.partition(".")
    alias = ".".join(_escape(part) for part in (pipeline, sink, namespace, name))
    if len(alias) <= ALIAS_BYTES_MAX:
        return alias
    digest = hashlib.sha256(alias.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{alias[: ALIAS_BYTES_MAX - _DIGEST_LENGTH - 2]}-h{digest}"


def every_of(pipeline: str, sink: str) -> str:
    """A pattern that fits every alias of a sink but those that were cut inside of these two names, which none is."""
    return f"{_escape(pipeline)}.{_escape(sink)}.*"


def index_of(alias: str, generation: int, topic_id: str) -> str:
    """The index behind an alias."""
    return f"{alias}-g{generation}-{hashlib.sha256(topic_id.encode()).hexdigest()[:8]}"


def parse_index(index: str) -> IndexName | None:
    """What `index_of` made; None for any other name."""
    found = _GENERATION.search(index)
    if found is None or found.end() != len(index):
        return None
    return IndexName(index[: found.start()], int(found[1]))


def document_id(key: bytes) -> str:
    """The `_id` of a key as the topic has it. Raises DecodeError for what is no JSON object."""
    ordinary = _ORDINARY.fullmatch(key)
    if ordinary is not None:
        text = (ordinary[1] or ordinary[2]).decode()
    else:
        try:
            text = ",".join(_part(value) for value in _VALUES.decode(key).values())
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise DecodeError("a record's key", 0, detail="is no JSON object") from None
    if text and len(text) <= ID_BYTES_MAX:
        return text
    return _HASHED + hashlib.sha256(text.encode()).hexdigest()


def key_of(values: dict[str, msgspec.Raw], columns: Sequence[str]) -> bytes | None:
    """The key, as the topic has it, of a document's values; None when they lack a key column."""
    if not columns or any(column not in values for column in columns):
        return None
    return msgspec.json.encode({column: _spelled(values[column]) for column in columns})


def _spelled(value: msgspec.Raw) -> msgspec.Raw | str:
    """A value as keys have it: one spelling of each text; a number keeps its own."""
    raw = bytes(value)
    return _TEXT.decode(raw) if raw[:1] == b'"' else value


def _part(value: msgspec.Raw) -> str:
    raw = bytes(value)
    return quote_from_bytes(_TEXT.decode(raw).encode() if raw[:1] == b'"' else raw, _SAFE)


def _escape(identifier: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"-{byte:02x}" for byte in identifier.encode())
