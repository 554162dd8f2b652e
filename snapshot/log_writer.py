"""The functions with which the merger writes to the log; `snapshot.handover` supplies them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from snapshot.chunk import ChunkSpec, Rows
from snapshot.window import Verdict


@dataclass(frozen=True, slots=True)
class LogWriter:
    """Writes at one boundary.

    Attributes:
        put: write rows of a chunk, except those of a verdict; returns how many rows joined, and their bytes.
        keys: return the keys of rows, in the form of the log.
        remove: delete keys from the log; returns the bytes.
    """

    put: Callable[[ChunkSpec, Rows, Verdict], tuple[int, int]]
    keys: Callable[[ChunkSpec, Rows], set[bytes]]
    remove: Callable[[ChunkSpec, Sequence[bytes]], int]
