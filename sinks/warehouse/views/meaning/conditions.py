"""Translates comparisons and what combines them: =, <, is, in, between, like, and, or, not. Pure."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.coercion import coerced, compared, refuse_order
from sinks.warehouse.views.meaning.pg_types import BOOL, COMPARED, TEXT, TEXTS, PgType
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, text_literal

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
_UPPER_TO_LOWER: Final = (string.ascii_uppercase, string.ascii_lowercase)


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
    if kind.name not in COMPARED - {"enum"}:
        raise NotProven(node, f"orders values of type {kind}", "order by a column of another type")
    if kind.name in TEXTS and not c:
        refuse_order(node)


def _comparison(walk: Expressions, node: exp.Binary) -> Typed:
    _check_nesting(node)
    if isinstance(node.expression, exp.Any | exp.All):
        return _any(walk, node)
    operator = _COMPARISONS[type(node)]
    left, right = walk.of(node.this), walk.of(node.expression)
    a, b = sides(node, left, right, order=operator not in {"=", "<>"})
    return Typed(f"({a.sql} {operator} {b.sql})", BOOL)


def _any(walk: Expressions, node: exp.Binary) -> Typed:
    inner = node.expression.this
    if isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any) and isinstance(inner, exp.Array):
        return _list(walk, node, node.this, inner.expressions)
    if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any) and isinstance(inner, exp.Query):
        return _subquery(walk, node, node.this, inner)
    raise NotProven(node, "compares with any() or all()", "write in (...), or exists (...)")


def _null_safe(walk: Expressions, node: exp.Binary) -> Typed:
    _check_nesting(node)
    a, b = sides(node, walk.of(node.this), walk.of(node.expression), order=False)
    equal = f"({a.sql} <=> {b.sql})"
    return Typed(equal if isinstance(node, exp.NullSafeEQ) else f"(not {equal})", BOOL)


def _is(walk: Expressions, node: exp.Is) -> Typed:
    _check_nesting(node)
    found = walk.of(node.this)
    other = node.expression
    if isinstance(other, exp.Null):
        return Typed(f"({found.sql} is null)", BOOL)
    if isinstance(other, exp.Boolean):
        return Typed(f"({truth(node, found).sql} is {'true' if other.this else 'false'})", BOOL)
    raise NotProven(
        node, f"uses is {other.sql('postgres')[:30]}", "write is null, is true, is false or is distinct from"
    )


def _in(walk: Expressions, node: exp.In) -> Typed:
    _check_nesting(node)
    query = node.args.get("query")
    if query is not None:
        return _subquery(walk, node, node.this, query.this if isinstance(query, exp.Subquery) else query)
    if node.args.get("unnest") or node.args.get("field") or not node.expressions:
        raise NotProven(node, "uses in over an array", "write in (...) with values, or a subquery")
    return _list(walk, node, node.this, node.expressions)


def _list(walk: Expressions, node: exp.Expr, left: exp.Expr, values: list[exp.Expr]) -> Typed:
    if isinstance(left, exp.Tuple):
        raise NotProven(node, "compares rows with in", "compare each column, or write exists (...)")
    value = walk.of(left)
    items = [walk.of(one) for one in values]
    pairs = [sides(node, value, item, order=False) for item in items]
    if len({pair[0].sql for pair in pairs}) == 1 and len({pair[0].type.name for pair in pairs}) == 1:
        return Typed(f"({pairs[0][0].sql} in ({', '.join(pair[1].sql for pair in pairs)}))", BOOL)
    return Typed(f"({' or '.join(f'{a.sql} = {b.sql}' for a, b in pairs)})", BOOL)


def _subquery(walk: Expressions, node: exp.Expr, left: exp.Expr, query: exp.Expr) -> Typed:
    if isinstance(left, exp.Tuple):
        raise NotProven(node, "compares rows with in", "write exists (...) with a condition for each column")
    if not isinstance(query, exp.Query):
        raise NotProven(node, "uses in over an expression")
    found = walk.scope.subquery(node, query)
    if len(found.columns) != 1:
        raise NotProven(node, f"compares with a subquery of {len(found.columns)} columns", "select one column")
    value, item = walk.of(left), found.columns[0].value
    a, b = sides(node, value, item, order=False)
    if b.sql != item.sql:
        found.columns[0] = found.columns[0].with_value(b)
    return Typed(f"({a.sql} in ({found.render()}))", BOOL)


def _between(walk: Expressions, node: exp.Between) -> Typed:
    _check_nesting(node)
    if node.args.get("symmetric"):
        raise NotProven(node, "uses between symmetric", "write two comparisons")
    value = walk.of(node.this)
    a, low = sides(node, value, walk.of(node.args["low"]), order=True)
    b, high = sides(node, value, walk.of(node.args["high"]), order=True)
    return Typed(f"({a.sql} >= {low.sql} and {b.sql} <= {high.sql})", BOOL)


def _like(walk: Expressions, node: exp.Like | exp.ILike, escape: str = "\\") -> Typed:
    _check_nesting(node)
    value, pattern = walk.of(node.this), walk.of(node.expression)
    if value.type.name == "unknown":
        value = coerced(node, value, TEXT)
    # like is the one operator of char(n) that sees its padding.
    if value.type.name not in TEXTS or pattern.literal is None:
        raise NotProven(node, "uses like with a pattern that is not a literal", "write the pattern as a literal")
    text = pattern.literal
    if escape in text or "\\" in text:
        raise NotProven(
            node, "escapes in a like pattern", "use strpos(x, 'text') > 0, left(x, n) = 'text', or = 'text'"
        )
    subject = value.sql
    if isinstance(node, exp.ILike):
        if not value.c:
            raise NotProven(
                node, "compares without case by the collation of the database", 'write x collate "C" ilike ...'
            )
        subject, text = lowered(subject), text.translate(str.maketrans(*_UPPER_TO_LOWER))
    return Typed(f"({subject} like {text_literal(text)})", BOOL)


def _escape(walk: Expressions, node: exp.Escape) -> Typed:
    inner = node.this
    if not isinstance(inner, exp.Like | exp.ILike) or not isinstance(node.expression, exp.Literal):
        raise NotProven(node, "uses escape")
    found = _like(walk, inner, str(node.expression.this) or "\\")
    return Typed(f"(not {found.sql})", BOOL) if inner.args.get("negate") else found


def lowered(sql: str) -> str:
    """Return text in lower case as collation C has it: ASCII only."""
    return f"translate({sql}, '{_UPPER_TO_LOWER[0]}', '{_UPPER_TO_LOWER[1]}')"


def uppered(sql: str) -> str:
    """Return text in upper case as collation C has it."""
    return f"translate({sql}, '{_UPPER_TO_LOWER[1]}', '{_UPPER_TO_LOWER[0]}')"


def _connector(walk: Expressions, node: exp.And | exp.Or) -> Typed:
    word = "and" if isinstance(node, exp.And) else "or"
    parts = [walk.condition(part) for part in node.flatten(unnest=False)]
    return Typed(f"({f' {word} '.join(parts)})", BOOL)


def _not(walk: Expressions, node: exp.Not) -> Typed:
    return Typed(f"(not {walk.condition(node.this)})", BOOL)


def _check_nesting(node: exp.Expr) -> None:
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
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.And: _connector,
    exp.Or: _connector,
    exp.Not: _not,
}
