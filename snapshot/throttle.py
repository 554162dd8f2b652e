"""How many rows a second may be read. Pure: the time is handed in."""

from __future__ import annotations


class Throttle:
    """Chunks are read whole, so what one has too much the next one waits for. Not thread-safe."""

    def __init__(self, rows_per_s_max: int) -> None:
        """0: as many as can be."""
        self._max = rows_per_s_max
        self._free_s = 0.0

    def open(self, now_s: float) -> bool:
        """Whether a chunk may be read now."""
        return not self._max or now_s >= self._free_s

    def read(self, row_count: int, now_s: float) -> None:
        """So many rows were read. What was not used before does not count."""
        if self._max:
            self._free_s = max(self._free_s, now_s) + row_count / self._max
