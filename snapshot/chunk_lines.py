"""The lines of a chunk, as they wait: some hundreds in one piece of memory. Pure.

A chunk has a hundred thousand lines. As an object each, their memory came from the kernel and went back to it with
every chunk, and a sixth of a snapshot's CPU was clearing its pages (perf, 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

PIECE: Final = 250  # lines; what is made of them stays in the processor's cache


class Lines:
    """Lines of COPY, each with its newline; every piece but the last has `PIECE` of them."""

    __slots__ = ("_count", "_pieces")

    def __init__(self, pieces: Sequence[bytes], count: int) -> None:
        """`count` lines are in the pieces."""
        self._pieces = pieces
        self._count = count

    def __len__(self) -> int:
        """How many lines they are."""
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        """Piece by piece."""
        return iter(self._pieces)

    def __getitem__(self, which: slice) -> Lines:
        """Those lines, and those behind them that are in the same piece; `which` starts where a piece does."""
        start, stop, _ = which.indices(self._count)
        first, end = start // PIECE, -(-stop // PIECE)
        return Lines(self._pieces[first:end], min(end * PIECE, self._count) - start)
