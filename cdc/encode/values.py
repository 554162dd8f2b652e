"""One encoder per type: text of a value, as the server prints it under our session settings, to JSON. Pure.

The rule, so that nobody needs a table to know it: **a value is what `to_jsonb(value)` shows**, with three
exceptions that keep it exact in every language: `numeric` is a string (or a number, by choice), `bigint` is a
number (or a string, by choice), and `json`/`jsonb` are a string that holds their text, because a nested null could
not be told from a missing value. Composite types and types nobody heard of are their text: the stream does not say
what fields a composite had when the row was written, and the catalog's of now may be others. `EncodeOptions` has
more forms to choose from.

The session settings are `cdc.replication.connect.SESSION`.
"""

from __future__ import annotations

from binascii import Error as BinasciiError
from binascii import a2b_hex, b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, TypeAlias

import msgspec

from cdc.encode.arrays import array_encoder
from cdc.encode.builtin_types import ARRAYS, SCALARS, SEMICOLON_ARRAYS
from cdc.encode.debezium_values import Modes, form_of, hstore_form
from cdc.encode.hstore import hstore_object
from cdc.encode.temporal import day_micros, epoch_days, epoch_micros, interval_parts
from cdc.errors import DecodeError
from cdc.model.type_facts import TypeFacts

Encode: TypeAlias = Callable[[bytes], bytes] | None
"""Text to JSON; None when the text already is JSON."""

_DOMAIN_DEPTH_MAX: Final = 32  # domains over domains; PostgreSQL has no limit, nobody has more
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_json_text: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """What an operator may choose; see `cdc.config.settings.Encode`. It changes the bytes, so every schema_id too."""

    numeric: Literal["string", "number"] = "string"
    int64: Literal["number", "string"] = "number"
    time: Literal["iso", "micros"] = "iso"
    bytea: Literal["hex", "base64", "base64url"] = "hex"
    interval: Literal["iso", "parts"] = "iso"
    json: Literal["string", "value"] = "string"
    hstore: Literal["text", "json"] = "text"
    format: Literal["json", "flat", "avro"] = "json"
    compatibility: Literal["none", "debezium"] = "none"
    debezium: tuple[tuple[str, str], ...] = ()

    @property
    def modes(self) -> Modes | None:
        """Debezium's modes, if values are to be as it writes them; `debezium` names those that are chosen."""
        return Modes(**dict(self.debezium)) if self.compatibility == "debezium" else None  # type: ignore[arg-type]

    def chosen(self) -> dict[str, object]:
        """Option -> value, of those that are not what they are by default."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}


@dataclass(frozen=True, slots=True)
class TypeEncoding:
    """How the values of one column become JSON.

    Attributes:
        name: the PostgreSQL type, for the schema record.
        encoding: name of the form: integer, boolean, string, float, decimal, timestamp, ..., array<...>.
        encode: the encoder.
        known: False when the catalog has forgotten the type, or one it is made of, and its text stands in.
        element: of an array, what its elements are; None for the two vectors, whose text is another.
        delimiter: between elements.
    """

    name: str
    encoding: str
    encode: Encode
    known: bool = True
    element: TypeEncoding | None = None
    delimiter: bytes = b","


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


def base64(text: bytes) -> bytes:
    """Bytea in hex form as base64 (RFC 4648, padded). Raises DecodeError."""
    if text[:2] != b"\\x":
        raise DecodeError("bytea", 0, detail="does not begin as its hex form does")
    try:
        return b'"%b"' % b2a_base64(a2b_hex(text[2:]), newline=False)
    except BinasciiError:
        raise DecodeError("bytea", 2, detail="has something that is no hex digit") from None


def base64url(text: bytes) -> bytes:
    """As `base64`, in the alphabet for URLs and file names."""
    return base64(text).translate(_URL_SAFE)


def nested(text: bytes) -> bytes:
    """Text that is JSON already, and still must be UTF-8, which an SQL_ASCII database does not see to."""
    if not text.isascii():
        text.decode()
    return text


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
    "int8": ("integer", None),
    "numeric": ("decimal", quoted),
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

_BY_CHOICE: Final[dict[tuple[str, object], dict[str, tuple[str, Encode]]]] = {
    ("numeric", "number"): {"numeric": ("decimal_number", number)},
    ("int64", "string"): {"int8": ("integer_string", quoted)},
    ("time", "micros"): {
        "date": ("epoch_days", epoch_days),
        "time": ("day_micros", day_micros),
        "timestamp": ("epoch_micros", epoch_micros),
    },
    ("bytea", "base64"): {"bytea": ("base64", base64)},
    ("bytea", "base64url"): {"bytea": ("base64url", base64url)},
    ("interval", "parts"): {"interval": ("interval_parts", interval_parts)},
    ("json", "value"): {"json": ("json_value", nested), "jsonb": ("json_value", nested)},
}
"""(option, value) -> what it changes of `_BY_NAME`. `hstore` has no oid of its own, see `_resolve`."""


def resolve(oid: int, types: Mapping[int, TypeFacts], options: EncodeOptions, modifier: int = -1) -> TypeEncoding:
    """The encoding of a type. A type that is neither built in nor in `types` is its text.

    `modifier` is the column's type modifier; the usual forms do not depend on it.
    """
    return _resolve(oid, types, options, modifier, 0)


def unknown_types(oids: set[int]) -> set[int]:
    """Those of `oids` that only the catalog can explain."""
    return {oid for oid in oids if oid not in SCALARS and oid not in ARRAYS}


def _resolve(
    oid: int,
    types: Mapping[int, TypeFacts],
    options: EncodeOptions,
    modifier: int,
    depth: int,
    *,
    in_array: bool = False,
) -> TypeEncoding:
    scalar = SCALARS.get(oid)
    if scalar is not None:
        encoding, encode = _scalar(scalar, options, modifier, in_array=in_array)
        return TypeEncoding(scalar, encoding, encode)
    element = ARRAYS.get(oid)
    if element is not None:
        inner = _resolve(element, types, options, modifier, depth + 1, in_array=True)
        return _array(inner, b";" if oid in SEMICOLON_ARRAYS else b",", None)
    facts = types.get(oid)
    if facts is None or depth > _DOMAIN_DEPTH_MAX:
        return TypeEncoding(f"oid {oid}", "text", string, known=False)
    if facts.kind == "d" and facts.base_oid:
        base = _resolve(facts.base_oid, types, options, facts.base_modifier, depth + 1, in_array=in_array)
        return replace(base, name=facts.name)
    if facts.element_oid:
        inner = _resolve(facts.element_oid, types, options, modifier, depth + 1, in_array=True)
        return _array(inner, facts.delimiter.encode(), facts.name)
    if facts.extension == "hstore":
        modes = options.modes
        if modes is not None:
            return TypeEncoding(facts.name, *hstore_form(modes))
        if options.hstore == "json":
            return TypeEncoding(facts.name, "hstore_json", hstore_object)
    return TypeEncoding(facts.name, "string" if facts.kind == "e" else "text", string)


def _scalar(name: str, options: EncodeOptions, modifier: int, *, in_array: bool) -> tuple[str, Encode]:
    modes = options.modes
    found = None if modes is None else form_of(name, modifier, modes, in_array=in_array)
    for choice in () if modes is not None else options.chosen().items():
        found = found or _BY_CHOICE.get(choice, {}).get(name)
    return found or _BY_NAME.get(name, ("string", string))


def _array(element: TypeEncoding, delimiter: bytes, name: str | None) -> TypeEncoding:
    encode = array_encoder(element.encode, delimiter)
    of = f"array<{element.encoding}>"
    return TypeEncoding(name or f"{element.name}[]", of, encode, element.known, element, delimiter)
