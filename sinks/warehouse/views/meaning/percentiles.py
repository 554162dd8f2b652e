"""Translates percentile_cont, percentile_disc and mode. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from sinks.warehouse.views.meaning.coercion import coerced, refuse_order
from sinks.warehouse.views.meaning.known import CONT_FRACTIONS
from sinks.warehouse.views.meaning.known_aggregates import PICKED_BY_ORDER
from sinks.warehouse.views.meaning.pg_types import FLOAT8, TEXT, TEXTS
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, once

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions


def within_group(walk: Expressions, node: exp.WithinGroup, tail: str) -> Typed:
    """Translate an aggregate with WITHIN GROUP; `tail` is its FILTER. Raises NotProven."""
    call, order = node.this, node.expression
    keys = order.expressions if isinstance(order, exp.Order) else []
    if not isinstance(call, exp.PercentileCont | exp.PercentileDisc | exp.Mode) or len(keys) != 1:
        raise NotProven(node, "uses within group in this form", "write percentile_disc(0.9) within group (order by x)")
    value, descending = walk.of(keys[0].this), bool(keys[0].args.get("desc"))
    if value.type.name == "varchar":
        value = coerced(node, value, TEXT)
    if isinstance(call, exp.PercentileCont):
        return _interpolated(node, call, value, tail, descending=descending)
    name = "mode" if isinstance(call, exp.Mode) else "percentile_disc"
    if value.type.name not in PICKED_BY_ORDER:
        raise NotProven(node, f"uses {name}() of {value.type}", f"known are {', '.join(PICKED_BY_ORDER)}")
    if value.type.name in TEXTS and not value.c:
        refuse_order(node)
    if isinstance(call, exp.Mode):
        direction = " desc" if descending else ""
        return value.of(f"mode() within group (order by {value.sql}{direction}){tail}", value.type)
    fraction = _fraction(node, call.this, name)
    collected = Typed(f"sort_array(collect_list({value.sql}){tail}, {str(not descending).lower()})", value.type)
    place = f"cast(greatest(ceil({fraction!r}D * cast(array_size({{0}}) as double)), 1) as int)"
    form = f"case when array_size({{0}}) > 0 then element_at({{0}}, {place}) end"
    return value.of(once(form, [collected]), value.type)


def _interpolated(node: exp.Expr, call: exp.PercentileCont, value: Typed, tail: str, *, descending: bool) -> Typed:
    fraction = _fraction(node, call.this, "percentile_cont")
    if descending or fraction not in CONT_FRACTIONS or value.type.name not in {"int2", "int4"}:
        raise NotProven(
            node,
            f"uses percentile_cont({fraction}) of {value.type}, which may differ in the last digit",
            "write percentile_disc of a numeric(p,s), or percentile_cont(0.25, 0.5 or 0.75) of an int",
        )
    # Spark's percentiles are doubles, which hold an int2 and an int4 exactly.
    return Typed(f"percentile_cont({call.this.name}) within group (order by {value.sql}){tail}", FLOAT8)


def _fraction(node: exp.Expr, fraction: exp.Expr, name: str) -> float:
    if not isinstance(fraction, exp.Literal) or fraction.is_string or not 0 <= float(fraction.name) <= 1:
        raise NotProven(node, f"uses {name}() with this fraction", "write a literal from 0 to 1")
    return float(fraction.name)
