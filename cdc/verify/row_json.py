"""JSON of rows in one normal form, so that equal values are equal bytes whoever printed them. Pure.

The log has ``1e+20`` where the server's jsonb says ``100000000000000000000``, and the order of members differs.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

Row: TypeAlias = dict[str, Any]


def _number(text: str) -> int | Decimal:
    """A number with a point or an exponent, exactly; whole ones as the integer they are."""
    value = Decimal(text)
    return int(value) if value == value.to_integral_value() else value.normalize()


_decode = msgspec.json.Decoder(dict[str, Any], float_hook=_number).decode
_encode = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


def row_of(text: bytes | str) -> Row:
    """Read a JSON object; numbers stay exact."""
    return _decode(text)


def canonical(row: Row) -> bytes:
    """The normal form."""
    return _encode(row)
