"""Stores the COPY lines of a chunk, with hundreds of lines in one bytes object. Pure.

A chunk has about 100,000 lines. With one object per line, the memory was returned to the kernel and allocated again for
every chunk, and clearing its pages took a sixth of a snapshot's CPU time (perf, 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

PIECE: Final = 250  # lines; the records made from them stay in the CPU cache


class Lines:
    """COPY lines, each with its newline, in pieces of `PIECE` lines; the last piece may be shorter."""

    __slots__ = ("_count", "_pieces")

    def __init__(self, pieces: Sequence[bytes], count: int) -> None:
        """`count` is the number of lines in all pieces."""
        self._pieces = pieces
        self._count = count

    def __len__(self) -> int:
        """Return the number of lines."""
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the pieces."""
        return iter(self._pieces)

    def __getitem__(self, which: slice) -> Lines:
        """Return the pieces with these lines; `which` must start at the beginning of a piece."""
        start, stop, _ = which.indices(self._count)
        first, end = start // PIECE, -(-stop // PIECE)
        return Lines(self._pieces[first:end], min(end * PIECE, self._count) - start)
