"""Compares many expressions in one query of Spark, row by row.

PostgreSQL computes each expression alone, and row by row if it raises. Spark computes all of them in one query that
shows on which rows each of them raises (`try_eval`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.sqlfuzz.comparison import difference
from tests.sqlfuzz.kinds import SIMPLE
from tests.sqlfuzz.on_postgres import Answer, Raised
from tests.sqlfuzz.outcome import Outcome, compared, judged
from tests.sqlfuzz.tables import ROWS

if TYPE_CHECKING:
    from sinks.warehouse.views.definition import BoundView
    from tests.sqlfuzz.as_view import Views
    from tests.sqlfuzz.on_postgres import Postgres
    from tests.sqlfuzz.tree import Node

_ORDER: Final = ("differs", "answers", "raises", "unchecked", "gives up", "raised", "equal")
"""Results of rows; the first one is that of the expression."""
_LITERAL: Final = re.compile(r"-?[\d.]+|'[^']*'(::\w+)?|\w+ '[^']*'|true|false")


_LAZY: Final = re.compile(r"\b(case|coalesce|and|or)\b")
"""What computes an operand only if a row needs it."""


@dataclass(frozen=True, slots=True)
class Item:
    """An accepted expression over a table, and PostgreSQL's answer for each row, by id.

    Attributes:
        constant: whether PostgreSQL raises before it reads a row.
    """

    node: Node
    table: str
    view: BoundView
    types: tuple[str, ...]
    rows: dict[int, str | Raised | None]
    constant: bool = False

    def sql(self, row: int | None = None) -> str:
        """Return the expression as a query of its own."""
        return statement(self.table, self.node, "" if row is None else f" where id = {row}")


def statement(table: str, text: object, where: str = "") -> str:
    """Return the query for one expression."""
    return f"select id, {text} as x from {table}{where}"


class Batches:
    """Compares expressions, many at once."""

    def __init__(self, postgres: Postgres, views: Views) -> None:
        self._postgres = postgres
        self._views = views

    def outcomes(self, nodes: Sequence[tuple[Node, str]]) -> Iterator[tuple[Node, str, Outcome]]:
        """Yield each expression with the query that shows its outcome."""
        items: dict[str, list[Item]] = {}
        for node, table in nodes:
            found = self._prepared(node, table)
            if isinstance(found, Outcome):
                yield node, statement(table, node), found
            elif found.constant:
                yield node, found.sql(), self._constant(found)
            else:
                items.setdefault(table, []).append(found)
        for group in items.values():
            yield from self._together(group)

    def _prepared(self, node: Node, table: str) -> Item | Outcome:
        sql = statement(table, node)
        view = self._views.read(sql)
        answer = self._postgres.answer(sql)
        if isinstance(answer, Raised) and answer.invalid:
            return Outcome("invalid", f"{answer.state} {answer.message}")
        if isinstance(view, str):
            return Outcome("refused", view)
        if isinstance(answer, Answer):
            return Item(node, table, view, answer.types[1:], {int(str(key)): value for key, value in answer.rows})
        types: tuple[str, ...] = ()
        rows: dict[int, str | Raised | None] = {}
        for row in range(1, ROWS[table] + 1):
            one = self._postgres.answer(statement(table, node, f" where id = {row}"))
            if isinstance(one, Answer):
                types, rows[row] = one.types[1:], one.rows[0][1]
            else:
                rows[row] = one
        constant = not types and isinstance(self._postgres.answer(f"explain {sql}"), Raised)
        return Item(node, table, view, types, rows, constant=constant)

    def _constant(self, item: Item) -> Outcome:
        found = compared(self._postgres, self._views, item.sql())
        if found.result == "answers" and _LAZY.search(str(item.node)):
            return Outcome("unchecked", "PostgreSQL computes a constant that no row needs")
        return found

    def _together(self, items: Sequence[Item]) -> Iterator[tuple[Node, str, Outcome]]:
        """Compute items in one query; if Spark does not accept it, in halves."""
        found = self._views.cells([item.view for item in items])
        if not isinstance(found, Raised):
            for number, item in enumerate(items):
                yield self._outcome(item, {row[0]: row[number + 1] for row in found})
        elif len(items) == 1:
            yield items[0].node, items[0].sql(), compared(self._postgres, self._views, items[0].sql())
        else:
            half = len(items) // 2
            yield from self._together(items[:half])
            yield from self._together(items[half:])

    def _outcome(self, item: Item, cells: dict[int, dict[str, Any] | None]) -> tuple[Node, str, Outcome]:
        """Return the outcome of an expression: the worst one of its rows."""
        found: dict[str, tuple[str, Outcome]] = {"equal": (item.sql(), Outcome("equal"))}
        judged_rows: set[tuple[bool, bool]] = set()
        values = {row: value for row, value in item.rows.items() if not isinstance(value, Raised)}
        both = [row for row in values if cells[row] is not None]
        wanted = Answer(("int4", *item.types), tuple((str(row), values[row]) for row in both))
        differing = difference(wanted, [(row, (cells[row] or {})["v"]) for row in both])
        if differing:
            found["differs"] = item.sql(), Outcome("differs", differing)
        for row, value in item.rows.items():
            raised, raises = isinstance(value, Raised), cells[row] is None
            if (raised or raises) and (raised, raises) not in judged_rows:
                outcome = self._raising(item, row, raises=raises)
                found.setdefault(outcome.result, (item.sql(row), outcome))
                if outcome.result != "unchecked":  # another row may show more
                    judged_rows.add((raised, raises))
        sql, outcome = next(found[one] for one in _ORDER if one in found)
        return item.node, sql, outcome

    def _raising(self, item: Item, row: int, *, raises: bool) -> Outcome:
        """Judge a row on which at least one side raises."""
        answer = item.rows[row]
        if isinstance(answer, Raised) and raises:
            return Outcome("raised", answer.state)
        if not isinstance(answer, Raised):
            return judged(Answer(("int4", *item.types), ((str(row), answer),)), self._alone(item, row))
        if self._has_null(item, row):
            return Outcome("unchecked", f"Spark skips an operand beside a null: {answer.state}")
        return judged(answer, self._alone(item, row))

    def _alone(self, item: Item, row: int) -> list[tuple[Any, ...]] | Raised:
        view = self._views.read(item.sql(row))
        return Raised("refused", view) if isinstance(view, str) else self._views.rows(view)

    def _has_null(self, item: Item, row: int) -> bool:
        """Whether a part of the expression is null for PostgreSQL on this row."""
        for part in item.node.walk():
            if part is item.node or part.kind not in SIMPLE or _LITERAL.fullmatch(str(part)):
                continue
            answer = self._postgres.answer(statement(item.table, part, f" where id = {row}"))
            if isinstance(answer, Answer) and answer.rows[0][1] is None:
                return True
        return False
