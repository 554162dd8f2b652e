"""The parts of each kind of node that a translation reads. A node with another part is refused. Pure.

The parser adds parts that change the meaning of a node, such as ``negate`` of LIKE. One that no handler reads would be
lost silently.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from sinks.warehouse.views.meaning.refusal import NotProven

_THIS: Final = frozenset({"this"})
_BOTH: Final = frozenset({"this", "expression"})
_LIST: Final = frozenset({"this", "expressions"})
_PARTS: Final[dict[type[exp.Expr], frozenset[str]]] = {
    exp.Column: frozenset({"this", "table", "db"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Boolean: _THIS,
    exp.Null: frozenset(),
    exp.Paren: _THIS,
    exp.Collate: _BOTH,
    exp.Neg: _THIS,
    exp.Not: _THIS,
    exp.And: _BOTH,
    exp.Or: _BOTH,
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.Coalesce: _LIST,
    exp.Nullif: _BOTH,
    # PostgreSQL's ignore nulls, as Spark's do.
    exp.Greatest: frozenset({"this", "expressions", "ignore_nulls"}),
    exp.Least: frozenset({"this", "expressions", "ignore_nulls"}),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ), _BOTH),
    exp.Is: _BOTH | {"negate"},
    exp.In: frozenset({"this", "expressions", "query", "negate", "unnest", "field"}),
    exp.Between: frozenset({"this", "low", "high", "symmetric", "negate"}),
    exp.Like: _BOTH | {"negate"},
    exp.ILike: _BOTH | {"negate"},
    exp.Escape: _BOTH,
    exp.Exists: _THIS,
    exp.Subquery: frozenset({"this"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.Add: _BOTH,
    exp.Sub: _BOTH,
    exp.Mul: _BOTH,
    # How PostgreSQL divides; the translation does the same by type.
    exp.Div: _BOTH | {"typed", "safe"},
    exp.Mod: _BOTH,
    exp.IntDiv: _BOTH,
    exp.DPipe: _BOTH | {"safe"},
    exp.Extract: _BOTH,
    exp.TimestampTrunc: frozenset({"this", "unit", "zone"}),
    exp.TimeToStr: frozenset({"this", "format"}),
    exp.UnixToTime: _THIS,
    exp.AtTimeZone: frozenset({"this", "zone"}),
    exp.Upper: _THIS,
    exp.Lower: _THIS,
    exp.Initcap: _BOTH,
    exp.Trim: frozenset({"this", "position", "expression", "collation"}),
    exp.Pad: frozenset({"this", "expression", "fill_pattern", "is_left"}),
    exp.Chr: frozenset({"expressions"}),
    exp.Encode: frozenset({"this", "charset"}),
    # concat() and concat_ws() ignore nulls, as in PostgreSQL.
    exp.Concat: frozenset({"expressions", "safe", "coalesce"}),
    exp.ConcatWs: frozenset({"expressions", "safe", "coalesce"}),
    exp.Format: _LIST,
    exp.RegexpLike: _BOTH | {"flag"},
    exp.RegexpILike: _BOTH,
    exp.RegexpReplace: frozenset({"this", "expression", "replacement", "modifiers", "single_replace"}),
    exp.RegexpCount: _BOTH,
    exp.RegexpSubstr: _BOTH,
    **dict.fromkeys((exp.JSONExtract, exp.JSONExtractScalar), _BOTH | {"only_json_types"}),
    **dict.fromkeys((exp.JSONBExtract, exp.JSONBExtractScalar), _BOTH),
    **dict.fromkeys((exp.JSONBContainsTopKey, exp.JSONBContainsAnyTopKeys, exp.JSONBContainsAllTopKeys), _BOTH),
    exp.Round: frozenset({"this", "decimals"}),
    exp.Trunc: frozenset({"this", "decimals"}),
    **dict.fromkeys((exp.Ceil, exp.Floor, exp.Sign, exp.Sqrt, exp.BitwiseNot), _THIS),
    **dict.fromkeys(
        (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift), _BOTH
    ),
    exp.Array: frozenset({"expressions"}),
    **dict.fromkeys((exp.ArrayContainsAll, exp.ArrayContainedBy, exp.ArrayOverlaps, exp.ArraySize), _BOTH),
    exp.ArrayToString: _BOTH | {"null"},
    exp.Bracket: _LIST,
    exp.Slice: _BOTH,
    exp.Filter: _BOTH,
    exp.WithinGroup: _BOTH,
    exp.Window: frozenset({"this", "partition_by", "order", "spec", "over", "alias"}),
    exp.ArrayAgg: _THIS,
    exp.GroupConcat: frozenset({"this", "separator"}),
    exp.Count: frozenset({"this", "expressions", "big_int"}),
    **dict.fromkeys((exp.Sum, exp.Avg, exp.Min, exp.Max), _LIST),
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr), _LIST),
    exp.Distinct: frozenset({"expressions", "on"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Order: _LIST,
    exp.PercentileCont: _THIS,
    exp.PercentileDisc: _THIS,
    exp.Mode: _THIS,
    **dict.fromkeys((exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg, exp.Variance, exp.VariancePop), _LIST),
    exp.RowNumber: frozenset(),
    exp.Lag: frozenset({"this", "offset", "default"}),
    exp.Lead: frozenset({"this", "offset", "default"}),
    exp.FirstValue: _LIST,
    exp.LastValue: _LIST,
    exp.NthValue: frozenset({"this", "offset"}),
    exp.Ntile: _THIS,
    **dict.fromkeys((exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist), frozenset()),
    exp.Grouping: frozenset({"expressions"}),
    **dict.fromkeys((exp.Any, exp.All), _THIS),
    exp.Tuple: frozenset({"expressions"}),
    exp.Values: frozenset({"expressions", "alias"}),
    exp.Unnest: frozenset({"expressions", "alias", "offset"}),
    exp.GenerateSeries: frozenset({"start", "end", "step"}),
    exp.ExplodingGenerateSeries: frozenset({"start", "end", "step"}),
    exp.Lateral: frozenset({"this", "alias", "ordinality"}),
    exp.CTE: frozenset({"this", "alias", "materialized"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.WindowSpec: frozenset({"kind", "start", "start_side", "end", "end_side", "exclude"}),
    exp.Limit: frozenset({"expression"}),
    exp.Offset: frozenset({"expression"}),
    exp.Fetch: frozenset({"direction", "count", "limit_options"}),
}
_SUBQUERY_PARENS: Final = frozenset({"this", "alias"})


def check_parts(node: exp.Expr) -> None:
    """Refuse a node that has a part which its handler does not read."""
    known = _PARTS.get(type(node))
    if known is None:
        return
    for key, value in node.args.items():
        if value and key not in known:
            raise NotProven(node, f"uses {type(node).__name__.lower()} with {key}", "write it without")


def check_all(query: exp.Expr) -> None:
    """Check all nodes below a query; subqueries may have the alias that FROM gives them."""
    for node in query.walk():
        if isinstance(node, exp.Subquery):
            if any(value for key, value in node.args.items() if key not in _SUBQUERY_PARENS):
                raise NotProven(node, "uses a subquery in this form", "write limit and with inside the parentheses")
        else:
            check_parts(node)
