"""Implements the part of Avro's binary encoding that rows need. Pure.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from cdc.errors import DecodeError

AvroJson: TypeAlias = "str | list[AvroJson] | dict[str, AvroJson] | None"
"""A schema, or a part of one, as decoded JSON."""

_SMALL: Final = tuple(bytes((n,)) for n in range(128))
_FIXED: Final = {"null": 0, "boolean": 1, "double": 8}


def long(number: int) -> bytes:
    """Encode a long: zigzag, then seven bits per byte, lowest first."""
    return _varint(number << 1 if number >= 0 else ~(number << 1))


def sized(data: bytes) -> bytes:
    """Encode bytes, or a UTF-8 string, with their length in front."""
    return _varint(len(data) << 1) + data


def blocks(items: Sequence[bytes]) -> bytes:
    """Encode an array, or the pairs of a map, of encoded items in one block."""
    return b"%b%b\0" % (_varint(len(items) << 1), b"".join(items)) if items else b"\0"


def _varint(rest: int) -> bytes:
    if rest < 0x80:
        return _SMALL[rest]
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def end_of(schema: AvroJson, data: bytes, at: int) -> int:
    """Return the offset after the value that begins at `at`; `schema` has no references. Raises DecodeError."""
    if isinstance(schema, list):
        index, at = read_long(data, at)
        if not 0 <= index < len(schema):
            raise DecodeError("avro", at, detail="unknown branch of a union")
        return end_of(schema[index], data, at)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "long":
        return read_long(data, at)[1]
    if kind in ("string", "bytes"):
        size, at = _count(data, at)
        return _checked(data, at + size)
    if isinstance(kind, str) and kind in _FIXED:
        return _checked(data, at + _FIXED[kind])
    if isinstance(schema, dict) and kind == "array":
        while (count := _count(data, at))[0]:
            at = count[1]
            for _ in range(count[0]):
                at = end_of(schema["items"], data, at)
        return count[1]
    if isinstance(schema, dict) and kind == "record" and isinstance(schema["fields"], list):
        for field in schema["fields"]:
            assert isinstance(field, dict)
            at = end_of(field["type"], data, at)
        return at
    raise DecodeError("avro", at, detail=f"type {kind!r} is not supported in keys")


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return the long at `at`, and the offset after it. Raises DecodeError."""
    shift = value = 0
    for index in range(at, min(at + 10, len(data))):
        value |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return (value >> 1) ^ -(value & 1), index + 1
        shift += 7
    raise DecodeError("avro", at, detail="unterminated number")


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Read a count. Negative counts, which announce a block with its size in bytes, are never written here."""
    count, end = read_long(data, at)
    if count < 0:
        raise DecodeError("avro", at, detail=f"negative size {count}")
    return count, end


def _checked(data: bytes, end: int) -> int:
    if end > len(data):
        raise DecodeError("avro", 0, need=end, have=len(data))
    return end
