"""Points as Debezium writes them: coordinates, and the same as well-known binary. Pure."""

from __future__ import annotations

import struct
from base64 import b64encode
from typing import Final

from cdc.errors import DecodeError

_WKB_POINT: Final = struct.Struct("<BIdd").pack


def point(text: bytes) -> bytes:
    """``(1.5,-2)`` as an object. Raises DecodeError."""
    try:
        x, y = map(float, text.strip(b"()").split(b","))
    except ValueError:
        raise DecodeError("point", 0, detail="is no pair of numbers") from None
    return b'{"x":%b,"y":%b,"wkb":"%b","srid":null}' % (_number(x), _number(y), b64encode(_WKB_POINT(1, 1, x, y)))


def _number(value: float) -> bytes:
    text = repr(value)
    return {"nan": b'"NaN"', "inf": b'"Infinity"', "-inf": b'"-Infinity"'}.get(text, text.encode())
