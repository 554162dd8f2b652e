"""Builds an SQL condition that an index can use to find rows by their keys. Pure.

The condition is true for every row with one of the keys, and may be true for others; the reader compares keys in the
form of the log. Columns whose text may differ from the log are left out, and so are keys in Avro.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from psycopg import sql

from cdc.model.relation import Relation

_AVRO: Final = b"\0"  # first byte of Confluent's wire format; JSON never starts with it
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")  # every int8; int() refuses thousands of digits
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BITS: Final = {21: 16, 23: 32, 20: 64}  # int2, int4, int8
_TEXTS: Final = frozenset({25, 1043})  # text, varchar
_UUID_OID: Final = 2950


def key_condition(
    relation: Relation, keys: Sequence[bytes], named: Sequence[Mapping[str, object]] = ()
) -> sql.Composable:
    """Return the condition for rows with one of `keys`; `named` are the same keys by column, if known."""
    types = {column.name: column.type_oid for column in relation.columns}
    found: Sequence[Mapping[str, object]] = named or [_columns(key) for key in keys if not key.startswith(_AVRO)]
    parts: list[sql.Composable] = [sql.SQL("true")]
    for name in found[0] if found else ():
        texts = [_text(types.get(name, 0), key.get(name)) for key in found]
        known = sorted({text for text in texts if text is not None})
        if known and all(text is not None for text in texts):
            values = sql.SQL(", ").join(sql.Literal(text) for text in known)
            parts.append(sql.SQL("{} in ({})").format(sql.Identifier(name), values))
    return sql.SQL(" and ").join(parts)


def _columns(key: bytes) -> dict[str, object]:
    """Return the text of each column, or the digits of a number as bytes, which may exceed Python's types."""
    found = msgspec.json.decode(key, type=dict[str, msgspec.Raw])
    return {name: _value(bytes(raw)) for name, raw in found.items()}


def _value(raw: bytes) -> object:
    return msgspec.json.decode(raw, type=str) if raw[:1] == b'"' else raw


def _text(type_oid: int, value: object) -> str | None:
    """Return text that PostgreSQL reads as this value; None if that is not certain."""
    if isinstance(value, bool) or not isinstance(value, (int, str, bytes)):
        return None
    text = value.decode() if isinstance(value, bytes) else str(value)
    if type_oid in _BITS:
        limit = 1 << (_BITS[type_oid] - 1)
        return text if _INTEGER.fullmatch(text) and -limit <= int(text) < limit else None
    if type_oid in _TEXTS:
        return text if isinstance(value, str) and "\0" not in text else None
    return text if type_oid == _UUID_OID and _UUID.fullmatch(text) else None
