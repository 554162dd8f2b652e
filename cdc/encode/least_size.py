"""Computes the minimum size of a row's record from the lengths in its frame, so that huge rows are not encoded. Pure.

Encoding a row takes several times its size in memory. The lengths of its values show beforehand that it cannot fit.
They are a lower bound: only values that no encoder shortens count.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from cdc.encode.values import TypeEncoding
from cdc.wire.frame import PAYLOAD_OFFSET

Lengths: TypeAlias = list[int | None]
"""Per column the bytes of its text; 0 for null, None for a value that was not sent."""

_LENGTH: Final = struct.Struct(">I").unpack_from
_TUPLE_AT: Final = PAYLOAD_OFFSET + 6  # after tag, oid and kind of the first tuple
_BOUNDS_BYTES: Final = 256  # of an array before its first brace, up to six dimensions; JSON has none
_WHOLE: Final = frozenset({"string", "text", "json", "json_value", "decimal", "decimal_number", "hexadecimal"})
_HALF: Final = frozenset({"base64", "base64url"})  # two digits of text are one byte, which takes 1.33 in base64
_AVRO_BYTES: Final = frozenset({"hexadecimal", *_HALF})


class LeastSize:
    """Computes minimum sizes for the records of one relation."""

    __slots__ = ("_parts",)

    def __init__(self, encodings: Sequence[TypeEncoding], form: str) -> None:
        """`form` is the format of the records."""
        self._parts = tuple(_part(encoding.encoding, avro=form == "avro") for encoding in encodings)

    def of(self, *rows: Lengths) -> int:
        """Return the minimum size of the largest record for a message with these rows.

        An update that changes the key makes one record of the old row and one of the new, so sizes are not added.
        """
        return max((self._row(row) for row in rows), default=0)

    def _row(self, row: Lengths) -> int:
        return sum(
            max(0, length // divisor - less)
            for length, (divisor, less) in zip(row, self._parts, strict=True)
            if length and divisor
        )


def lengths(frame: bytes, count: int, *, updated: bool, deleted: bool) -> list[Lengths]:
    """Return the lengths of the rows that the records of a row message with `count` columns will contain.

    `updated`, `deleted`: whether the record of an update or delete contains the old row.

    Raises:
        IndexError: the message is invalid.
        struct.error: the message is truncated.
    """
    first, at = _tuple(frame, _TUPLE_AT, count)
    kind = frame[_TUPLE_AT - 1]
    if frame[PAYLOAD_OFFSET] == 68:
        return [first] if kind == 79 and deleted else []
    if kind == 78:
        return [first]
    new, _ = _tuple(frame, at + 1, count)
    if kind != 79:
        return [new]
    filled = [old if length is None else length for old, length in zip(first, new, strict=True)]
    return [first, filled] if updated else [filled]


def _tuple(frame: bytes, at: int, count: int) -> tuple[Lengths, int]:
    """Return the lengths of the tuple at `at`, and the offset after it."""
    found: Lengths = []
    at += 2
    for _ in range(count):
        kind = frame[at]
        at += 1
        if kind == 116:
            (length,) = _LENGTH(frame, at)
            at += 4 + length
            found.append(length)
        else:
            found.append(None if kind == 117 else 0)
    if at > len(frame):
        raise IndexError
    return found, at


def _part(encoding: str, *, avro: bool) -> tuple[int, int]:
    """Return (divisor of the text length, bytes to subtract); a divisor of 0 means no lower bound."""
    if avro:
        return (2, 1) if encoding in _AVRO_BYTES else (1, 0) if encoding in _WHOLE else (0, 0)
    if encoding in _WHOLE:
        return 1, 0
    if encoding in _HALF:
        return 2, 1
    element = encoding.removeprefix("array<").removesuffix(">")
    while element.startswith("array<"):
        element = element.removeprefix("array<").removesuffix(">")
    return (1, _BOUNDS_BYTES) if encoding.startswith("array<") and element in _WHOLE else (0, 0)
