"""Corrects what sqlglot's translation from PostgreSQL loses: the order in aggregates, percentiles, time zones. Pure.

`rewritten` changes a parsed query before it is written as Spark SQL. Without it ``array_agg(x order by y)`` has no
order, ``percentile_cont`` becomes an approximation, and ``at time zone`` converts a timestamp without a zone in the
wrong direction: the rows differ from PostgreSQL's, without an error.
"""

from __future__ import annotations

from typing import Final

import sqlglot
from sqlglot import exp

_PERCENTILES: Final[dict[type[exp.Expr], str]] = {
    exp.PercentileCont: "percentile_cont",
    exp.PercentileDisc: "percentile_disc",
}
_UTC: Final = frozenset({"utc", "gmt"})
_ZONELESS: Final = (
    "at time zone takes a timestamptz in a view; use to_utc_timestamp(t, zone) in Spark SQL for a timestamp"
)


def rewritten(query: exp.Query) -> exp.Query:
    """Change the query in place so that Spark SQL has the same meaning, and return it."""
    for bracket in [*query.find_all(exp.Bracket)]:
        _slice(bracket)
    for collecting in [*query.find_all(exp.ArrayAgg)]:
        if isinstance(collecting.this, exp.Order):
            _ordered_array(collecting, collecting.this)
    for percentile in [*query.find_all(*_PERCENTILES)]:
        name = _PERCENTILES[type(percentile)]
        percentile.replace(exp.Anonymous(this=name, expressions=[percentile.this]))
    for zoned in [*query.find_all(exp.AtTimeZone)]:
        _local_time(zoned)
    return query


def _local_time(node: exp.AtTimeZone) -> None:
    """Translate ``t at time zone 'z'`` for a timestamptz. Only Spark knows types, so another type is an error there.

    PostgreSQL ignores the case of zone names, Spark does not. UTC is the one that people write in lower case.
    """
    zone = node.args["zone"].copy()
    if isinstance(zone, exp.Literal) and zone.name.lower() in _UTC:
        zone = exp.Literal.string(zone.name.upper())
    moment = node.this.copy()
    kind = exp.Anonymous(this="typeof", expressions=[moment])
    refused = exp.Anonymous(this="raise_error", expressions=[exp.Literal.string(_ZONELESS)])
    local = exp.Anonymous(this="from_utc_timestamp", expressions=[moment.copy(), zone])
    checked = exp.If(this=exp.EQ(this=kind, expression=exp.Literal.string("timestamp")), true=local)
    node.replace(exp.Case(ifs=[checked], default=refused))


def _ordered_array(node: exp.ArrayAgg, order: exp.Order) -> None:
    """Translate ``array_agg([distinct] x order by k desc, ...) [filter (...)]`` to a sort of collected structs.

    Ties are ordered by the value itself, where PostgreSQL has no defined order. No rows give a null, as in PostgreSQL.
    """
    value, is_distinct = order.this, isinstance(order.this, exp.Distinct)
    if is_distinct:
        (value,) = value.expressions
    keys: list[exp.Ordered] = [found for found in order.expressions if isinstance(found, exp.Ordered)]
    fields: list[exp.Expr] = []
    for number, key in enumerate(keys):
        fields += [exp.Literal.string(f"k{number}"), key.this.copy()]
    fields += [exp.Literal.string("v"), value.copy()]
    collected: exp.Expr = exp.ArrayAgg(this=exp.Anonymous(this="named_struct", expressions=fields))
    whole: exp.Expr = node
    if isinstance(node.parent, exp.Filter):
        whole = node.parent
        collected = exp.Filter(this=collected, expression=whole.expression.copy())
    compared = [_compared(f"k{number}", key) for number, key in enumerate(keys)]
    steps = " ".join([*compared, _compared("v", exp.Ordered(nulls_first=False))])
    sorting = sqlglot.parse_one(
        f"transform(array_sort(c__, (l__, r__) -> case {steps} else 0 end), e__ -> e__.v)", read="spark"
    )
    _place(sorting, collected)
    values = exp.Anonymous(this="array_distinct", expressions=[sorting]) if is_distinct else sorting
    size = exp.Anonymous(this="size", expressions=[collected.copy()])
    whole.replace(exp.Case(ifs=[exp.If(this=exp.GT(this=size, expression=exp.Literal.number(0)), true=values)]))


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


def _place(sorting: exp.Expr, collected: exp.Expr) -> None:
    for column in sorting.find_all(exp.Column):
        if column.name == "c__":
            column.replace(collected)
            return


def _slice(node: exp.Bracket) -> None:
    """Translate ``a[2:4]``, of an array whose first index is 1, with both ends included."""
    part = node.expressions[0] if len(node.expressions) == 1 else None
    if not isinstance(part, exp.Slice):
        return
    first = part.this or exp.Literal.number(1)
    last = part.expression or exp.Anonymous(this="size", expressions=[node.this.copy()])
    behind = exp.Add(this=exp.Paren(this=last.copy()), expression=exp.Literal.number(1))
    count = exp.Sub(this=behind, expression=exp.Paren(this=first.copy()))
    length = exp.Anonymous(this="greatest", expressions=[exp.Literal.number(0), count])
    node.replace(exp.Anonymous(this="slice", expressions=[node.this, first, length]))
