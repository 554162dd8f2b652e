"""Tracks how far a partition is applied: the lowest offset that is not finished. Pure.

Records finish in any order, and offsets are committed up to the lowest unfinished one. Control records, aborted data
and compacted records use up offsets too, so the end of what was read counts, and not the last record.
"""

from __future__ import annotations

from collections import deque


class Frontier:
    """The offsets of one partition: taken in increasing order, finished in any order."""

    __slots__ = ("_finished", "_next", "_open")

    def __init__(self, start: int) -> None:
        """Everything below `start` is finished."""
        self._next = start
        self._open: deque[int] = deque()
        self._finished: set[int] = set()

    def took(self, offset: int) -> None:
        """Add an unfinished record. Its offset is above all earlier ones."""
        assert offset >= self._next, "offsets grow within a partition"
        self._open.append(offset)
        self._next = offset + 1

    def reached(self, offset: int) -> None:
        """Note that there is no further record below `offset`."""
        self._next = max(self._next, offset)

    def finished(self, offset: int) -> None:
        """Mark a record as finished; once per record."""
        done, waiting = self._finished, self._open
        done.add(offset)
        while waiting and waiting[0] in done:
            done.remove(waiting.popleft())

    @property
    def position(self) -> int:
        """The offset to commit: everything below is finished."""
        return self._open[0] if self._open else self._next

    @property
    def next_offset(self) -> int:
        """The offset to read next."""
        return self._next

    @property
    def span(self) -> int:
        """How many records were taken from the lowest unfinished one on, including finished ones."""
        return len(self._open)
