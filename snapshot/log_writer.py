"""What the merger needs of the log, whoever has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from snapshot.chunk import ChunkSpec, Rows
from snapshot.window import Verdict

Put: TypeAlias = Callable[[ChunkSpec, Rows, Verdict], tuple[int, int]]
"""Place rows of a chunk into the log, but for those of a verdict; returns how many joined, and their bytes."""

Keys: TypeAlias = Callable[[ChunkSpec, Rows], set[bytes]]
"""The keys of rows of a chunk, as the log has them."""

Remove: TypeAlias = Callable[[ChunkSpec, Sequence[bytes]], int]
"""Delete keys from the log; returns the bytes of that."""


@dataclass(frozen=True, slots=True)
class LogWriter:
    """See `snapshot.merger.Merger.join`."""

    put: Put
    keys: Keys
    remove: Remove
