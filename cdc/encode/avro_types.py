"""Encodes the server's text of a value in Avro binary: one encoder per encoding of `cdc.encode.values`. Pure.

A value equals its JSON form, in Avro's types: numbers are longs and doubles, arrays are arrays, hstore (as ``json``) is
a map, bytea is bytes, everything else is a string. `numeric` is a string because it holds any number of digits and NaN.
If the Avro type cannot hold all values (an infinite date among days, an array of two dimensions), the union has another
branch ``string`` with the text of the JSON form. A column is a union that starts with null, so `AvroType.encode` begins
with the index of the branch.
"""

from __future__ import annotations

import struct
from binascii import Error as BinasciiError
from binascii import a2b_hex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cdc.encode.arrays import flat_elements
from cdc.encode.avro_binary import AvroJson, blocks, long, sized
from cdc.encode.hstore import hstore_pairs
from cdc.encode.temporal import day_micros, epoch_days, epoch_micros, interval_values
from cdc.encode.values import TypeEncoding
from cdc.errors import DecodeError

Encode = Callable[[bytes], bytes]

NULL: Final = b"\x00"
"""The branch of null, the first one."""
_FIRST: Final = b"\x02"
_SECOND: Final = b"\x04"
_INTERVAL_PARTS: Final = "interval_parts"
_double: Final = struct.Struct("<d").pack
_ARRAY: Final = "array<"


@dataclass(frozen=True, slots=True)
class AvroType:
    """The Avro type of a column.

    Attributes:
        branches: the one or two types of a value that is not null, the usual one first.
        encode: converts text to the index of the branch (null is 0) and the value. Raises DecodeError, and
            UnicodeDecodeError for invalid UTF-8.
    """

    branches: tuple[AvroJson, ...]
    encode: Encode


def avro_type(encoding: TypeEncoding) -> AvroType:
    """Return the Avro type for an encoding."""
    name = encoding.encoding
    if name.startswith(_ARRAY):
        return _array(encoding, name)
    return _BY_ENCODING.get(name, _TEXT)


def _integer(text: bytes) -> bytes:
    try:
        return _FIRST + long(int(text))
    except ValueError:
        raise DecodeError("integer", 0, detail="invalid number") from None


def _float(text: bytes) -> bytes:
    try:
        return _FIRST + _double(float(text))
    except ValueError:
        raise DecodeError("float", 0, detail="invalid number") from None


def _boolean(text: bytes) -> bytes:
    return b"\x02\x01" if text == b"t" else b"\x02\x00"


def _string(text: bytes) -> bytes:
    return _FIRST + sized(_utf8(text))


def _timestamp(text: bytes) -> bytes:
    return _FIRST + sized(text.replace(b" ", b"T", 1))


def _timestamp_utc(text: bytes) -> bytes:
    return _FIRST + sized(text.replace(b" ", b"T", 1).replace(b"+00", b"+00:00", 1))


def _bytes(text: bytes) -> bytes:
    if text[:2] != b"\\x":
        raise DecodeError("bytea", 0, detail="expected the hex form")
    try:
        return _FIRST + sized(a2b_hex(text[2:]))
    except BinasciiError:
        raise DecodeError("bytea", 2, detail="invalid hex digit") from None


def _number_or_text(as_json: Encode) -> Encode:
    """Encode a long if the JSON form is a number, otherwise the string in it."""

    def encode(text: bytes) -> bytes:
        shown = as_json(text)
        return _SECOND + sized(shown[1:-1]) if shown[:1] == b'"' else _FIRST + long(int(shown))

    return encode


def _interval(text: bytes) -> bytes:
    parts = interval_values(text)
    return _SECOND + sized(text) if parts is None else _FIRST + b"".join(map(long, parts))


def _hstore(text: bytes) -> bytes:
    pairs = hstore_pairs(text)
    return _FIRST + blocks(
        [sized(_utf8(key)) + (NULL if value is None else _FIRST + sized(_utf8(value))) for key, value in pairs]
    )


def _utf8(text: bytes) -> bytes:
    if not text.isascii():
        text.decode()
    return text


def _array(encoding: TypeEncoding, name: str) -> AvroType:
    """Return the type of an array: one dimension is an array, several are the text of the JSON form."""
    if encoding.element is None:  # int2vector and oidvector: numbers separated by blanks
        inner = _BY_ENCODING.get(name.removeprefix(_ARRAY).removesuffix(">"), _TEXT)
        items: AvroJson = ["null", *inner.branches]
        encode_item = inner.encode
        return AvroType(
            ({"type": "array", "items": items},), lambda text: _FIRST + blocks([encode_item(n) for n in text.split()])
        )
    element = avro_type(encoding.element)
    delimiter, as_json, one = encoding.delimiter, encoding.encode, element.encode
    assert as_json is not None

    def encode(text: bytes) -> bytes:
        found = flat_elements(text, delimiter)
        if found is None:
            return _SECOND + sized(as_json(text))
        return _FIRST + blocks([NULL if item is None else one(item) for item in found])

    return AvroType(({"type": "array", "items": ["null", *element.branches]}, "string"), encode)


_TEXT: Final = AvroType(("string",), _string)
_LONG: Final = AvroType(("long",), _integer)
_DATA: Final = AvroType(("bytes",), _bytes)
_BY_ENCODING: Final[dict[str, AvroType]] = {
    "integer": _LONG,
    "boolean": AvroType(("boolean",), _boolean),
    "float": AvroType(("double",), _float),
    "timestamp": AvroType(("string",), _timestamp),
    "timestamp_utc": AvroType(("string",), _timestamp_utc),
    "hexadecimal": _DATA,
    "base64": _DATA,
    "base64url": _DATA,
    "day_micros": AvroType(("long",), _number_or_text(day_micros)),
    "epoch_days": AvroType(("long", "string"), _number_or_text(epoch_days)),
    "epoch_micros": AvroType(("long", "string"), _number_or_text(epoch_micros)),
    "interval_parts": AvroType(
        (
            {
                "type": "record",
                "name": _INTERVAL_PARTS,
                "fields": [{"name": name, "type": "long"} for name in ("months", "days", "micros")],
            },
            "string",
        ),
        _interval,
    ),
    "hstore_json": AvroType(({"type": "map", "values": ["null", "string"]},), _hstore),
}
"""Other encodings are strings with their text."""
