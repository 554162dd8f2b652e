"""Translates a query in PostgreSQL's SQL over inputs with known types to Spark SQL. Pure.

Every clause is written by this package; no part of the parsed query reaches Spark without an entry that is known to be
equal. ORDER BY without LIMIT is left out: a view has no order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.meaning.clauses import group_by, limited, order_by, visible_order
from sinks.warehouse.views.meaning.coercion import check_comparable, coerced, unified
from sinks.warehouse.views.meaning.expressions import Expressions
from sinks.warehouse.views.meaning.inputs_of import Source, from_clause
from sinks.warehouse.views.meaning.parts import check_all
from sinks.warehouse.views.meaning.pg_types import FLOATS, TEXT, PgType
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.relation import Combined, Relation, Select, Selected
from sinks.warehouse.views.meaning.scope import Scope, folded, unique
from sinks.warehouse.views.meaning.typed import Typed, column

_SELECT_PARTS: Final = frozenset(
    {
        *("expressions", "distinct", "from_", "joins", "laterals", "where", "group", "having"),
        *("order", "limit", "offset", "with_", "operation_modifiers"),
    }
)
_SET_PARTS: Final = frozenset({"this", "expression", "distinct", "order", "limit", "offset", "with_"})
_SET_NAMES: Final[dict[type[exp.Expr], str]] = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}


@dataclass(frozen=True, slots=True)
class Translated:
    """A view in Spark SQL.

    Attributes:
        columns: its columns and their types.
        used: temporary view -> column -> Spark type that the translation relies on.
    """

    sql: str
    columns: dict[str, PgType]
    used: dict[str, dict[str, str]]


def translated(query: exp.Query, sources: Mapping[str, Source], *, c: bool) -> Translated:
    """Translate a query.

    Args:
        query: parsed as PostgreSQL's SQL.
        sources: name of a temporary view -> its columns.
        c: whether the database's collation is C, so that text without a collation is ordered by code points.

    Raises:
        NotProven: a part of it is not known to be equal in Spark.
    """
    check_all(query)
    found = _Queries(sources, c)
    relation = found.query(query, None, {})
    _settle(query, relation)
    if not unique(one.name for one in relation.columns) or not all(one.name for one in relation.columns):
        raise NotProven(query, "has columns without a name, or two with the same", "name them: ... as name")
    return Translated(relation.render(), {one.name: one.value.type for one in relation.columns}, found.used)


@dataclass(slots=True)
class _Queries:
    """Translates the parts of one query."""

    sources: Mapping[str, Source]
    c: bool
    used: dict[str, dict[str, str]] = field(default_factory=dict)

    def query(self, node: exp.Expr, above: Scope | None, ctes: Mapping[str, dict[str, PgType]]) -> Relation:
        """Translate a query with or without parentheses."""
        if isinstance(node, exp.Subquery):
            return self.query(node.this, above, ctes)
        if isinstance(node, exp.Select):
            return self._select(node, above, ctes)
        if type(node) in _SET_NAMES and isinstance(node, exp.SetOperation):
            return self._combined(node, above, ctes)
        raise NotProven(node, f"uses {node.sql('postgres')[:40]} as a query", "write select ...")

    def _select(self, node: exp.Select, above: Scope | None, ctes: Mapping[str, dict[str, PgType]]) -> Relation:
        _check_parts(node, _SELECT_PARTS)
        with_, ctes = self._with(node, above, ctes)

        def subquery(_: exp.Expr, inner: exp.Expr, scope: Scope) -> Relation:
            return self.query(inner, scope, ctes)

        def derived(inner: exp.Expr, scope: Scope | None) -> Relation:
            found = self.query(inner, scope, ctes)
            _settle(inner, found)
            return found

        scope = Scope([], above, subquery, self.c, self.used)
        clauses = from_clause(
            node, scope, {**self.sources, **{name: Source(kept) for name, kept in ctes.items()}}, derived
        )
        walk = Expressions(scope)
        columns = _columns(walk, node)
        where, having = node.args.get("where"), node.args.get("having")
        if where is not None:
            clauses += f" where {walk.condition(where.this)}"
        group = node.args.get("group")
        if group is not None:
            clauses += group_by(walk, group, columns)
        if having is not None:
            clauses += f" having {walk.condition(having.this)}"
        found = Select(columns, clauses, with_=with_)
        self._finish(walk, node, found)
        return found

    def _finish(self, walk: Expressions, node: exp.Select, found: Select) -> None:
        """Add DISTINCT, ORDER BY and LIMIT."""
        distinct = node.args.get("distinct")
        tail = limited(node)
        order = node.args.get("order")
        if distinct is not None and distinct.args.get("on") is not None:
            on = distinct.args["on"]
            keys = [walk.of(one) for one in (on.expressions if isinstance(on, exp.Tuple) else [on])]
            for key in keys:
                _check_equality(distinct, key.type)
            if order is None or tail:
                raise NotProven(node, "uses distinct on without order by, or with limit", "add order by on a key")
            found.first_of = ", ".join(key.sql for key in keys), order_by(walk, order, found.columns, inputs=True)
            _settle(node, found)
            return
        if distinct is not None:
            found.distinct = True
            _settle(node, found)
            for one in found.columns:
                _check_equality(node, one.value.type)
        if tail and order is not None:
            found.tail = " order by " + order_by(walk, order, found.columns, inputs=not found.distinct) + tail
        elif tail:
            found.tail = tail

    def _combined(self, node: exp.SetOperation, above: Scope | None, ctes: Mapping[str, dict[str, PgType]]) -> Relation:
        _check_parts(node, _SET_PARTS)
        if isinstance(node, exp.Intersect) and isinstance(node.this, exp.Union | exp.Except):
            raise NotProven(node, "combines intersect with union or except", "put one of them into parentheses")
        with_, ctes = self._with(node, above, ctes)
        left, right = self.query(node.this, above, ctes), self.query(node.expression, above, ctes)
        if len(left.columns) != len(right.columns):
            raise NotProven(node, "combines queries with different numbers of columns", "select the same columns")
        every = not node.args.get("distinct")
        for place, pair in enumerate(zip(left.columns, right.columns, strict=True)):
            values, kind = unified(node, [one.value for one in pair])
            if not (every and isinstance(node, exp.Union)):
                _check_equality(node, kind)
            _replace(left, place, values[0], kind)
            _replace(right, place, values[1], kind)
        word = _SET_NAMES[type(node)] + (" all" if every else "")
        columns = [Selected(one.name, Typed("", one.value.type, c=one.value.c)) for one in left.columns]
        found = Combined(left, right, word, columns, with_=with_)
        tail, order = limited(node), node.args.get("order")
        if tail:
            found.tail = (" order by " + visible_order(order, columns) if order is not None else "") + tail
        return found

    def _with(
        self, node: exp.Query, above: Scope | None, ctes: Mapping[str, dict[str, PgType]]
    ) -> tuple[str, dict[str, dict[str, PgType]]]:
        known, with_ = dict(ctes), node.args.get("with_")
        if with_ is None:
            return "", known
        if with_.args.get("recursive"):
            raise NotProven(with_, "uses with recursive", "compute it in PostgreSQL: its end is not known in advance")
        shown = []
        for cte in with_.expressions:
            found = self.query(cte.this, above, known)
            _settle(cte, found)
            alias = cte.args["alias"]
            names = [folded(one) for one in alias.columns]
            name_columns(cte, found, names)
            known[folded(alias.this)] = {one.name: one.value.type for one in found.columns}
            shown.append(f"{quoted(folded(alias.this))} as ({found.render()})")
        return f"with {', '.join(shown)} ", known


def name_columns(node: exp.Expr, found: Relation, names: list[str]) -> None:
    """Give the first columns of a query these names. Raises NotProven if some column has none."""
    if len(names) > len(found.columns):
        raise NotProven(node, "names more columns than its query has", "remove names")
    if names and isinstance(found, Combined):
        raise NotProven(node, "names the columns of a set operation", "name them in the first select: ... as name")
    for place, name in enumerate(names):
        one = found.columns[place]
        found.columns[place] = Selected(name, Typed(one.value.sql, one.value.type, c=one.value.c))
    if not unique(one.name for one in found.columns):
        raise NotProven(node, "has two columns with the same name", "rename one: ... as name")


def _columns(walk: Expressions, node: exp.Select) -> list[Selected]:
    found: list[Selected] = []
    for item in node.expressions:
        star = item if isinstance(item, exp.Star) else (item.this if isinstance(item, exp.Column) else None)
        if isinstance(star, exp.Star):
            found += _star(walk, item, star)
        else:
            value = item.this if isinstance(item, exp.Alias) else item
            found.append(Selected(_name(item), walk.of(value)))
    return found


def _name(item: exp.Expr) -> str:
    """Return the name that PostgreSQL gives a column; empty if it is not the one of a column or an alias."""
    if isinstance(item, exp.Alias):
        return folded(item.args["alias"])
    while isinstance(item, exp.Cast | exp.Paren):
        item = item.this
    return folded(item.this) if isinstance(item, exp.Column) else ""


def _star(walk: Expressions, item: exp.Expr, star: exp.Star) -> list[Selected]:
    if any(star.args.values()):
        raise NotProven(item, "uses * with exceptions", "name the columns")
    table = item.args.get("table")
    inputs = [one for one in walk.scope.inputs if table is None or one.alias == folded(table)]
    if not inputs:
        raise NotProven(item, "uses * without a table", "name the columns")
    found = []
    for one in inputs:
        if one.columns is None:
            raise NotProven(item, f"uses * of {one.name}, a view in Spark SQL", "name the columns")
        for name, kind in one.columns.items():
            if one.table:
                walk.scope.used.setdefault(one.table, {})[name] = kind.spark
            found.append(Selected(name, Typed(column(one.alias, name), kind, None, (one.alias, name), walk.scope.c)))
    return found


def _settle(node: exp.Expr, found: Relation) -> None:
    """Make text of columns that are literals without a type, as PostgreSQL does at the end."""
    for place, one in enumerate(found.columns):
        if one.value.type.name == "unknown":
            _replace(found, place, coerced(node, one.value, TEXT), TEXT)


def _replace(found: Relation, place: int, value: Typed, kind: PgType) -> None:
    """Write a column of a query in another type."""
    one = found.columns[place]
    if isinstance(found, Combined):
        if one.value.type.spark != kind.spark:
            left, right = found.left.columns[place].value, found.right.columns[place].value
            _replace(found.left, place, _cast(left, kind), kind)
            _replace(found.right, place, _cast(right, kind), kind)
        found.columns[place] = Selected(one.name, Typed("", kind, c=one.value.c))
        return
    found.columns[place] = Selected(one.name, value)


def _cast(found: Typed, kind: PgType) -> Typed:
    return Typed(f"cast({found.sql} as {kind.spark})", kind, c=found.c)


def _check_equality(node: exp.Expr, kind: PgType) -> None:
    """Refuse to make rows distinct by a type. 0 and -0 are equal, but not the same value."""
    check_comparable(node, kind)
    if kind.name in FLOATS:
        raise NotProven(node, f"makes rows distinct by {kind}", "group by a column of another type")


def _check_parts(node: exp.Expr, known: frozenset[str]) -> None:
    for key, value in node.args.items():
        if value and key not in known:
            raise NotProven(node, f"uses {key.strip('_')}", "write the query without it")
