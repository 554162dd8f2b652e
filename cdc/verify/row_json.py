"""Converts the JSON of rows to a normal form in which equal values are equal bytes. Pure.

The log has ``1e+20`` where the server's jsonb prints ``100000000000000000000``, and the order of members differs.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

Row: TypeAlias = dict[str, Any]


def _number(text: str) -> int | Decimal:
    """Read a number with a point or exponent exactly; whole numbers become integers."""
    value = Decimal(text)
    return int(value) if value == value.to_integral_value() else value.normalize()


_decode = msgspec.json.Decoder(dict[str, Any], float_hook=_number).decode
_encode = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


def row_of(text: bytes | str) -> Row:
    """Read a JSON object; numbers stay exact."""
    return _decode(text)


def canonical(row: Row) -> bytes:
    """Return the normal form of a row."""
    return _encode(row)
