"""Limits the rows per second that snapshots read. Pure: the caller passes the time."""

from __future__ import annotations


class Throttle:
    """Delays the next chunk by the rows of the last one, because a chunk is read as a whole. Not thread-safe."""

    def __init__(self, rows_per_s_max: int) -> None:
        """`rows_per_s_max` is 0 for no limit."""
        self._max = rows_per_s_max
        self._free_s = 0.0

    def limit(self, rows_per_s_max: int) -> None:
        """Replace the limit; what was read under the former one does not count."""
        if rows_per_s_max != self._max:
            self._max = rows_per_s_max
            self._free_s = 0.0

    def open(self, now_s: float) -> bool:
        """Whether a chunk may be read now."""
        return not self._max or now_s >= self._free_s

    def read(self, row_count: int, now_s: float) -> None:
        """Count rows that were read. An unused allowance does not accumulate."""
        if self._max:
            self._free_s = max(self._free_s, now_s) + row_count / self._max
