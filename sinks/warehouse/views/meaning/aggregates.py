"""Translates aggregates. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import decimals
from sinks.warehouse.views.meaning.coercion import coerced, refuse_order, unpadded
from sinks.warehouse.views.meaning.conditions import check_order
from sinks.warehouse.views.meaning.known import AGGREGATES, CONT_FRACTIONS
from sinks.warehouse.views.meaning.pg_types import (
    BOOL,
    FLOAT8,
    FLOATS,
    INT8,
    TEXT,
    TEXTS,
    PgType,
    array,
)
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_NAMES: Final[dict[type[exp.Expr], str]] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
}
_FLOAT_HINT: Final = "store numeric(p,s): sums of floats depend on the order of rows, and so do 0 and -0"


def is_aggregate(node: exp.Expr) -> bool:
    """Whether it is an aggregate of the table."""
    return type(node) in _NAMES


def aggregate(walk: Expressions, node: exp.Expr, tail: str) -> Typed:
    """Translate a call; `tail` is its FILTER and OVER, in Spark SQL."""
    name = _NAMES[type(node)]
    value = node.this
    if isinstance(value, exp.Star):
        return Typed(f"count(*){tail}", INT8)
    if node.expressions or value is None:
        raise NotProven(node, f"uses {name}() with several arguments")
    distinct = isinstance(value, exp.Distinct)
    if isinstance(value, exp.Distinct):
        if len(value.expressions) != 1 or value.args.get("on"):
            raise NotProven(node, f"uses {name}(distinct ...) of several columns", "count rows of a subquery")
        if " over (" in tail:
            raise NotProven(node, f"uses {name}(distinct ...) over a window", "count rows of a subquery")
        value = value.expressions[0]
    if isinstance(value, exp.Order):
        raise NotProven(node, f"uses {name}() with order by", "remove order by: it has no effect")
    found = walk.of(value)
    if found.type.name == "varchar":
        found = coerced(node, found, TEXT)
    if name == "count" and not distinct and found.type.name != "unknown":
        return Typed(f"count({found.sql}){tail}", INT8)
    _check(node, name, found)
    word = "distinct " if distinct else ""
    return _written(node, name, unpadded(found), f"{word}", tail)


def _check(node: exp.Expr, name: str, found: Typed) -> None:
    kind = found.type
    if kind.name not in AGGREGATES[name]:
        hint = _FLOAT_HINT if kind.name in FLOATS else "use a column of another type"
        raise NotProven(node, f"uses {name}({kind})", hint)
    if name in {"min", "max"} and kind.name in TEXTS and not found.c:
        refuse_order(node)


def _written(node: exp.Expr, name: str, found: Typed, word: str, tail: str) -> Typed:
    kind = found.type
    if name in {"count", "min", "max", "bool_and", "bool_or"}:
        result = INT8 if name == "count" else (BOOL if name.startswith("bool") else kind)
        return found.of(f"{name}({word}{found.sql}){tail}", result)
    if name == "sum" and kind.name in {"int2", "int4"}:
        return Typed(f"sum({word}{found.sql}){tail}", INT8)
    value = decimals.as_decimal(found.of(found.sql, kind))
    total = Typed(f"sum({word}{value.sql}){tail}", decimals.summed(value.type))
    if name == "sum":
        return total
    count = decimals.as_decimal(Typed(f"count({word}{found.sql}){tail}", INT8))
    return decimals.divided(node, total, count)


def ordered_aggregate(walk: Expressions, node: exp.Expr, tail: str) -> Typed:
    """Translate array_agg and string_agg with order by."""
    order = node.this
    if not isinstance(order, exp.Order):
        raise NotProven(node, "collects values without an order", "write order by inside, on a key")
    value = order.this
    distinct = isinstance(value, exp.Distinct)
    if isinstance(value, exp.Distinct):
        (value,) = value.expressions
    found = walk.of(value)
    keys = [(walk.of(key.this), key) for key in order.expressions if isinstance(key, exp.Ordered)]
    for key, ordered in keys:
        check_order(ordered, key.type, c=key.c)
    if isinstance(node, exp.GroupConcat):
        return _joined(walk, node, found, keys, tail, distinct=distinct)
    if found.type.name in {"unknown", "lake", "array"}:
        raise NotProven(node, f"collects values of type {found.type}")
    if distinct and (found.type.name in FLOATS or len(keys) != 1 or keys[0][0].sql != found.sql):
        raise NotProven(node, "collects distinct values in another order", "order by the value itself")
    fields = [f"'k{number}', {unpadded(key).sql}" for number, (key, _) in enumerate(keys)] + [f"'v', {found.sql}"]
    collected = f"collect_list(named_struct({', '.join(fields)})){tail}"
    steps = " ".join(_compared(f"k{number}", ordered) for number, (_, ordered) in enumerate(keys))
    values = f"transform(array_sort({collected}, (l__, r__) -> case {steps} else 0 end), e__ -> e__.v)"
    if distinct:
        values = f"array_distinct({values})"
    return Typed(f"case when size({collected}) > 0 then {values} end", array(found.type))


def _joined(
    walk: Expressions,
    node: exp.GroupConcat,
    found: Typed,
    keys: list[tuple[Typed, exp.Ordered]],
    tail: str,
    *,
    distinct: bool,
) -> Typed:
    separator = node.args.get("separator")
    text = walk.of(separator).sql if isinstance(separator, exp.Literal) else ""
    if distinct or not text or found.type.name not in TEXTS or " over (" in tail:
        raise NotProven(node, f"uses string_agg({found.type}) in this form", "write string_agg(text, ',' order by ...)")
    order = ", ".join(sorted_by(key, ordered) for key, ordered in keys)
    return Typed(f"listagg({unpadded(found).sql}, {text}) within group (order by {order}){tail}", TEXT)


def sorted_by(key: Typed, ordered: exp.Ordered) -> str:
    """Return a sort key with its direction, and where nulls are."""
    direction = "desc" if ordered.args.get("desc") else "asc"
    nulls = "first" if ordered.args.get("nulls_first") else "last"
    return f"{unpadded(key).sql} {direction} nulls {nulls}"


def _compared(field: str, key: exp.Ordered) -> str:
    """Return the WHEN clauses of a comparator for one field."""
    left, right = f"l__.{field}", f"r__.{field}"
    null_left, null_right = (-1, 1) if key.args.get("nulls_first") else (1, -1)
    less, more = (1, -1) if key.args.get("desc") else (-1, 1)
    return (
        f"when {left} is null and {right} is not null then {null_left} "
        f"when {left} is not null and {right} is null then {null_right} "
        f"when {left} < {right} then {less} when {left} > {right} then {more}"
    )


def percentile(walk: Expressions, node: exp.WithinGroup, tail: str) -> Typed:
    """Translate percentile_cont and percentile_disc."""
    call, order = node.this, node.expression
    keys = order.expressions if isinstance(order, exp.Order) else []
    if not isinstance(call, exp.PercentileCont | exp.PercentileDisc) or len(keys) != 1 or keys[0].args.get("desc"):
        raise NotProven(node, "uses within group in this form", "write percentile_disc(0.9) within group (order by x)")
    name = "percentile_cont" if isinstance(call, exp.PercentileCont) else "percentile_disc"
    fraction, value = call.this, walk.of(keys[0].this)
    if not isinstance(fraction, exp.Literal) or fraction.is_string or not 0 <= float(fraction.name) <= 1:
        raise NotProven(node, f"uses {name}() with this fraction", "write a literal from 0 to 1")
    result: PgType = value.type
    if name == "percentile_cont":
        if float(fraction.name) not in CONT_FRACTIONS or value.type.name not in {"int2", "int4"}:
            raise NotProven(
                node,
                f"uses percentile_cont({fraction.name}) of {value.type}, which may differ in the last digit",
                "write percentile_disc, or percentile_cont(0.25, 0.5 or 0.75) of an int",
            )
        result = FLOAT8
    elif value.type.name not in {"int2", "int4"}:
        raise NotProven(node, f"uses percentile_disc() of {value.type}, a double in Spark", "cast it to int")
    # Spark's percentiles are doubles, which hold an int2 and an int4 exactly.
    call_sql = f"{name}({fraction.name}) within group (order by {value.sql}){tail}"
    return Typed(f"cast({call_sql} as {result.spark})" if name == "percentile_disc" else call_sql, result)
