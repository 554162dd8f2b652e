"""Makes a differing query and its tables as small as possible, greedily."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.sqlfuzz.kinds import SIMPLE
from tests.sqlfuzz.outcome import DIFFERENCES, Outcome, compared
from tests.sqlfuzz.tables import ROWS
from tests.sqlfuzz.tree import Node, smaller

if TYPE_CHECKING:
    from tests.sqlfuzz.as_view import Views
    from tests.sqlfuzz.on_postgres import Postgres

_TRIES_MAX: Final = 250
_LEAVES: Final = {kind: texts[:2] for kind, texts in SIMPLE.items()}


@dataclass(frozen=True, slots=True)
class Case:
    """A minimal difference."""

    node: Node
    sql: str
    rows: dict[str, list[int]]
    outcome: Outcome


class Shrinker:
    """Shrinks on the two sides that found the difference."""

    def __init__(self, postgres: Postgres, views: Views) -> None:
        self._postgres = postgres
        self._views = views

    def shrunk(self, node: Node, written: Callable[[Node], str]) -> Case | None:
        """Return the smallest case found; None if the difference does not show again."""
        outcome = self._outcome(written(node))
        if outcome is None:
            return None
        tries = _TRIES_MAX
        found: Node | None = node
        while found is not None and tries > 0:
            node, found = found, None
            for one in smaller(node, _LEAVES):
                if str(one) == str(node) or len(str(one)) > len(str(node)):
                    continue
                tries -= 1
                smallest = self._outcome(written(one))
                if smallest is not None:
                    found, outcome = one, smallest
                    break
                if tries <= 0:
                    break
        sql = written(node)
        rows, outcome = self._rows(sql, outcome)
        return Case(node, sql, rows, outcome)

    def _outcome(self, sql: str) -> Outcome | None:
        found = compared(self._postgres, self._views, sql)
        return found if found.result in DIFFERENCES else None

    def _rows(self, sql: str, outcome: Outcome) -> tuple[dict[str, list[int]], Outcome]:
        rows = {table: list(range(1, count + 1)) for table, count in ROWS.items() if table in sql}
        try:
            for table in tuple(rows):
                step = len(rows[table])
                while step:
                    step, outcome = self._without(rows, table, step, sql, outcome)
        finally:
            self._limit({})
        return rows, outcome

    def _without(
        self, rows: dict[str, list[int]], table: str, step: int, sql: str, outcome: Outcome
    ) -> tuple[int, Outcome]:
        """Remove the first piece of so many rows that the difference does not need; return the next size of a piece."""
        present = rows[table]
        for start in range(0, len(present), step):
            kept = present[:start] + present[start + step :]
            self._limit({**rows, table: kept})
            found = self._outcome(sql)
            if found is not None:
                rows[table] = kept
                return min(step, len(kept)), found
        return step // 2, outcome

    def _limit(self, rows: dict[str, list[int]]) -> None:
        self._postgres.limit(rows)
        self._views.limit(rows)
