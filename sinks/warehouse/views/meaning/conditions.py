"""Translates comparisons and what combines them: =, <, is, in, between, and, or, not. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import arrays, moments, subqueries
from sinks.warehouse.views.meaning.coercion import coerced, compared, refuse_order, unified
from sinks.warehouse.views.meaning.nullness import is_constant, is_never_null
from sinks.warehouse.views.meaning.pg_types import BOOL, INTEGERS, ORDERED, TEXTS, PgType
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_COMPARISONS: Final = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_RANGES: Final = (
    *_COMPARISONS,
    *(exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Not, exp.Escape),
)


def truth(node: exp.Expr, found: Typed) -> Typed:
    """Return a condition. Raises NotProven if it is not boolean."""
    if found.type.name in {"unknown", "lake"}:
        return coerced(node, found, BOOL)
    if found.type != BOOL:
        raise NotProven(node, f"uses {found.type} as a condition", "compare it with a value")
    return found


def sides(node: exp.Expr, left: Typed, right: Typed, *, order: bool) -> tuple[Typed, Typed]:
    """Return both sides of a comparison."""
    return compared(node, left, right, order=order)


def check_order(node: exp.Expr, kind: PgType, *, c: bool) -> None:
    """Refuse to order by a type, or by a collation, that Spark does not order alike."""
    if kind.name not in ORDERED:
        raise NotProven(node, f"orders values of type {kind}", "order by a column of another type")
    if kind.name in TEXTS and not c:
        refuse_order(node)


def _comparison(walk: Expressions, node: exp.Binary) -> Typed:
    check_nesting(node)
    operator = _COMPARISONS[type(node)]
    if isinstance(node.expression, exp.Any | exp.All):
        return _any(walk, node, operator)
    if isinstance(node.expression, exp.Anonymous) and node.expression.name.lower() == "all":
        # The parser reads all(array) as a call of a function.
        return arrays.quantified(walk, node, operator, node.expression.expressions[0], every=True)
    rows = subqueries.compared_rows(walk, node, operator, (node.this, node.expression))
    if rows is not None:
        return rows
    durations = moments.duration_comparison(walk, node, operator)
    if durations is not None:
        return durations
    left, right = walk.of(node.this), walk.of(node.expression)
    a, b = sides(node, left, right, order=operator not in {"=", "<>"})
    _check_different(node, a, b)
    return Typed(f"({a.sql} {operator} {b.sql})", BOOL)


def _any(walk: Expressions, node: exp.Binary, operator: str) -> Typed:
    inner = node.expression.this
    if isinstance(inner, exp.Paren):
        inner = inner.this
    equal = isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any)
    if equal and isinstance(inner, exp.Array) and inner.expressions and all(map(_is_plain, inner.expressions)):
        return _list(walk, node, node.this, inner.expressions, one_type=True)
    if subqueries.is_query(inner):
        return subqueries.quantified(walk, node, operator)
    return arrays.quantified(walk, node, operator, inner, every=isinstance(node.expression, exp.All))


def _is_plain(node: exp.Expr) -> bool:
    """Whether it cannot fail. All elements of an array are computed, those of a list until one is equal."""
    while isinstance(node, exp.Cast | exp.Neg | exp.Paren) and is_constant(node):
        node = node.this
    return isinstance(node, exp.Column | exp.Literal | exp.Boolean | exp.Null)


def _null_safe(walk: Expressions, node: exp.Binary) -> Typed:
    check_nesting(node)
    operator = "is not distinct from" if isinstance(node, exp.NullSafeEQ) else "is distinct from"
    rows = subqueries.compared_rows(walk, node, operator, (node.this, node.expression))
    if rows is not None:
        return rows
    a, b = sides(node, walk.of(node.this), walk.of(node.expression), order=False)
    _check_different(node, a, b)
    equal = f"({a.sql} <=> {b.sql})"
    return Typed(equal if isinstance(node, exp.NullSafeEQ) else f"(not {equal})", BOOL)


def _is(walk: Expressions, node: exp.Is) -> Typed:
    check_nesting(node)
    found = walk.of(node.this)
    other = node.expression
    if isinstance(other, exp.Null):
        if is_never_null(node.this):
            raise NotProven(node, "tests a value that is never null", "leave the test out")
        return Typed(f"({found.sql} is null)", BOOL)
    if isinstance(other, exp.Boolean):
        return Typed(f"({truth(node, found).sql} is {'true' if other.this else 'false'})", BOOL)
    raise NotProven(
        node, f"uses is {other.sql('postgres')[:30]}", "write is null, is true, is false or is distinct from"
    )


def _in(walk: Expressions, node: exp.In) -> Typed:
    check_nesting(node)
    if subqueries.query_of(node) is not None:
        return subqueries.membership(walk, node)
    if node.args.get("unnest") or node.args.get("field") or not node.expressions:
        raise NotProven(node, "uses in over an array", "write in (...) with values, or a subquery")
    return _list(walk, node, node.this, node.expressions)


def _list(
    walk: Expressions, node: exp.Expr, left: exp.Expr, values: list[exp.Expr], *, one_type: bool = False
) -> Typed:
    """Translate ``x in (...)``; with `one_type` ``x = any(array[...])``, whose elements have a type without x."""
    if subqueries.row(left) is not None:
        tests = [subqueries.compared_rows(walk, node, "=", (left, one)) for one in values]
        return Typed(f"({' or '.join(test.sql for test in tests if test is not None)})", BOOL)
    constant = [is_constant(one) for one in values]
    if is_constant(left) and any(constant) and not all(constant):
        # PostgreSQL compares constants while it plans, and may then not compute the other values.
        raise NotProven(node, "compares a constant with constants and other values", "compare it with the other values")
    if constant.count(True) > 1 and not one_type:
        # PostgreSQL compares with a list of constants first, and then with the other values one by one.
        values = sorted(values, key=lambda one: not is_constant(one))
    value = walk.of(left)
    items = [walk.of(one) for one in values]
    if one_type:
        items, _ = unified(node, items)
    if value.type.name == "float4" and any(item.type.name in {*INTEGERS, "numeric"} for item in items):
        # PostgreSQL compares with one number as float8, and with a list as float4.
        raise NotProven(node, "compares float4 with a list of numbers", "cast it: x::float8 in (...)")
    names = {one.type.name for one in (value, *items)}
    if "unknown" in names and len(names - {"lake"}) > 2:
        # PostgreSQL gives all constants of a list one type.
        raise NotProven(node, "compares with literals and values of another type", "cast the literals")
    pairs = [sides(node, value, item, order=False) for item in items]
    if len({pair[0].sql for pair in pairs}) == 1 and len({pair[0].type.name for pair in pairs}) == 1:
        return Typed(f"({pairs[0][0].sql} in ({', '.join(pair[1].sql for pair in pairs)}))", BOOL)
    return Typed(f"({' or '.join(f'{a.sql} = {b.sql}' for a, b in pairs)})", BOOL)


def _between(walk: Expressions, node: exp.Between) -> Typed:
    check_nesting(node)
    if node.args.get("symmetric"):
        raise NotProven(node, "uses between symmetric", "write two comparisons")
    value = walk.of(node.this)
    a, low = sides(node, value, walk.of(node.args["low"]), order=True)
    b, high = sides(node, value, walk.of(node.args["high"]), order=True)
    return Typed(f"({a.sql} >= {low.sql} and {b.sql} <= {high.sql})", BOOL)


def _connector(walk: Expressions, node: exp.And | exp.Or) -> Typed:
    word = "and" if isinstance(node, exp.And) else "or"
    parts = [walk.condition(part) for part in node.flatten(unnest=False)]
    return Typed(f"({f' {word} '.join(parts)})", BOOL)


def _not(walk: Expressions, node: exp.Not) -> Typed:
    return Typed(f"(not {walk.condition(node.this)})", BOOL)


def _check_different(node: exp.Expr, left: Typed, right: Typed) -> None:
    """Refuse to compare an expression with itself: Spark knows the result and does not show an error of it."""
    if left.sql == right.sql and left.source is None and left.literal is None:
        raise NotProven(node, "compares an expression with itself", "write is null or is not null")


def check_nesting(node: exp.Expr) -> None:
    """Refuse operators whose order without parentheses is another one in PostgreSQL than the parser assumes."""
    below = [node.this, node.args.get("expression")]
    if any(isinstance(one, _RANGES) for one in below):
        raise NotProven(node, "combines comparisons without parentheses", "put the inner comparison into parentheses")


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    **dict.fromkeys(_COMPARISONS, _comparison),
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: _null_safe,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.And: _connector,
    exp.Or: _connector,
    exp.Not: _not,
}
