"""How large a row's record is at least, from the lengths in its frame, so that a huge row is not encoded. Pure.

To encode a row takes several times its size. The lengths of its values say without that when it cannot fit. They are a
lower bound: only values that no encoder shortens count.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from cdc.encode.values import TypeEncoding
from cdc.wire.frame import PAYLOAD_OFFSET

Lengths: TypeAlias = list[int | None]
"""Of each column the bytes of its text; 0 of a null, None of a value that was not sent."""

_LENGTH: Final = struct.Struct(">I").unpack_from
_TUPLE_AT: Final = PAYLOAD_OFFSET + 6  # behind tag, oid and kind of the first tuple
_BOUNDS_BYTES: Final = 256  # of an array, in front of its first brace: six dimensions; JSON has none
_WHOLE: Final = frozenset({"string", "text", "json", "json_value", "decimal", "decimal_number", "hexadecimal"})
_HALF: Final = frozenset({"base64", "base64url"})  # two digits of text are a byte, and 1.33 of them
_AVRO_BYTES: Final = frozenset({"hexadecimal", *_HALF})


class LeastSize:
    """Of the records of one relation."""

    __slots__ = ("_parts",)

    def __init__(self, encodings: Sequence[TypeEncoding], form: str) -> None:
        """`form` is the format of the records."""
        self._parts = tuple(_part(encoding.encoding, avro=form == "avro") for encoding in encodings)

    def of(self, *rows: Lengths) -> int:
        """Bytes of the largest record of a message with these rows, at least.

        An update whose key changed makes one record of the old row and one of the new, so they are not added up.
        """
        return max((self._row(row) for row in rows), default=0)

    def _row(self, row: Lengths) -> int:
        return sum(
            max(0, length // divisor - less)
            for length, (divisor, less) in zip(row, self._parts, strict=True)
            if length and divisor
        )


def lengths(frame: bytes, count: int, *, updated: bool, deleted: bool) -> list[Lengths]:
    """Of the rows that will stand in the records of a row message, which has `count` columns.

    `updated`, `deleted`: whether the record of such a message has the old row.

    Raises:
        IndexError: the message is broken.
        struct.error: it ends too early.
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
    """Of the tuple at `at`, and the offset after it."""
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
    """(divisor of a text's length, bytes less); a divisor of 0: nothing is known."""
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
