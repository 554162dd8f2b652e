"""Translates + - * / %, div() and ||. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import decimals, floats, moments
from sinks.warehouse.views.meaning.casts import as_text
from sinks.warehouse.views.meaning.coercion import common
from sinks.warehouse.views.meaning.intervals import is_interval, scaled
from sinks.warehouse.views.meaning.pg_types import DATE, FLOATS, INT4, INTEGERS, TEXT, TEXTS, TIMES, PgType
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, raising

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_NUMBERS: Final = frozenset({*INTEGERS, "numeric"})
_FIRST_DAY: Final = -719_162  # 0001-01-01 in days since 1970-01-01
_LAST_DAY: Final = 2_932_896  # 9999-12-31
_OPERATORS: Final[dict[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}


def _arithmetic(walk: Expressions, node: exp.Binary) -> Typed:
    operator = _OPERATORS[type(node)]
    if is_interval(node.expression) or scaled(node.expression) is not None:
        return moments.shifted(walk, node, operator)
    left, right = walk.of(node.this), walk.of(node.expression)
    if {left.type.name, right.type.name} & TIMES:
        return _dates(node, operator, left, right)
    (left, right), kind = common(node, [left, right])
    if kind.name in FLOATS:
        return floats.computed(node, operator, left, right, kind)
    if kind.name not in _NUMBERS:
        raise NotProven(node, f"computes {operator} of {kind}", "cast both sides to integers or numeric(p,s)")
    if kind.name == "numeric":
        return _numeric(node, operator, decimals.as_decimal(left), decimals.as_decimal(right))
    return _integers(operator, left, right, kind)


def _integers(operator: str, left: Typed, right: Typed, kind: PgType) -> Typed:
    """Spark checks overflow and division by zero as well, in ANSI mode."""
    if operator == "/":
        return Typed(f"cast({left.sql} div {right.sql} as {kind.spark})", kind)
    return Typed(f"({left.sql} {operator} {right.sql})", kind)


def _numeric(node: exp.Expr, operator: str, left: Typed, right: Typed) -> Typed:
    if operator == "/":
        return decimals.divided(node, left, right)
    if operator == "*":
        return decimals.multiplied(node, left, right)
    if operator == "%":
        return decimals.remainder(left, right)
    return decimals.added(node, left, right, operator)


def _dates(node: exp.Expr, operator: str, left: Typed, right: Typed) -> Typed:
    """Translate date - date and date +- integer."""
    if left.type == DATE and right.type == DATE and operator == "-":
        return Typed(f"datediff({left.sql}, {right.sql})", INT4)
    days = ("int2", "int4")
    if left.type == DATE and right.type.name in days and operator in {"+", "-"}:
        return _moved(left.sql, operator, right.sql)
    if right.type == DATE and left.type.name in days and operator == "+":
        return _moved(right.sql, operator, left.sql)
    raise NotProven(
        node,
        f"computes {left.type} {operator} {right.type}",
        "write date - date, date + integer, + interval '1 day', or extract(epoch from (a - b))",
    )


def _moved(day: str, operator: str, days: str) -> Typed:
    """Return a date some days later or earlier. Spark's date_add goes on beyond the last day that it can store."""
    number = f"(unix_date({day}) {operator} {days})"
    moved = f"date_from_unix_date({number})"
    failed = raising("date out of range", "date")
    fits = f"{number} between {_FIRST_DAY} and {_LAST_DAY}"
    empty = f"{day} is null or {days} is null"
    return Typed(f"case when {empty} then cast(null as date) when {fits} then {moved} else {failed} end", DATE)


def _concatenated(walk: Expressions, node: exp.DPipe) -> Typed:
    if any(isinstance(one, exp.Binary) and not isinstance(one, exp.DPipe) for one in (node.this, node.expression)):
        raise NotProven(node, "combines || with another operator", "put the other operator into parentheses")
    parts = [walk.of(one) for one in (node.this, node.expression)]
    if not any(part.type.name in TEXTS for part in parts) and any(part.type.name != "unknown" for part in parts):
        raise NotProven(node, f"concatenates {parts[0].type} and {parts[1].type}", "cast one of them to text")
    found = [as_text(node, part) for part in parts]
    return Typed(f"concat({found[0].sql}, {found[1].sql})", TEXT, c=any(part.c for part in parts))


def _whole_quotient(walk: Expressions, node: exp.IntDiv) -> Typed:
    """div() takes numerics in PostgreSQL and truncates, as the quotient of integers does."""
    left, right = walk.of(node.this), walk.of(node.expression)
    (left, right), kind = common(node, [left, right])
    if kind.name not in INTEGERS:
        raise NotProven(node, f"computes div() of {kind}", "cast both sides to bigint")
    return decimals.as_decimal(Typed(f"({left.sql} div {right.sql})", PgType("int8")))


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    **dict.fromkeys(_OPERATORS, _arithmetic),
    exp.DPipe: _concatenated,
    exp.IntDiv: _whole_quotient,
}
