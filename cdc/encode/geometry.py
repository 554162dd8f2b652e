"""Encodes PostgreSQL's geometric types as Debezium does: coordinates, or well-known binary in base64. Pure.

https://www.postgresql.org/docs/18/datatype-geometric.html and the OGC's well-known binary, little-endian. All encoders
raise DecodeError for invalid text.
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from typing import Final

from cdc.errors import DecodeError

_LINE_STRING: Final = 2
_POLYGON: Final = 3
_numbers: Final = re.compile(rb"[^()\[\]{}<>,\s]+").findall


def point(text: bytes) -> bytes:
    """Encode ``(1.5,-2)`` as an object."""
    x, y = _read("point", text, 2)
    return _point(x, y)


def circle(text: bytes) -> bytes:
    """Encode ``<(1,2),3>`` as center and radius."""
    x, y, radius = _read("circle", text, 3)
    return b'{"center":%b,"radius":%b}' % (_point(x, y), _number(radius))


def line(text: bytes) -> bytes:
    """Encode ``{1,-1,0}`` as the coefficients of its equation."""
    a, b, c = _read("line", text, 3)
    return b'{"a":%b,"b":%b,"c":%b}' % (_number(a), _number(b), _number(c))


def lseg(text: bytes) -> bytes:
    """Encode ``[(1,2),(3,4)]`` as a line string."""
    return _shape(_line_string(_pairs("lseg", text)), b'{"type":"lseg"}')


def path(text: bytes) -> bytes:
    """Encode ``((1,2),(3,4))``, closed, or ``[(1,2),(3,4)]``, open, as a line string."""
    closed = b"true" if text[:1] == b"(" else b"false"
    return _shape(_line_string(_pairs("path", text)), b'{"type":"path","closed":"%b"}' % closed)


def box(text: bytes) -> bytes:
    """Encode ``(3,4),(1,2)``, two corners, as a polygon."""
    right, top, left, bottom = _read("box", text, 4)
    ring = [(right, top), (right, bottom), (left, bottom), (left, top)]
    return _shape(_polygon(ring), b'{"type":"box"}')


def polygon(text: bytes) -> bytes:
    """Encode ``((1,2),(3,4),(5,6))`` as a polygon."""
    return _shape(_polygon(_pairs("polygon", text)), b'{"type":"polygon"}')


def _read(kind: str, text: bytes, count: int = 0) -> list[float]:
    try:
        found = [float(number) for number in _numbers(text)]
    except ValueError:
        raise DecodeError(kind, 0, detail="invalid number") from None
    if count and len(found) != count:
        raise DecodeError(kind, 0, detail=f"{len(found)} numbers, expected {count}")
    return found


def _pairs(kind: str, text: bytes) -> list[tuple[float, float]]:
    found = _read(kind, text)
    if not found or len(found) % 2:
        raise DecodeError(kind, 0, detail="odd number of coordinates")
    return list(zip(found[::2], found[1::2], strict=True))


def _point(x: float, y: float) -> bytes:
    wkb = b64encode(struct.pack("<BIdd", 1, 1, x, y))
    return b'{"x":%b,"y":%b,"wkb":"%b","srid":null}' % (_number(x), _number(y), wkb)


def _shape(wkb: bytes, extensions: bytes) -> bytes:
    return b'{"wkb":"%b","srid":null,"extensions":%b}' % (b64encode(wkb), extensions)


def _line_string(points: list[tuple[float, float]]) -> bytes:
    return struct.pack("<BII", 1, _LINE_STRING, len(points)) + _coordinates(points)


def _polygon(ring: list[tuple[float, float]]) -> bytes:
    closed = ring if ring[0] == ring[-1] and len(ring) > 1 else [*ring, ring[0]]
    return struct.pack("<BIII", 1, _POLYGON, 1, len(closed)) + _coordinates(closed)


def _coordinates(points: list[tuple[float, float]]) -> bytes:
    return b"".join(struct.pack("<dd", *point) for point in points)


def _number(value: float) -> bytes:
    text = repr(value)
    return {"nan": b'"NaN"', "inf": b'"Infinity"', "-inf": b'"-Infinity"'}.get(text, text.encode())
