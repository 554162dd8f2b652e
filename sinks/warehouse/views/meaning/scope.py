"""What names mean in a SELECT: its inputs, and those of the queries around it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.pg_types import LAKE, PgType
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, column

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.grouping import Grouped
    from sinks.warehouse.views.meaning.relation import Relation


_JOIN: Final = "join the tables in one subquery instead of nesting two"


@dataclass(slots=True)
class Input:
    """An input of a FROM.

    Attributes:
        alias: its name in the query.
        columns: name -> type; None if any name may be a column: a view in Spark SQL.
        hidden: columns that ``*`` leaves out: those that the lake adds.
        table: name of the temporary view, if it is one.
        name: as the user wrote it.
        names: name in the query -> name in Spark, of columns that the alias renames.
    """

    alias: str
    columns: dict[str, PgType] | None
    hidden: dict[str, PgType] = field(default_factory=dict)
    table: str = ""
    name: str = ""
    names: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> PgType | None:
        """Return the type of a column; None if there is none of this name."""
        if self.columns is None:
            return LAKE
        return self.columns.get(name) or self.hidden.get(name)

    @property
    def is_listed(self) -> bool:
        """Whether ``*`` is known: all its columns have names."""
        return self.columns is not None and "" not in self.columns

    def known(self) -> Iterable[str]:
        """Return the names of all its columns."""
        return (*(self.columns or ()), *self.hidden)


@dataclass(frozen=True, slots=True)
class Visible:
    """A column that may be named without its table, in the order of ``*``.

    Attributes:
        name: its name; empty for all columns of a view in Spark SQL.
        input: where it is from; None for a merged column.
        merged: the value of a column that USING or NATURAL merges.
    """

    name: str
    input: Input | None
    merged: Typed | None = None


@dataclass(slots=True)
class Hazards:
    """Parts of subqueries, so far, that Spark computes wrongly in some places.

    Attributes:
        lone: correlated aggregates without GROUP BY: below EXISTS and IN, their row of no rows is lost.
        unequal: equalities of a column with an expression of the query around it: with LIMIT, no row is found.
    """

    lone: list[exp.Expr] = field(default_factory=list)
    unequal: list[exp.Expr] = field(default_factory=list)


@dataclass(slots=True)
class Scope:
    """The inputs of a SELECT.

    Attributes:
        inputs: in their order.
        above: scope of the query around it, whose names a correlated subquery may use.
        query: translates a subquery.
        c: whether text is ordered by code points: the database's collation is C.
        used: temporary view -> column -> type that the translation relies on.
        zones: whether Spark and PostgreSQL are declared to have the same time zone rules.
        visible: columns that may be named without a table.
        free: columns of this SELECT used outside of aggregates and group keys, with their input's alias.
        keys: Spark SQL of a group key -> what it is written as.
        grouped: takes aggregates out of a SELECT with grouping sets.
        aggregated: whether an aggregate was translated.
        windows: named windows.
        touched: how often its columns were used.
        correlated: whether a subquery uses its columns, or compares its aggregates.
        hazards: of the whole query.
    """

    inputs: list[Input]
    above: Scope | None
    query: Callable[[exp.Expr, exp.Expr, Scope], Relation]
    c: bool
    used: dict[str, dict[str, str]]
    zones: bool = False
    visible: list[Visible] = field(default_factory=list)
    free: list[tuple[exp.Expr, str]] = field(default_factory=list)
    keys: dict[str, Typed] = field(default_factory=dict)
    grouped: Grouped | None = None
    aggregated: bool = False
    windows: dict[str, exp.Window] = field(default_factory=dict)
    touched: int = 0
    correlated: bool = False
    hazards: Hazards = field(default_factory=Hazards)

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

    def of(self, inputs: Sequence[Input], visible: Sequence[Visible]) -> Scope:
        """Return a scope of a part of the FROM: of a join condition, or of a LATERAL."""
        return Scope(
            list(inputs), self.above, self.query, self.c, self.used, self.zones, list(visible), hazards=self.hazards
        )

    def value(self, node: exp.Expr, one: Visible) -> Typed:
        """Return a visible column."""
        if one.merged is not None:
            return self._used(node, one.merged, "")
        assert one.input is not None
        return self._typed(node, one.input, one.name)

    def marks(self) -> list[int]:
        """Return how many columns were used so far, in this SELECT and in those around it."""
        found, scope = [], self
        while True:
            found.append(scope.touched)
            if scope.above is None:
                return found
            scope = scope.above

    def _found(self, node: exp.Column, name: str, table: str) -> Typed | None:
        scope: Scope | None = self
        level = 0
        while scope is not None:
            matching = scope._qualified(node, name, table) if table else scope._unqualified(node, name)  # noqa: SLF001
            if len(matching) > 1:
                raise NotProven(node, f"column {name} is ambiguous", "write alias.column")
            if matching and level > 1:
                raise NotProven(node, f"uses column {name} of a query that is not directly around it", _JOIN)
            if matching:
                scope.correlated |= level > 0
                return scope.value(node, matching[0])
            if table and any(one.alias == table for one in scope.inputs):
                return None
            scope, level = scope.above, level + 1
        return None

    def _qualified(self, node: exp.Column, name: str, table: str) -> list[Visible]:
        inputs = [one for one in self.inputs if _same(node, one.alias, table)]
        for one in inputs:
            for other in one.known():
                _same(node, other, name)
        return [Visible(name, one) for one in inputs if one.get(name) is not None]

    def _unqualified(self, node: exp.Column, name: str) -> list[Visible]:
        found = [one for one in self.visible if not one.name or _same(node, one.name, name)]
        found = [one if one.name else Visible(name, one.input) for one in found]
        return found + [
            Visible(name, one) for one in self.inputs if name in one.hidden and name not in (one.columns or ())
        ]

    def _typed(self, node: exp.Expr, one: Input, name: str) -> Typed:
        kind = one.get(name)
        assert kind is not None
        claims = self.used.setdefault(one.table, {}) if one.table else None
        spark = one.names.get(name, name)
        if claims is not None and kind.name != "lake":
            claims[spark] = kind.spark
        found = Typed(column(one.alias, spark), kind, None, (one.alias, spark), self.c, claims)
        return self._used(node, found, one.alias)

    def _used(self, node: exp.Expr, found: Typed, alias: str) -> Typed:
        self.touched += 1
        if found.sql in self.keys:
            return self.keys[found.sql]
        self.free.append((node, alias))
        return found

    def _visible(self) -> list[str]:
        return [one.name for one in self.visible]


def folded(node: exp.Expr) -> str:
    """Return a name as PostgreSQL reads it: lower case unless it is quoted."""
    name = node.name
    return name if node.args.get("quoted") else name.lower()


def unique(names: Iterable[str]) -> bool:
    """Whether no name is there twice."""
    listed = list(names)
    return len(set(listed)) == len(listed)


def _same(node: exp.Expr, one: str, other: str) -> bool:
    """Whether two names are the same. Names that differ in case only are one name in Spark."""
    if one != other and one.lower() == other.lower():
        raise NotProven(node, f'uses "{one}" and "{other}", which are one name in Spark', "rename one of them")
    return one == other


def _columns_hint(names: list[str]) -> str:
    shown = ", ".join(sorted(name for name in names if name)[:20])
    return f"known columns: {shown}" if shown else "a view reads columns of its tables"
