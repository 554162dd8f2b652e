"""Rows of one relation that travel several ways: to a topic of their own, and through a stage. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.contracts import Transcoding
from cdc.model.change_records import Stamp, Truncation


def together(ways: Sequence[Transcoding]) -> Transcoding:
    """All of them as one, the first of which is asked what a TRUNCATE removes."""
    return ways[0] if len(ways) == 1 else _Together(ways)


class _Together:
    def __init__(self, ways: Sequence[Transcoding]) -> None:
        self._ways = ways

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        for way in self._ways:
            way.insert(frame, stamp, ordinal)

    def update(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        # A stage refuses before the row is in a buffer of its table.
        return sum(way.update(frame, stamp, ordinal) for way in reversed(self._ways))

    def delete(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        for way in self._ways:
            way.delete(frame, stamp, ordinal)

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        return self._ways[0].remove(partition, keys, truncation)
