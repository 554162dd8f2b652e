"""One encoder per type: text of a value, as the server prints it under our session settings, to JSON. Pure.

The rule, so that nobody needs a table to know it: **a value is what `to_jsonb(value)` shows**, with three
exceptions that keep it exact in every language: `numeric` is a string (or a number, by choice), `bigint` is a
number (or a string, by choice), and `json`/`jsonb` are a string that holds their text, because a nested null could
not be told from a missing value. Composite types and types nobody heard of are their text.

The session settings are `cdc.replication.connect.SESSION_SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from cdc.encode.arrays import array_encoder
from cdc.encode.builtin import ARRAYS, SCALARS, SEMICOLON_ARRAYS
from cdc.model.types import TypeFacts

Encode: TypeAlias = Callable[[bytes], bytes] | None
"""Text to JSON; None when the text already is JSON."""

_DOMAIN_DEPTH_MAX: Final = 32  # domains over domains; PostgreSQL has no limit, nobody has more
_json_text: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """What an operator may choose. Part of every schema_id, because it changes the bytes."""

    numeric: Literal["string", "number"] = "string"
    int64: Literal["number", "string"] = "number"


@dataclass(frozen=True, slots=True)
class TypeEncoding:
    """How the values of one column become JSON.

    Attributes:
        name: the PostgreSQL type, for the schema record.
        encoding: name of the form: integer, boolean, string, float, decimal, timestamp, ..., array<...>.
        encode: the encoder.
    """

    name: str
    encoding: str
    encode: Encode


def string(text: bytes) -> bytes:
    """Any text as a JSON string."""
    return _json_text(text.decode())


quoted: Final[Callable[[bytes], bytes]] = b'"%b"'.__mod__
"""Text that never needs escaping: digits, dates, uuids. The operator itself: a call less for every value."""


def boolean(text: bytes) -> bytes:
    """``t`` or ``f``."""
    return b"true" if text == b"t" else b"false"


def number(text: bytes) -> bytes:
    """A number, or a string for NaN and the infinities, which JSON cannot write."""
    return text if text[-1:] < b"A" else b'"%b"' % text


def hexadecimal(text: bytes) -> bytes:
    r"""Bytea in hex form: a string that starts with ``\x``."""
    return b'"\\%b"' % text


def timestamp(text: bytes) -> bytes:
    """ISO 8601 with a T; infinity stays a word."""
    return b'"%b"' % text.replace(b" ", b"T", 1)


def timestamp_utc(text: bytes) -> bytes:
    """As `timestamp`, with the offset as to_jsonb writes it: the session runs in UTC, so it is always +00."""
    return b'"%b"' % text.replace(b" ", b"T", 1).replace(b"+00", b"+00:00", 1)


def vector(text: bytes) -> bytes:
    """int2vector and oidvector: numbers between blanks."""
    return b"[%b]" % text.replace(b" ", b",")


def quoted_vector(text: bytes) -> bytes:
    """As `vector`, elements as strings."""
    return b'["%b"]' % text.replace(b" ", b'","') if text else b"[]"


_BY_NAME: Final[dict[str, tuple[str, Encode]]] = {
    "bool": ("boolean", boolean),
    "int2": ("integer", None),
    "int4": ("integer", None),
    "float4": ("float", number),
    "float8": ("float", number),
    "date": ("date", quoted),
    "time": ("time", quoted),
    "timetz": ("time", quoted),
    "timestamp": ("timestamp", timestamp),
    "timestamptz": ("timestamp_utc", timestamp_utc),
    "interval": ("interval", quoted),
    "uuid": ("uuid", quoted),
    "bytea": ("hexadecimal", hexadecimal),
    "json": ("json", string),
    "jsonb": ("json", string),
    "oid": ("string", quoted),
    "int2vector": ("array<integer>", vector),
    "oidvector": ("array<string>", quoted_vector),
}


def resolve(oid: int, types: Mapping[int, TypeFacts], options: EncodeOptions) -> TypeEncoding:
    """The encoding of a type. A type that is neither built in nor in `types` is its text."""
    return _resolve(oid, types, options, 0)


def unknown_types(oids: set[int]) -> set[int]:
    """Those of `oids` that only the catalog can explain."""
    return {oid for oid in oids if oid not in SCALARS and oid not in ARRAYS}


def _resolve(oid: int, types: Mapping[int, TypeFacts], options: EncodeOptions, depth: int) -> TypeEncoding:
    scalar = SCALARS.get(oid)
    if scalar is not None:
        encoding, encode = _scalar(scalar, options)
        return TypeEncoding(scalar, encoding, encode)
    element = ARRAYS.get(oid)
    if element is not None:
        return _array(_resolve(element, types, options, depth + 1), b";" if oid in SEMICOLON_ARRAYS else b",", None)
    facts = types.get(oid)
    if facts is None or depth > _DOMAIN_DEPTH_MAX:
        return TypeEncoding(f"oid {oid}", "text", string)
    if facts.kind == "d" and facts.base_oid:
        base = _resolve(facts.base_oid, types, options, depth + 1)
        return TypeEncoding(facts.name, base.encoding, base.encode)
    if facts.element_oid:
        inner = _resolve(facts.element_oid, types, options, depth + 1)
        return _array(inner, facts.delimiter.encode(), facts.name)
    return TypeEncoding(facts.name, "string" if facts.kind == "e" else "text", string)


def _scalar(name: str, options: EncodeOptions) -> tuple[str, Encode]:
    if name == "numeric":
        return ("decimal", quoted) if options.numeric == "string" else ("decimal_number", number)
    if name == "int8":
        return ("integer", None) if options.int64 == "number" else ("integer_string", quoted)
    return _BY_NAME.get(name, ("string", string))


def _array(element: TypeEncoding, delimiter: bytes, name: str | None) -> TypeEncoding:
    encode = array_encoder(element.encode, delimiter)
    return TypeEncoding(name or f"{element.name}[]", f"array<{element.encoding}>", encode)
