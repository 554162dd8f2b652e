"""Compares many expressions in few statements: the select items of one view.

PostgreSQL computes each expression alone. Where it raises, the rows that raise are found; the expression is compared on
the other rows, behind a CASE, and the view must raise on the first row that does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.sqlfuzz.on_postgres import Answer, Raised
from tests.sqlfuzz.outcome import Outcome, judged
from tests.sqlfuzz.tables import COLUMNS, ROWS, values

if TYPE_CHECKING:
    from tests.sqlfuzz.as_view import Views
    from tests.sqlfuzz.on_postgres import Postgres
    from tests.sqlfuzz.tree import Node


_NULLING: Final = frozenset(
    {
        *("nullif", "case_no_else", "not_in", "array_item", "array_position", "array_length", "array_any", "array_all"),
        *("json_get", "json_text", "json_item", "json_item_text", "json_path", "json_path_text", "json_number"),
        *("substring_regex", "array_make"),
    }
)
"""Families of rules with null as the result for values."""


@dataclass(frozen=True, slots=True)
class Item:
    """An expression over a table, its text in the statement, and the answer of PostgreSQL to that."""

    node: Node
    table: str
    text: str
    answer: Answer

    @property
    def sql(self) -> str:
        """The expression as a query of its own."""
        return statement(self.table, self.text)


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
                continue
            if found.text != str(node):
                yield from self._raising(found)
            if found.answer.rows:
                items.setdefault(table, []).append(found)
        for group in items.values():
            yield from ((item.node, item.sql, outcome) for item, outcome in self._together(group))

    def _prepared(self, node: Node, table: str) -> Item | Outcome:
        sql = statement(table, node)
        answer = self._postgres.answer(sql)
        if isinstance(answer, Raised) and answer.invalid:
            return Outcome("invalid", f"{answer.state} {answer.message}")
        view = self._views.read(sql)
        if isinstance(view, str):
            return Outcome("refused", view)
        if isinstance(answer, Answer):
            return Item(node, table, str(node), answer)
        rows = [self._postgres.answer(statement(table, node, f" where id = {row + 1}")) for row in range(ROWS[table])]
        calm = [str(row + 1) for row, one in enumerate(rows) if isinstance(one, Answer)]
        if not calm:
            return Item(node, table, "", Answer((), ()))
        text = f"case when id in ({', '.join(calm)}) then {node} end"
        guarded = self._postgres.answer(statement(table, text))
        # PostgreSQL computes constant parts of a CASE before it chooses.
        return Item(node, table, text, guarded if isinstance(guarded, Answer) else Answer((), ()))

    def _raising(self, item: Item) -> Iterator[tuple[Node, str, Outcome]]:
        """Check that the view raises on the first row on which PostgreSQL does."""
        whole = statement(item.table, item.node)
        used = {name for name in COLUMNS if re.search(rf"\b{name}\b", str(item.node))}
        for number, row in enumerate(values(item.table)):
            sql = statement(item.table, item.node, f" where id = {number + 1}")
            answer = self._postgres.answer(sql)
            if not isinstance(answer, Raised) or any(row[name] is None for name in used):
                continue
            view = self._views.read(sql)
            found = Outcome("refused", view) if isinstance(view, str) else judged(answer, self._views.rows(view))
            yields_null = found.result == "answers" and {one.partition("(")[0] for one in item.node.features} & _NULLING
            yield item.node, sql, Outcome("unchecked", "a null within the expression") if yields_null else found
            return
        yield item.node, whole, Outcome("unchecked", "a null in each row that raises")

    def _together(self, items: Sequence[Item]) -> Iterator[tuple[Item, Outcome]]:
        """Compute items in one view; if it raises, in halves."""
        texts = ", ".join(f"{item.text} as x{number}" for number, item in enumerate(items))
        view = self._views.read(f"select id, {texts} from {items[0].table}")
        rows = Raised("refused", view) if isinstance(view, str) else self._views.rows(view)
        if not isinstance(rows, Raised):
            for number, item in enumerate(items):
                yield item, judged(item.answer, [(row[0], row[number + 1]) for row in rows])
        elif len(items) == 1:
            yield items[0], judged(items[0].answer, rows)
        else:
            half = len(items) // 2
            yield from self._together(items[:half])
            yield from self._together(items[half:])
