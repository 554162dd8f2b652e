"""Arithmetic of float4 and float8: that of IEEE 754 in both, with PostgreSQL's errors. Pure.

PostgreSQL raises an error where finite operands give infinity, or a product or quotient is lost in zero.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from sinks.warehouse.views.meaning.pg_types import PgType
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, once, raising

_OVERFLOW: Final = "abs({r}) = {inf} and abs({{0}}) <> {inf}"
_BOTH: Final = _OVERFLOW + " and abs({{1}}) <> {inf}"
_LOST: Final = {
    "+": _BOTH,
    "-": _BOTH,
    "*": f"({_BOTH}) or ({{r}} = 0 and {{{{0}}}} <> 0 and {{{{1}}}} <> 0)",
    "/": f"({_OVERFLOW}) or ({{r}} = 0 and {{{{0}}}} <> 0 and abs({{{{1}}}}) <> {{inf}})",
}


def computed(node: exp.Expr, operator: str, left: Typed, right: Typed, kind: PgType) -> Typed:
    """Return + - * or / of two floats of one type."""
    if operator not in _LOST:
        raise NotProven(node, f"computes {operator} of {kind}", "cast both sides to numeric(p,s)")
    infinity = f"cast('Infinity' as {kind.spark})"
    # Spark divides floats as doubles; rounding such a quotient twice gives the same float.
    result = f"cast({{0}} {operator} {{1}} as {kind.spark})"
    lost = _LOST[operator].format(r=result, inf=infinity)
    form = f"case when {lost} then {raising('value out of range', kind.spark)} else {result} end"
    if operator == "/":
        zero = raising("division by zero", kind.spark)
        nan = f"cast('NaN' as {kind.spark})"
        by_zero = f"case when isnan({{0}}) then {nan} when {{0}} is not null then {zero} end"
        form = f"case when {{1}} = 0 then {by_zero} else {form} end"
    return Typed(once(form, [left, right]), kind)
