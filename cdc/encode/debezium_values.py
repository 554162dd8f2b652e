"""Encodes values as Debezium's PostgreSQL connector does in JSON: `encode.compatibility = "debezium"`. Pure.

`Modes` are Debezium's options with its defaults. `tests/unit/cdc/test_debezium_values.py` compares every type with
output of the connector (`tests/golden/debezium.json`). A type that Debezium does not support keeps its default form.
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from binascii import Error as BinasciiError
from binascii import a2b_hex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final, Literal, TypeAlias

import msgspec

from cdc.encode import debezium_time, geometry
from cdc.encode.hstore import hstore_object, hstore_pairs
from cdc.errors import DecodeError

Encode: TypeAlias = Callable[[bytes], bytes] | None
Form: TypeAlias = tuple[str, Encode]
"""Name of an encoding, and the encoder; None if the text already is JSON."""

_json: Final = msgspec.json.Encoder().encode
_SPECIAL: Final = frozenset({b"NaN", b"Infinity", b"-Infinity"})
_SPECIAL_TEXT: Final = {b"NaN": b"NAN", b"Infinity": b"POSITIVE_INFINITY", b"-Infinity": b"NEGATIVE_INFINITY"}
_HEADER: Final = 4  # added to every type modifier of numeric
_MONEY_DIGITS: Final = 2  # money.fraction.digits


@dataclass(frozen=True, slots=True)
class Modes:
    """Debezium's options, by the first word of their names: `decimal` is `decimal.handling.mode`."""

    decimal: Literal["precise", "double", "string"] = "precise"
    time: Literal["adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"] = (
        "adaptive"
    )
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    interval: Literal["numeric", "string"] = "numeric"
    hstore: Literal["json", "map"] = "json"


def form_of(name: str, modifier: int, modes: Modes, *, in_array: bool = False) -> Form | None:
    """Return the form of a built-in type; None if it is the default one.

    `modifier` is the type modifier of the column or domain.
    """
    temporal = debezium_time.form_of(name, modifier, modes.time, in_array=in_array)
    if temporal is not None:
        return temporal
    if name in {"bit", "varbit"}:
        return ("debezium_boolean", _bit) if modifier == 1 else ("debezium_bits", _bits)
    if name == "numeric":
        return _numeric(modifier, modes)
    if name == "money":
        return _money(modes)
    if name == "bytea":
        return _BINARY[modes.binary]
    if name == "interval":
        return (
            "debezium_interval",
            debezium_time.interval_text if modes.interval == "string" else debezium_time.interval,
        )
    return _BY_NAME.get(name)


def hstore_form(modes: Modes) -> Form:
    """Return the form of the type hstore."""
    return ("debezium_hstore_map", hstore_object) if modes.hstore == "map" else ("debezium_hstore", _hstore)


def _numeric(modifier: int, modes: Modes) -> Form:
    if modes.decimal == "double":
        return "debezium_double", _double
    variable = modifier < _HEADER
    scale = 0 if variable else (((modifier - _HEADER) & 0x7FF) ^ 0x400) - 0x400
    if modes.decimal == "string":
        return "debezium_decimal_text", _decimal_text
    if variable:
        return "debezium_variable_decimal", _variable_decimal
    return f"debezium_decimal({scale})", partial(_decimal, scale)


def _decimal(scale: int, text: bytes) -> bytes:
    """Encode the unscaled number in base64."""
    return b'"%b"' % _unscaled(text, scale) if text not in _SPECIAL else b"null"


def _variable_decimal(text: bytes) -> bytes:
    if text in _SPECIAL:
        return b"null"
    scale = len(text.partition(b".")[2].rstrip(b"0"))
    return b'{"scale":%d,"value":"%b"}' % (scale, _unscaled(text, scale))


def _unscaled(text: bytes, scale: int) -> bytes:
    whole, _, fraction = text.partition(b".")
    number = int(whole + fraction.rstrip(b"0").ljust(max(0, scale), b"0"))
    if scale < 0:
        number //= 10**-scale
    length = ((number if number >= 0 else ~number).bit_length() // 8) + 1
    return b64encode(number.to_bytes(length, "big", signed=True))


def _decimal_text(text: bytes) -> bytes:
    return b'"%b"' % _SPECIAL_TEXT.get(text, text)


def _double(text: bytes) -> bytes:
    """Encode the nearest double as Java's Double prints it."""
    return b'"%b"' % text if text in _SPECIAL else real(repr(float(text)).encode())


def _money(modes: Modes) -> Form:
    if modes.decimal == "double":
        return "debezium_money_double", lambda text: real(repr(float(_amount(text))).encode())
    if modes.decimal == "string":
        return "debezium_money_text", lambda text: b'"%b"' % _amount(text)
    return "debezium_money", lambda text: b'"%b"' % _unscaled(_amount(text), _MONEY_DIGITS)


def _amount(text: bytes) -> bytes:
    """Convert ``-$1,234.56``, as lc_monetary C prints it, to ``-1234.56``."""
    return text.translate(None, b"$,")


def real(text: bytes) -> bytes:
    """Encode a number as Java prints it: with at least two digits, so the smallest ones differ from PostgreSQL's."""
    if text in _SPECIAL:
        return b'"%b"' % text
    if b"e-3" in text and b"." not in text:  # one digit, possibly subnormal
        return b"%.1e" % Decimal(float(text))
    return text


def real4(text: bytes) -> bytes:
    """As `real`, for four bytes."""
    return b"1.4e-45" if text == b"1e-45" else b"-1.4e-45" if text == b"-1e-45" else real(text)


def _bit(text: bytes) -> bytes:
    return b"true" if text == b"1" else b"false"


def _bits(text: bytes) -> bytes:
    """Encode bits in base64: the last bit is the lowest, the lowest byte comes first."""
    number = int(text or b"0", 2)
    return b'"%b"' % b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little"))


def _bytes(text: bytes) -> bytes:
    if text[:2] != b"\\x":
        raise DecodeError("bytea", 0, detail="expected the hex form")
    try:
        return a2b_hex(text[2:])
    except BinasciiError:
        raise DecodeError("bytea", 2, detail="invalid hex digit") from None


def _base64(text: bytes) -> bytes:
    return b'"%b"' % b64encode(_bytes(text))


def _base64url(text: bytes) -> bytes:
    return b'"%b"' % urlsafe_b64encode(_bytes(text))


def _hex(text: bytes) -> bytes:
    return b'"%b"' % text[2:]


def _hstore(text: bytes) -> bytes:
    """Encode as a string with a JSON object, in the order of Java's HashMap."""
    pairs = dict(hstore_pairs(text))
    members = b",".join(
        b"%b:%b" % (_json(key.decode()), b"null" if value is None else _json(value.decode()))
        for key, value in _java_order(pairs)
    )
    return _json((b"{%b}" % members).decode())


def _java_order(pairs: Mapping[bytes, bytes | None]) -> list[tuple[bytes, bytes | None]]:
    buckets = 16
    while len(pairs) * 4 > buckets * 3:
        buckets *= 2
    return sorted(pairs.items(), key=lambda pair: _java_hash(pair[0]) & (buckets - 1))


def _java_hash(key: bytes) -> int:
    """Return String.hashCode with HashMap's spreading."""
    number = 0
    units = key.decode().encode("utf-16-be")
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return number ^ (number >> 16)


_BINARY: Final[Mapping[str, Form]] = {
    "bytes": ("base64", _base64),
    "base64": ("base64", _base64),
    "base64-url-safe": ("base64url", _base64url),
    "hex": ("debezium_hex", _hex),
}
_BY_NAME: Final[Mapping[str, Form]] = {
    "oid": ("integer", None),
    "float4": ("debezium_float", real4),
    "float8": ("debezium_double", real),
    **{
        name: (f"debezium_{name}", encode)
        for name, encode in (
            ("point", geometry.point),
            ("line", geometry.line),
            ("lseg", geometry.lseg),
            ("box", geometry.box),
            ("path", geometry.path),
            ("polygon", geometry.polygon),
            ("circle", geometry.circle),
        )
    },
}
