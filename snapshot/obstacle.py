"""What is in the way of reading a table, and since when: told when it does not pass by itself. Pure.

A lock or a change of the moment is no news. A statement that times out however small its chunk is, or a row filter that
names a column which is gone, would be tried again for ever, and nobody would know why nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping

REPORT_AFTER_S = 15.0  # locks of DDL are gone by then, and a person who looks on has not lost patience


class Obstacles:
    """By table; threads take turns."""

    def __init__(self, tell_s: float = REPORT_AFTER_S) -> None:
        self._tell_s = tell_s
        self._met: dict[str, tuple[float, str, bool]] = {}

    def met(self, table: str, why: str, now_s: float) -> bool:
        """Something was in the way of a table. Whether it is time to say so, which it is once."""
        since_s, _, told = self._met.get(table, (now_s, why, False))
        due = not told and now_s - since_s >= self._tell_s
        self._met[table] = (since_s, why, told or due)
        return due

    def passed(self, table: str) -> bool:
        """A part of it was read. Whether it was said that something was in the way."""
        return self._met.pop(table, (0.0, "", False))[2]

    @property
    def told(self) -> Mapping[str, str]:
        """By table, what has been in the way for long."""
        return {table: why for table, (_, why, told) in list(self._met.items()) if told}
