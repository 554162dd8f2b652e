"""Encodes the server's text of a value as JSON, with one encoder per type. Pure.

The rule: **a value is what `to_jsonb(value)` shows**, with three exceptions that keep it exact in every language.
`numeric` is a string (optionally a number), `bigint` is a number (optionally a string), and `json`/`jsonb` are a string
with their text, because a nested null could not be distinguished from a missing value. Composite and unknown types are
their text: the stream does not tell which fields a composite had when the row was written, and the current catalog may
differ. `EncodeOptions` has more forms.

The text depends on the session settings in `cdc.replication.connect.SESSION`.
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
"""Converts text to JSON; None if the text already is JSON."""

_DOMAIN_DEPTH_MAX: Final = 32  # domains over domains; PostgreSQL has no limit, real schemas have fewer
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_json_text: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """The options of `[encode]`, see `cdc.config.settings.Encode`. They change the bytes and thus every schema_id."""

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
        """Debezium's modes if `compatibility` is ``debezium``, else None; `debezium` has the chosen ones."""
        return Modes(**dict(self.debezium)) if self.compatibility == "debezium" else None  # type: ignore[arg-type]

    def chosen(self) -> dict[str, object]:
        """Return option -> value of the options that differ from their defaults."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}


@dataclass(frozen=True, slots=True)
class TypeEncoding:
    """How the values of one column become JSON.

    Attributes:
        name: the PostgreSQL type, for the schema record.
        encoding: name of the form: integer, boolean, string, float, decimal, timestamp, ..., array<...>.
        encode: the encoder.
        known: False if the type, or a type it consists of, is no longer in the catalog, and its text is used.
        element: encoding of the elements of an array; None for the two vector types, which have another text form.
        delimiter: between elements.
        enum: whether it is an enum, or a domain over one.
    """

    name: str
    encoding: str
    encode: Encode
    known: bool = True
    element: TypeEncoding | None = None
    delimiter: bytes = b","
    enum: bool = False


def string(text: bytes) -> bytes:
    """Encode any text as a JSON string."""
    return _json_text(text.decode())


quoted: Final[Callable[[bytes], bytes]] = b'"%b"'.__mod__
"""Quotes text that never needs escaping: digits, dates, uuids. The bound operator saves one call per value."""


def boolean(text: bytes) -> bytes:
    """Encode ``t`` or ``f``."""
    return b"true" if text == b"t" else b"false"


def number(text: bytes) -> bytes:
    """Encode a number; NaN and infinities become strings, because JSON has no numbers for them."""
    return text if text[-1:] < b"A" else b'"%b"' % text


def hexadecimal(text: bytes) -> bytes:
    r"""Encode bytea as a hex string that starts with ``\x``."""
    return b'"\\%b"' % text


def base64(text: bytes) -> bytes:
    """Encode bytea as base64 (RFC 4648, padded). Raises DecodeError."""
    if text[:2] != b"\\x":
        raise DecodeError("bytea", 0, detail="expected the hex form")
    try:
        return b'"%b"' % b2a_base64(a2b_hex(text[2:]), newline=False)
    except BinasciiError:
        raise DecodeError("bytea", 2, detail="invalid hex digit") from None


def base64url(text: bytes) -> bytes:
    """As `base64`, with the alphabet for URLs and file names."""
    return base64(text).translate(_URL_SAFE)


def nested(text: bytes) -> bytes:
    """Keep text that is JSON; it must be valid UTF-8, which an SQL_ASCII database does not ensure."""
    if not text.isascii():
        text.decode()
    return text


def timestamp(text: bytes) -> bytes:
    """Encode as ISO 8601 with a T; infinity stays a word."""
    return b'"%b"' % text.replace(b" ", b"T", 1)


def timestamp_utc(text: bytes) -> bytes:
    """As `timestamp`, with the offset as in to_jsonb; the session uses UTC, so it is always +00."""
    return b'"%b"' % text.replace(b" ", b"T", 1).replace(b"+00", b"+00:00", 1)


def vector(text: bytes) -> bytes:
    """Encode int2vector and oidvector: numbers separated by blanks."""
    return b"[%b]" % text.replace(b" ", b",")


def quoted_vector(text: bytes) -> bytes:
    """As `vector`, with elements as strings."""
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
"""(option, value) -> changes to `_BY_NAME`. `hstore` has no fixed oid, see `_resolve`."""


def resolve(oid: int, types: Mapping[int, TypeFacts], options: EncodeOptions, modifier: int = -1) -> TypeEncoding:
    """Return the encoding of a type. A type that is neither built in nor in `types` is encoded as its text.

    `modifier` is the column's type modifier; the default forms do not depend on it.
    """
    return _resolve(oid, types, options, modifier, 0)


def unknown_types(oids: set[int]) -> set[int]:
    """Return the types that must be looked up in the catalog."""
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
    is_enum = facts.kind == "e"
    return TypeEncoding(facts.name, "string" if is_enum else "text", string, enum=is_enum)


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
