"""The log sequence number of PostgreSQL: a byte position in the write-ahead log.

Owns parsing and printing (https://www.postgresql.org/docs/18/datatype-pg-lsn.html). Records carry LSNs as
64-bit integers; people see ``X/Y`` text.
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
        """Read ``16/B374D848``. Raises ValueError on anything else."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not an LSN: {text!r} (expected two hexadecimal numbers, as 16/B374D848)")
        return cls((int(match[1], 16) << 32) | int(match[2], 16))

    def before_header(self) -> Lsn:
        """The same place, in front of a page's header.

        The insert position at the end of a full page is said to be behind the next page's header, the record that
        fills the page to end in front of it. Who waits for an insert position waits for this: else, on an idle
        server, until the next record. No record ends right behind a header, so nothing else is meant by it.
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
