"""Translates aggregates. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import decimals, documents
from sinks.warehouse.views.meaning.coercion import check_comparable, coerced, refuse_order, unpadded
from sinks.warehouse.views.meaning.conditions import check_order
from sinks.warehouse.views.meaning.known import AGGREGATES
from sinks.warehouse.views.meaning.nullness import is_constant, is_never_null
from sinks.warehouse.views.meaning.pg_types import (
    BOOL,
    FLOATS,
    INT8,
    JSONB,
    TEXT,
    TEXTS,
    array,
    numeric,
)
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.warehouse.views.meaning.expressions import Expressions

_NAMES: Final[dict[type[exp.Expr], str]] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.BitwiseAndAgg: "bit_and",
    exp.BitwiseOrAgg: "bit_or",
    exp.BitwiseXorAgg: "bit_xor",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
}
_AS_IN_SPARK: Final = frozenset({"count", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"})
_COUNT_DIGITS: Final = 12
_FLOAT_HINT: Final = "store numeric(p,s): sums of floats depend on the order of rows, and 0 and -0 are equal"


def is_aggregate(node: exp.Expr) -> bool:
    """Whether it is an aggregate of the table."""
    return type(node) in _NAMES or _is_every(node)


def _is_every(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "every" and len(node.expressions) == 1


def check_filtered(node: exp.Expr) -> None:
    """Refuse FILTER where Spark computes a value for rows that the filter leaves out too, and raises its errors."""
    over_window = isinstance(node.find_ancestor(exp.Window, exp.Select), exp.Window)
    if (over_window or _distinct_values(node)) and any(map(_is_computed, node.iter_expressions())):
        place = "over a window" if over_window else "beside aggregates of distinct values"
        raise NotProven(node, f"filters a computed value {place}", "write case when condition then value end inside")


def _is_computed(node: exp.Expr) -> bool:
    """Whether an argument of an aggregate is more than a column or a constant."""
    if isinstance(node, exp.Order | exp.Ordered | exp.Distinct | exp.Tuple | exp.Paren | exp.WithinGroup):
        return any(map(_is_computed, node.iter_expressions()))
    return not isinstance(node, exp.Column | exp.Star | exp.Literal | exp.AggFunc)


def aggregate(walk: Expressions, node: exp.Expr, tail: str) -> Typed:
    """Translate a call; `tail` is its FILTER and OVER, in Spark SQL."""
    if _is_every(node):
        node = exp.LogicalAnd(this=node.expressions[0].copy(), parent=node.parent)
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
        if isinstance(value, exp.Tuple) and name == "count":
            return _rows(walk, node, value, tail)
    if isinstance(value, exp.Order):
        raise NotProven(node, f"uses {name}() with order by", "remove order by: it has no effect")
    found = walk.of(value)
    if found.type.name == "varchar":
        found = coerced(node, found, TEXT)
    if name == "count" and not distinct and found.type.name != "unknown":
        if value.find(exp.Column) is not None and is_never_null(value):
            raise NotProven(node, "counts a value that is never null", "write count(*)")
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
    if name in {"var_samp", "var_pop"}:
        return _variance(node, found, tail, sample=name == "var_samp", distinct=bool(word))
    if name in _AS_IN_SPARK:
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


def _rows(walk: Expressions, node: exp.Expr, row: exp.Tuple, tail: str) -> Typed:
    """Translate ``count(distinct (a, b))``: a row of nulls is a row."""
    fields = []
    for number, one in enumerate(row.expressions):
        found = walk.of(one)
        if found.type.name in FLOATS or found.type.name == "unknown":
            raise NotProven(node, f"counts rows with {found.type}", "cast it, or count rows of a subquery")
        check_comparable(node, found.type)
        fields.append(f"'f{number}', {unpadded(found).sql}")
    return Typed(f"count(distinct named_struct({', '.join(fields)})){tail}", INT8)


def _variance(node: exp.Expr, found: Typed, tail: str, *, sample: bool, distinct: bool) -> Typed:
    """PostgreSQL divides N * sum(x * x) - sum(x) * sum(x), which is exact, by N * (N - 1) or N * N."""
    if distinct:
        raise NotProven(node, "uses a variance of distinct values", "select distinct values in a subquery")
    value = decimals.as_decimal(found)
    squared = decimals.multiplied(node, value, value)
    squares = Typed(f"sum({squared.sql}){tail}", decimals.summed(squared.type))
    total = Typed(f"sum({value.sql}){tail}", decimals.summed(value.type))
    kind = numeric(_COUNT_DIGITS, 0)
    count = Typed(f"cast(count({found.sql}){tail} as {kind.spark})", kind)
    other = decimals.added(node, count, Typed("cast(1 as decimal(1,0))", numeric(1, 0)), "-") if sample else count
    above = decimals.added(
        node, decimals.multiplied(node, count, squares), decimals.multiplied(node, total, total), "-"
    )
    quotient = decimals.divided(node, above, decimals.multiplied(node, count, other))
    return Typed(f"case when {count.sql} > {1 if sample else 0} then {quotient.sql} end", quotient.type)


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
    if distinct and (found.type.name in FLOATS or len(keys) != 1 or not _same(value, keys[0], found)):
        raise NotProven(
            node, "collects distinct values in another order", "write the same on both sides: distinct x order by x"
        )
    collected, values = _collected(found, keys, tail)
    if distinct:
        values = f"array_distinct({values})"
    return Typed(f"case when size({collected}) > 0 then {values} end", array(found.type))


def _collected(found: Typed, keys: Sequence[tuple[Typed, exp.Ordered]], tail: str) -> tuple[str, str]:
    """Return an array of the values with their keys, and the array of the values in order."""
    fields = [f"'k{number}', {unpadded(key).sql}" for number, (key, _) in enumerate(keys)] + [f"'v', {found.sql}"]
    collected = f"collect_list(named_struct({', '.join(fields)})){tail}"
    steps = " ".join(_compared(f"k{number}", ordered) for number, (_, ordered) in enumerate(keys))
    return collected, f"transform(array_sort({collected}, (l__, r__) -> case {steps} else 0 end), e__ -> e__.v)"


def json_aggregate(walk: Expressions, node: exp.Anonymous, tail: str) -> Typed:
    """Translate jsonb_agg with order by."""
    order = node.expressions[0] if len(node.expressions) == 1 else None
    if not isinstance(order, exp.Order) or isinstance(order.this, exp.Distinct):
        raise NotProven(node, "uses jsonb_agg() in this form", "write jsonb_agg(x order by y), on a key")
    found = walk.of(order.this)
    keys = [(walk.of(key.this), key) for key in order.expressions if isinstance(key, exp.Ordered)]
    for key, ordered in keys:
        check_order(ordered, key.type, c=key.c)
    text = Typed(documents.to_json(node, found), JSONB)
    collected, values = _collected(text, keys, tail)
    return Typed(f"case when size({collected}) > 0 then concat('[', array_join({values}, ', '), ']') end", JSONB)


def _same(value: exp.Expr, key: tuple[Typed, exp.Ordered], found: Typed) -> bool:
    """Whether a sort key is the value itself; a collation makes another expression of it."""
    collated = [one.find(exp.Collate) is not None for one in (value, key[1].this)]
    return key[0].sql == found.sql and collated[0] == collated[1]


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
    distinct_values = _distinct_values(node)
    texts = {one.sql() for one in distinct_values}
    if len(texts) > 1 or any(is_constant(one) or one.find_ancestor(exp.Filter) for one in distinct_values):
        raise NotProven(
            node,
            "uses string_agg() beside aggregates of distinct values",
            "compute the string_agg in a WITH query of its own, and join",
        )
    order = ", ".join(sorted_by(key, ordered) for key, ordered in keys)
    return Typed(f"listagg({unpadded(found).sql}, {text}) within group (order by {order}){tail}", TEXT)


def _distinct_values(node: exp.Expr) -> list[exp.Distinct]:
    """Return DISTINCT of all aggregates of the same SELECT. Spark's plan for some fails with an ordered aggregate."""
    select = node.find_ancestor(exp.Select)
    found = select.find_all(exp.Distinct) if select is not None else ()
    return [one for one in found if isinstance(one.parent, exp.AggFunc) and one.find_ancestor(exp.Select) is select]


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
