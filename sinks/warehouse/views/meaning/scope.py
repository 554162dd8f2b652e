"""What names mean in a SELECT: its inputs, and those of the queries around it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from sinks.warehouse.views.meaning.pg_types import LAKE, PgType
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, column

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.relation import Relation


@dataclass(slots=True)
class Input:
    """An input of a FROM.

    Attributes:
        alias: its name in the query.
        columns: name -> type; None if any name may be a column: a view in Spark SQL.
        hidden: columns that ``*`` leaves out: those that the lake adds.
        table: name of the temporary view, if it is one.
        name: as the user wrote it.
    """

    alias: str
    columns: dict[str, PgType] | None
    hidden: dict[str, PgType] = field(default_factory=dict)
    table: str = ""
    name: str = ""

    def get(self, name: str) -> PgType | None:
        """Return the type of a column; None if there is none of this name."""
        if self.columns is None:
            return LAKE
        return self.columns.get(name) or self.hidden.get(name)


@dataclass(slots=True)
class Scope:
    """The inputs of a SELECT.

    Attributes:
        inputs: in their order.
        above: scope of the query around it, whose names a correlated subquery may use.
        query: translates a subquery.
        c: whether text is ordered by code points: the database's collation is C.
        used: temporary view -> column -> type that the translation relies on.
    """

    inputs: list[Input]
    above: Scope | None
    query: Callable[[exp.Expr, exp.Expr, Scope], Relation]
    c: bool
    used: dict[str, dict[str, str]]

    def resolve(self, node: exp.Column) -> Typed:
        """Return a column. Raises NotProven if no input has it."""
        name, table = folded(node.this), node.args.get("table")
        if node.args.get("db"):
            raise NotProven(node, f"names a column by its schema: {node.sql('postgres')}", "write alias.column")
        found = self._found(node, name, "" if table is None else folded(table))
        if found is None:
            shown = f"{folded(table)}.{name}" if table is not None else name
            raise NotProven(node, f"column {shown} does not exist", _columns_hint(self._visible()))
        return found

    def subquery(self, node: exp.Expr, query: exp.Expr) -> Relation:
        """Translate a subquery that may use this scope's names."""
        return self.query(node, query, self)

    def _found(self, node: exp.Column, name: str, table: str) -> Typed | None:
        inputs = [one for one in self.inputs if not table or one.alias == table]
        matching = [(one, kind) for one in inputs if (kind := one.get(name)) is not None]
        if len(matching) > 1:
            raise NotProven(node, f"column {name} is ambiguous", "write alias.column")
        if not matching:
            return None if self.above is None or (table and inputs) else self.above._found(node, name, table)  # noqa: SLF001
        (one, kind) = matching[0]
        claims = self.used.setdefault(one.table, {}) if one.table else None
        if claims is not None and kind.name != "lake":
            claims[name] = kind.spark
        return Typed(column(one.alias, name), kind, None, (one.alias, name), self.c, claims)

    def _visible(self) -> list[str]:
        return [name for one in self.inputs for name in one.columns or ()]


def folded(node: exp.Expr) -> str:
    """Return a name as PostgreSQL reads it: lower case unless it is quoted."""
    name = node.name
    return name if node.args.get("quoted") else name.lower()


def unique(names: Iterable[str]) -> bool:
    """Whether no name is there twice."""
    listed = list(names)
    return len(set(listed)) == len(listed)


def _columns_hint(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:20])
    return f"known columns: {shown}" if shown else "a view reads columns of its tables"
