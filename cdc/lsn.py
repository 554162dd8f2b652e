"""The log sequence number (LSN) of PostgreSQL: a byte position in the write-ahead log.

Parses and prints LSNs (https://www.postgresql.org/docs/18/datatype-pg-lsn.html). Records carry LSNs as 64-bit integers;
texts show them as ``X/Y``.
"""

from __future__ import annotations

import re
from typing import Final

_TEXT: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")

_PAGE_BYTES: Final = 8192
_SHORT_HEADER_BYTES: Final = 24
_LONG_HEADER_BYTES: Final = 40
_SEGMENT_BYTES_MIN: Final = 1 << 20  # segments are a power of two of this


class Lsn(int):
    """A position in the WAL, 0 .. 2^64-1. It is an int, so comparing and packing cost nothing extra."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Read ``16/B374D848``. Raises ValueError for anything else."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"invalid LSN {text!r}; expected two hexadecimal numbers, e.g. 16/B374D848")
        return cls((int(match[1], 16) << 32) | int(match[2], 16))

    def before_header(self) -> Lsn:
        """Return the same position, moved in front of a page header if it lies right behind one.

        When a page is full, PostgreSQL reports the insert position behind the next page's header. The record that fills
        the page ends in front of that header. A wait for an insert position must use this value, or on an idle server
        it lasts until the next record. The two positions are equivalent, because no record ends right behind a header.
        (PAGE_BYTES: XLOG_BLCKSZ; headers: SizeOfXLogShortPHD, and SizeOfXLogLongPHD at the beginning of a segment.)
        """
        if self % _PAGE_BYTES == _SHORT_HEADER_BYTES:
            return Lsn(self - _SHORT_HEADER_BYTES)
        if self % _SEGMENT_BYTES_MIN == _LONG_HEADER_BYTES:
            return Lsn(self - _LONG_HEADER_BYTES)
        return self

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn({self})"
