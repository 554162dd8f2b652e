"""Translates a query in PostgreSQL's SQL over inputs with known types to Spark SQL. Pure.

Every clause is written by this package; no part of the parsed query reaches Spark without an entry that is known to be
equal. ORDER BY without LIMIT is checked and left out: a view has no order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.meaning.clauses import Key, limited, named, sort_keys, ties, written
from sinks.warehouse.views.meaning.coercion import check_comparable, coerced, unified
from sinks.warehouse.views.meaning.expressions import Expressions
from sinks.warehouse.views.meaning.grouping import check_ungrouped, group_by
from sinks.warehouse.views.meaning.inputs_of import From, Source
from sinks.warehouse.views.meaning.inputs_of import named as with_names
from sinks.warehouse.views.meaning.parts import check_all
from sinks.warehouse.views.meaning.pg_types import FLOATS, TEXT, PgType
from sinks.warehouse.views.meaning.placement import HAVING, ROWS, WHERE
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.relation import Combined, Relation, Rows, Select, Selected, recast
from sinks.warehouse.views.meaning.reserved import check_names
from sinks.warehouse.views.meaning.scope import Hazards, Scope, Visible, folded, unique
from sinks.warehouse.views.meaning.typed import Typed
from sinks.warehouse.views.meaning.windows import named_windows

_SELECT_PARTS: Final = frozenset(
    {
        *("expressions", "distinct", "from_", "joins", "laterals", "where", "group", "having", "windows"),
        *("order", "limit", "offset", "with_", "operation_modifiers"),
    }
)
_SET_PARTS: Final = frozenset({"this", "expression", "distinct", "order", "limit", "offset", "with_"})
_SET_NAMES: Final[dict[type[exp.Expr], str]] = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}
_UNEQUAL: Final = "compares with an expression of the query around it, or with another type, in a subquery with limit"
_UNEQUAL_HINT: Final = "compare columns of one type: cast the inner column in a subquery in from"
_Ctes = Mapping[str, dict[str, PgType]]


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


def translated(query: exp.Query, sources: Mapping[str, Source], *, c: bool, zones: bool = False) -> Translated:
    """Translate a query.

    Args:
        query: parsed as PostgreSQL's SQL.
        sources: name of a temporary view -> its columns.
        c: whether the database's collation is C, so that text without a collation is ordered by code points.
        zones: whether Spark and PostgreSQL are declared to have the same time zone rules.

    Raises:
        NotProven: a part of it is not known to be equal in Spark.
    """
    check_all(query)
    check_names(query)
    found = _Queries(sources, c, zones)
    relation = found.query(query, None, {})
    relation = settled(query, relation)
    if not unique(one.name.lower() for one in relation.columns) or not all(one.name for one in relation.columns):
        raise NotProven(query, "has columns without a name, or two with the same", "name them: ... as name")
    return Translated(relation.render(), {one.name: one.value.type for one in relation.columns}, found.used)


@dataclass(slots=True)
class _Queries:
    """Translates the parts of one query."""

    sources: Mapping[str, Source]
    c: bool
    zones: bool
    used: dict[str, dict[str, str]] = field(default_factory=dict)
    hazards: Hazards = field(default_factory=Hazards)

    def query(self, node: exp.Expr, above: Scope | None, ctes: _Ctes) -> Relation:
        """Translate a query with or without parentheses."""
        if isinstance(node, exp.Subquery):
            return self.query(node.this, above, ctes)
        if isinstance(node, exp.Select):
            return self._select(node, above, ctes)
        if isinstance(node, exp.Values):
            return self._rows(node, above, ctes)
        if type(node) in _SET_NAMES and isinstance(node, exp.SetOperation):
            return self._combined(node, above, ctes)
        raise NotProven(node, f"uses {node.sql('postgres')[:40]} as a query", "write select ...")

    def _scope(self, above: Scope | None, ctes: _Ctes) -> Scope:
        def subquery(_: exp.Expr, inner: exp.Expr, scope: Scope) -> Relation:
            return self.query(inner, scope, ctes)

        return Scope([], above, subquery, self.c, self.used, self.zones, hazards=self.hazards)

    def _select(self, node: exp.Select, above: Scope | None, ctes: _Ctes, *, is_nested: bool = False) -> Relation:
        _check_parts(node, _SELECT_PARTS)
        lone, unequal = len(self.hazards.lone), len(self.hazards.unequal)
        with_, known = self._with(node, above, ctes)

        def derived(inner: exp.Expr, scope: Scope | None) -> Relation:
            return settled(inner, self.query(inner, scope, known))

        scope = self._scope(above, known)
        outside = scope.marks()[1:]
        sources = {**self.sources, **{name: Source(kept) for name, kept in known.items()}}
        clauses = From(scope, sources, derived).clause(node)
        walk = Expressions(scope)
        where, having, group = node.args.get("where"), node.args.get("having"), node.args.get("group")
        if where is not None:
            clauses += f" where {walk.at(WHERE).filtering(where.this)}"
        scope.free.clear()
        scope.windows = named_windows(node)
        if group is not None:
            clauses = group_by(walk, group, node.expressions, clauses, is_nested=is_nested)
        scope.correlated = False
        columns = _columns(walk, node)
        kept = f" having {walk.at(HAVING).filtering(having.this)}" if having is not None else ""
        scope.aggregated |= having is not None
        found = Select(columns, "", with_=with_)
        relation = self._finish(walk, node, found)
        check_ungrouped(scope)
        if scope.correlated and scope.aggregated and not is_nested and scope.keys and scope.grouped is None:
            # Spark has no correlated subquery beside GROUP BY.
            del self.hazards.lone[lone:]
            return self._select(node, above, ctes, is_nested=True)
        if scope.correlated and scope.aggregated and not (scope.grouped is not None and len(scope.grouped.sets) == 1):
            raise NotProven(node, "uses a correlated subquery beside aggregates", "aggregate in a subquery in from")
        is_correlated = scope.marks()[1:] != outside
        if is_correlated and (found.tail or found.ties) and len(self.hazards.unequal) > unequal:
            raise NotProven(self.hazards.unequal[-1], _UNEQUAL, _UNEQUAL_HINT)
        if scope.grouped is not None:
            clauses, kept = scope.grouped.render(), kept.replace(" having ", " where ", 1)
        elif group is not None and not scope.keys and having is None:
            kept = " having true"  # one row, also without an aggregate
        found.clauses = clauses + kept
        found.is_one_row = scope.aggregated and (scope.grouped.has_empty_set if scope.grouped else not scope.keys)
        found.has_condition = having is not None
        if found.is_one_row and is_correlated:
            self.hazards.lone.append(node)
        return relation

    def _finish(self, walk: Expressions, node: exp.Select, found: Select) -> Relation:
        """Add DISTINCT, ORDER BY and LIMIT."""
        distinct, order, tail, tied = node.args.get("distinct"), node.args.get("order"), limited(node), ties(node)
        on = distinct.args.get("on") if distinct is not None else None
        if distinct is not None or tied:
            found.columns = list(settled(node, found).columns)
        keys = sort_keys(walk, order, found.columns, is_used=bool(tail or tied or on)) if order is not None else []
        if on is not None:
            if tail or tied:
                raise NotProven(node, "uses distinct on with limit", "put distinct on into a subquery")
            found.first_of = _first_of(walk, node, on, keys), written(keys, found.columns, by_name=False)
        elif distinct is not None:
            found.distinct = True
            for one in found.columns:
                _check_equality(node, one.value.type)
            if any(key.place < 0 for key in keys):
                raise NotProven(order, "orders select distinct by what it does not select", "order by a result column")
        if tied:
            if found.distinct:
                raise NotProven(node, "uses distinct with ties", "put distinct into a subquery")
            found.ties = tied, written(keys, found.columns, by_name=False)
        if found.first_of or found.ties or found.distinct:
            found.columns = [_with_name(one, place) for place, one in enumerate(found.columns)]
        if tail:
            found.tail = f" order by {written(keys, found.columns, by_name=found.distinct)}{tail}"
        return found

    def _rows(self, node: exp.Values, above: Scope | None, ctes: _Ctes) -> Relation:
        """Translate VALUES: each column has the common type of its values."""
        walk = Expressions(self._scope(above, ctes), ROWS)
        rows = [
            [walk.of(one) for one in (row.expressions if isinstance(row, exp.Tuple) else [row])]
            for row in node.expressions
        ]
        if len({len(row) for row in rows}) != 1 or not rows[0]:
            raise NotProven(node, "has rows of different lengths", "write the same number of values in each")
        columns, values = [], []
        for place, column in enumerate(zip(*rows, strict=True)):
            found, kind = unified(node, list(column))
            columns.append(Selected(f"column{place + 1}", Typed(f"`column{place + 1}`", kind, c=found[0].c)))
            values.append([f"cast({one.sql} as {kind.spark})" for one in found])
        return Rows(columns, list(zip(*values, strict=True)))

    def _combined(self, node: exp.SetOperation, above: Scope | None, ctes: _Ctes) -> Relation:
        _check_parts(node, _SET_PARTS)
        if isinstance(node, exp.Intersect) and isinstance(node.this, exp.Union | exp.Except):
            raise NotProven(node, "combines intersect with union or except", "put one of them into parentheses")
        with_, ctes = self._with(node, above, ctes)
        left, right = self.query(node.this, above, ctes), self.query(node.expression, above, ctes)
        if len(left.columns) != len(right.columns):
            raise NotProven(node, "combines queries with different numbers of columns", "select the same columns")
        every = not node.args.get("distinct")
        columns = []
        for place in range(len(left.columns)):
            one, other = left.columns[place], right.columns[place]
            values, kind = unified(node, [one.value, other.value])
            if not (every and isinstance(node, exp.Union)):
                _check_equality(node, kind)
            left, right = recast(left, place, values[0]), recast(right, place, values[1])
            columns.append(_with_name(Selected(one.name, Typed("", kind, c=values[0].c)), place))
        word = _SET_NAMES[type(node)] + (" all" if every else "")
        found = Combined(left, right, word, columns, with_=with_)
        found.name()
        tail, order = limited(node), node.args.get("order")
        if ties(node):
            raise NotProven(node, "uses with ties on a set operation", "put the set operation into a subquery")
        keys = sort_keys(None, order, columns, is_used=bool(tail)) if order is not None else []
        if tail:
            found.tail = f" order by {written(keys, columns, by_name=True)}{tail}"
        return found

    def _with(self, node: exp.Query, above: Scope | None, ctes: _Ctes) -> tuple[str, dict[str, dict[str, PgType]]]:
        known, with_ = dict(ctes), node.args.get("with_")
        if with_ is None:
            return "", known
        if with_.args.get("recursive"):
            raise NotProven(with_, "uses with recursive", "compute it in PostgreSQL: its end is not known in advance")
        shown: dict[str, str] = {}
        for cte in with_.expressions:
            alias = cte.args["alias"]
            name = folded(alias.this)
            if not isinstance(cte.this, exp.Query | exp.Values):
                raise NotProven(cte, f"changes data in with {name}", "a view reads only: write select ...")
            if name.lower() in shown:
                raise NotProven(cte, f"defines with {name} twice", "rename one of them")
            found = settled(cte, self.query(cte.this, above, known))
            found = with_names(cte, found, [folded(one) for one in alias.columns])
            known[name] = {one.name: one.value.type for one in found.columns}
            shown[name.lower()] = f"{quoted(name)} as ({found.render()})"
        return f"with {', '.join(shown.values())} ", known


def _first_of(walk: Expressions, node: exp.Select, on: exp.Expr, keys: list[Key]) -> str:
    """Return the columns of DISTINCT ON. PostgreSQL wants them first in ORDER BY."""
    parts = on.expressions if isinstance(on, exp.Tuple) else [on]
    found = [walk.of(named(walk, one, node.expressions)) for one in parts]
    for one in found:
        _check_equality(on, one.type)
    wanted = {one.sql for one in found}
    if {key.value.sql for key in keys[: len(wanted)]} != wanted or len(keys) == len(wanted):
        raise NotProven(
            on, "uses distinct on without order by these columns first, and then by a key", "add order by a, b, key"
        )
    return ", ".join(one.sql for one in found)


def _columns(walk: Expressions, node: exp.Select) -> list[Selected]:
    found: list[Selected] = []
    for item in node.expressions:
        star = item if isinstance(item, exp.Star) else (item.this if isinstance(item, exp.Column) else None)
        if isinstance(star, exp.Star):
            found += _star(walk, item, star)
        else:
            value = item.this if isinstance(item, exp.Alias) else item
            found.append(Selected(_name(item), walk.of(value)))
    if not found:
        raise NotProven(node, "selects no column", "name a column")
    return found


def _name(item: exp.Expr) -> str:
    """Return the name that PostgreSQL gives a column; empty if it is not the one of a column or an alias."""
    if isinstance(item, exp.Alias):
        return folded(item.args["alias"])
    while isinstance(item, exp.Cast | exp.Paren | exp.Collate):
        item = item.this
    return folded(item.this) if isinstance(item, exp.Column) else ""


def _with_name(one: Selected, place: int) -> Selected:
    return one if one.name else Selected(f"c{place}__", one.value)


def _star(walk: Expressions, item: exp.Expr, star: exp.Star) -> list[Selected]:
    if any(star.args.values()):
        raise NotProven(item, "uses * with exceptions", "name the columns")
    table, scope = item.args.get("table"), walk.scope
    inputs = [one for one in scope.inputs if table is None or one.alias == folded(table)]
    if not inputs:
        raise NotProven(item, "uses * without a table", "name the columns")
    for one in inputs:
        if not one.is_listed:
            what = "a subquery with unnamed columns" if one.columns is not None else f"{one.name}, a view in Spark SQL"
            raise NotProven(item, f"uses * of {what}", "name the columns")
    visible = scope.visible if table is None else [Visible(name, inputs[0]) for name in inputs[0].columns or ()]
    return [Selected(one.name, scope.value(item, one)) for one in visible]


def settled(node: exp.Expr, found: Relation) -> Relation:
    """Make text of columns that are literals without a type, as PostgreSQL does at the end."""
    for place, one in enumerate(found.columns):
        if one.value.type.name == "unknown":
            found = recast(found, place, coerced(node, one.value, TEXT))
    return found


def _check_equality(node: exp.Expr, kind: PgType) -> None:
    """Refuse to make rows distinct by a type. 0 and -0 are equal, but not the same value."""
    check_comparable(node, kind)
    if kind.name in FLOATS:
        raise NotProven(node, f"makes rows distinct by {kind}", "group by a column of another type")


def _check_parts(node: exp.Expr, known: frozenset[str]) -> None:
    for key, value in node.args.items():
        if value and key not in known:
            raise NotProven(node, f"uses {key.strip('_')}", "write the query without it")
