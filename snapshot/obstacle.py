"""Reports what prevents a table from being read, once it lasts. Pure.

A short lock or a concurrent change needs no report. A statement that times out however small its chunk is, or a row
filter on a dropped column, fails forever; the operator must see why the snapshot makes no progress.
"""

from __future__ import annotations

from collections.abc import Mapping

REPORT_AFTER_S = 15.0  # longer than DDL usually holds its locks


class Obstacles:
    """The obstacles by table. Several threads call this."""

    def __init__(self, report_after_s: float = REPORT_AFTER_S) -> None:
        self._report_after_s = report_after_s
        self._met: dict[str, tuple[float, str, bool]] = {}

    def met(self, table: str, why: str, now_s: float) -> bool:
        """Record that a read of the table failed; return True once, when this must be reported."""
        since_s, _, reported = self._met.get(table, (now_s, why, False))
        due = not reported and now_s - since_s >= self._report_after_s
        self._met[table] = (since_s, why, reported or due)
        return due

    def passed(self, table: str) -> bool:
        """Record that a read of the table succeeded; return whether an obstacle had been reported."""
        return self._met.pop(table, (0.0, "", False))[2]

    @property
    def reported(self) -> Mapping[str, str]:
        """Return the reported obstacles by table."""
        return {table: why for table, (_, why, reported) in list(self._met.items()) if reported}
