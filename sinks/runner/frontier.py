"""How far a partition is applied: below which offset nothing is left to do. Pure.

Records are applied in any order, offsets are committed to the lowest that is not finished. Control records, aborted
data and what compaction has removed take up offsets too, so the end of what was read counts, not the last record.
"""

from __future__ import annotations

from collections import deque


class Frontier:
    """Of one partition. Offsets are taken in increasing order and finished in any."""

    __slots__ = ("_finished", "_next", "_open")

    def __init__(self, start: int) -> None:
        """Everything below `start` is done."""
        self._next = start
        self._open: deque[int] = deque()
        self._finished: set[int] = set()

    def took(self, offset: int) -> None:
        """A record is there that is not finished. Its offset is above all that came before."""
        assert offset >= self._next, "offsets grow within a partition"
        self._open.append(offset)
        self._next = offset + 1

    def reached(self, offset: int) -> None:
        """Nothing lies between what was taken and `offset`."""
        self._next = max(self._next, offset)

    def finished(self, offset: int) -> None:
        """A record is done with, once and for all; each is said once."""
        done, waiting = self._finished, self._open
        done.add(offset)
        while waiting and waiting[0] in done:
            done.remove(waiting.popleft())

    @property
    def position(self) -> int:
        """Everything below is done; what is to be committed."""
        return self._open[0] if self._open else self._next

    @property
    def next_offset(self) -> int:
        """Where reading goes on."""
        return self._next

    @property
    def span(self) -> int:
        """Records that were taken from the lowest unfinished one on, the finished among them included."""
        return len(self._open)
