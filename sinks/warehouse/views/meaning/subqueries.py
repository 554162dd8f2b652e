"""Translates comparisons of rows and with subqueries: in, any, all, exists, and a subquery as a value. Pure.

Spark computes IN as a filter only: as a value it is false where SQL has null. So a value is written with EXISTS, which
is computed as both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.coercion import compared
from sinks.warehouse.views.meaning.pg_types import BOOL
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.relation import Relation, Select, wrapped
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_LONE: Final = "compare the aggregate as a value: (select count(*) from ...) > 0"
_NULL: Final = "cast(null as boolean)"


def inside(node: exp.Expr) -> exp.Expr:
    """Return what is in parentheses; a subquery keeps its own."""
    while type(node) is exp.Paren:
        node = node.this
    return node


def note_equality(walk: Expressions, node: exp.Expr, before: Sequence[int]) -> None:
    """Note an equality with the query around it, unless it compares a column of it with the same Spark type.

    Spark makes equalities of NOT <> and of IN with one value, too.
    """
    scope = walk.scope
    if scope.marks()[1:] == list(before[1:]):
        return
    other: exp.Expr | None = node.args.get("expression")
    if (
        other is None
        or isinstance(other, exp.Any | exp.All)
        or not _are_plain(walk, row(node.this) or [node.this], row(other) or [other])
    ):
        scope.hazards.unequal.append(node)


def _are_plain(walk: Expressions, left: Sequence[exp.Expr], right: Sequence[exp.Expr]) -> bool:
    """Whether each pair has at most one value of the query around it: a column, of the other value's Spark type."""
    scope = walk.scope
    for pair in zip(left, right, strict=True):
        found = []
        for side in pair:
            at = scope.marks()
            value = walk.of(side)
            found.append((scope.marks()[1:] != at[1:], isinstance(inside(side), exp.Column), value.type.spark))
        (outer, plain, kind), (inner, _, other) = sorted(found, key=lambda one: not one[0])
        if outer and (not plain or inner or kind != other):
            return False
    return True


def row(node: exp.Expr) -> list[exp.Expr] | None:
    """Return the parts of a row; None for another expression."""
    if isinstance(node, exp.Tuple) or (isinstance(node, exp.Anonymous) and node.name.lower() == "row"):
        return list(node.expressions)
    return None


def compared_rows(walk: Expressions, node: exp.Expr, operator: str, sides: Sequence[exp.Expr]) -> Typed | None:
    """Translate a comparison of two rows; None if neither side is one."""
    rows = [row(side) for side in sides]
    if rows[0] is None and rows[1] is None:
        return None
    if rows[0] is None or rows[1] is None or len(rows[0]) != len(rows[1]) or not rows[0]:
        raise NotProven(node, "compares rows of different lengths", "write the same number of values on both sides")
    found = [[walk.of(one) for one in part] for part in (rows[0], rows[1])]
    return _condition(node, operator, found[0], found[1])


def filtered(walk: Expressions, node: exp.Expr) -> str | None:
    """Translate IN with a subquery as a whole condition of a filter; None for another condition."""
    is_not = isinstance(node, exp.Not)
    inner = inside(node.this) if isinstance(node, exp.Not) else node
    parts = _in_query(inner)
    if parts is None:
        return None
    left, query = parts
    is_not ^= bool(inner.args.get("negate"))
    found = _compare(walk, inner, "=", left, query, every=False, is_filter=True)
    return f"(not {found.sql})" if is_not else found.sql


def membership(walk: Expressions, node: exp.In) -> Typed:
    """Translate IN with a subquery as a value; the caller adds NOT."""
    return _compare(walk, node, "=", node.this, query_of(node) or node, every=False)


def quantified(walk: Expressions, node: exp.Binary, operator: str) -> Typed:
    """Translate a comparison with ANY or ALL of a subquery."""
    return _compare(walk, node, operator, node.this, node.expression.this, every=isinstance(node.expression, exp.All))


def exists(walk: Expressions, node: exp.Exists) -> Typed:
    """Translate EXISTS."""
    scope = walk.scope
    before = len(scope.hazards.lone)
    found = scope.subquery(node, node.this)
    if isinstance(found, Select) and found.is_one_row and not found.has_condition and not found.tail:
        raise NotProven(node, "uses exists of an aggregate, which is always true", _LONE)
    _check_lone(walk, node, before)
    return Typed(f"exists ({found.render()})", BOOL)


def scalar(walk: Expressions, node: exp.Expr, query: exp.Expr) -> Typed:
    """Translate a subquery as a value. Both raise an error if it has several rows."""
    scope = walk.scope
    before = len(scope.hazards.lone)
    found = _settled(node, scope.subquery(node, query))
    del scope.hazards.lone[before:]
    if len(found.columns) != 1:
        raise NotProven(node, f"uses a subquery with {len(found.columns)} columns as a value", "select one column")
    return Typed(f"({found.render()})", found.columns[0].value.type, c=found.columns[0].value.c)


def _in_query(node: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    if isinstance(node, exp.In) and query_of(node) is not None:
        return node.this, query_of(node) or node
    if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any) and is_query(node.expression.this):
        return node.this, node.expression.this
    return None


def query_of(node: exp.In) -> exp.Expr | None:
    """Return the subquery of IN; VALUES may be one."""
    found: exp.Expr | None = node.args.get("query")
    if found is None and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Values):
        found = node.expressions[0]
    return found


def is_query(node: exp.Expr) -> bool:
    """Whether it is a subquery, in parentheses or not."""
    return isinstance(inside(node), exp.Query)


def _compare(
    walk: Expressions,
    node: exp.Expr,
    operator: str,
    left: exp.Expr,
    query: exp.Expr,
    *,
    every: bool,
    is_filter: bool = False,
) -> Typed:
    """Translate a comparison with each row of a subquery."""
    values = [walk.of(one) for one in row(left) or [left]]
    scope = walk.scope
    scope.correlated |= left.find(exp.AggFunc, exp.Anonymous) is not None  # every() and jsonb_agg() too
    before = len(scope.hazards.lone)
    found = _settled(node, scope.subquery(node, query))
    if len(found.columns) != len(values):
        raise NotProven(
            node, f"compares {len(values)} values with a subquery of {len(found.columns)} columns", "select as many"
        )
    if isinstance(found, Select) and found.is_one_row and not found.has_condition and not found.tail:
        del scope.hazards.lone[before:]
        if len(values) == 1:
            item = found.columns[0].value
            value = Typed(f"({found.render()})", item.type, c=item.c)
            return _condition(node, operator, values, [value])
    _check_lone(walk, node, before)
    outer = wrapped(found)
    items = [one.value for one in outer.columns]
    if is_filter:
        pairs = [compared(node, value, item, order=False) for value, item in zip(values, items, strict=True)]
        shown = ", ".join(a.sql for a, _ in pairs)
        if all(b.sql == item.sql for (_, b), item in zip(pairs, items, strict=True)):
            return Typed(f"({shown if len(pairs) == 1 else f'({shown})'} in ({found.render()}))", BOOL)
        chosen = ", ".join(b.sql for _, b in pairs)
        return Typed(f"({shown if len(pairs) == 1 else f'({shown})'} in (select {chosen}{outer.clauses}))", BOOL)
    condition = _condition(node, operator, values, items).sql
    decided, other = (f"(not {condition})", "true") if every else (condition, "false")
    return Typed(
        f"case when exists (select 1{outer.clauses} where {decided}) then {'false' if every else 'true'}"
        f" when exists (select 1{outer.clauses} where ({condition} is null)) then {_NULL} else {other} end",
        BOOL,
    )


def _condition(node: exp.Expr, operator: str, left: Sequence[Typed], right: Sequence[Typed]) -> Typed:
    """Return a comparison of rows, value by value."""
    is_order = operator not in {"=", "<>", "is distinct from", "is not distinct from"}
    pairs = [compared(node, a, b, order=is_order) for a, b in zip(left, right, strict=True)]
    if not is_order:
        word = {"=": "({} = {})", "<>": "({} <> {})", "is not distinct from": "({} <=> {})"}
        shown = word.get(operator, "(not ({} <=> {}))")
        joint = " and " if operator in {"=", "is not distinct from"} else " or "
        return Typed(f"({joint.join(shown.format(a.sql, b.sql) for a, b in pairs)})", BOOL)
    (a, b) = pairs[-1]
    found = f"({a.sql} {operator} {b.sql})"
    for a, b in reversed(pairs[:-1]):
        # Like PostgreSQL, it does not compute what comes after the first values that differ, or are null.
        found = f"(case when {a.sql} = {b.sql} then {found} else {a.sql} {operator[0]} {b.sql} end)"
    return Typed(found, BOOL)


def _check_lone(walk: Expressions, node: exp.Expr, before: int) -> None:
    """Refuse a correlated aggregate without GROUP BY below EXISTS or IN: Spark loses its row of no rows."""
    if len(walk.scope.hazards.lone) > before:
        raise NotProven(node, "uses a correlated aggregate without group by inside exists or in", _LONE)


def _settled(node: exp.Expr, found: Relation) -> Relation:
    from sinks.warehouse.views.meaning.queries import settled

    return settled(node, found)
