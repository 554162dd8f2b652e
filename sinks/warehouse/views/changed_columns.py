"""Finds whether a view can read what a cut changed in a table: an update of other columns does not affect it.

Mirrors note in their Delta log which columns a merge changed, unless it added or deleted rows. The log is also there
after a crash.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sinks.warehouse.delta.commit_once import noted_columns
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.views.inputs import named_in

if TYPE_CHECKING:
    from sinks.warehouse.lake.location import Where
    from sinks.warehouse.views.inputs import CutTables

_TEXTS_MAX: Final = 1_000  # texts of views, a few KB each


class ChangedColumns:
    """The changed tables of one cut. Thread-safe: two threads may read the same log."""

    def __init__(self, lake: Where, cut: CutTables) -> None:
        self._lake = lake
        self._cut = cut
        self._known: dict[str, frozenset[str] | None] = {}

    def can_read(self, sql: str, table: str) -> bool:
        """Whether a query that Spark runs may read what the cut changed in a lake table, which it names."""
        if table not in self._cut.changed:
            return False
        if table not in self._known:
            self._known[table] = self._columns(table)
        columns = self._known[table]
        return columns is None or reads_all(sql) or bool(named_in(sql, columns))

    def _columns(self, table: str) -> frozenset[str] | None:
        before = self._cut.before.get(table)
        return None if before is None else noted_columns(pinned(self._lake, table, self._cut.versions[table]), before)


@lru_cache(maxsize=_TEXTS_MAX)
def reads_all(sql: str) -> bool:
    """Whether a query may read columns that it does not name."""
    try:
        tree = sqlglot.parse_one(sql, read="spark")
    except SqlglotError:
        return True
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return True
    return tree.find(exp.Pivot) is not None or any(join.method for join in tree.find_all(exp.Join))
