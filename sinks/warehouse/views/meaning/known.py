"""What is known to have the same meaning in PostgreSQL and in Spark, as data. Everything else is refused. Pure.

Each entry is compared with a PostgreSQL server over hostile values (`tests/spark/meaning`); an entry without such a
test fails the tests. Numeric arithmetic is in `decimals`, because its types are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sinks.warehouse.views.meaning import (
    known_aggregates,
    known_json,
    known_numbers,
    known_text,
    known_time,
    known_values,
)
from sinks.warehouse.views.meaning.known_entry import Function

_INTEGERS: Final = ("int2", "int4", "int8")

FUNCTIONS: Final[Mapping[str, tuple[Function, ...]]] = {
    **known_text.FUNCTIONS,
    **known_numbers.FUNCTIONS,
    **known_time.FUNCTIONS,
}
"""Function -> its known argument types. Text functions take a char(n) as PostgreSQL does: without its padding."""

ALTERNATIVES: Final = {
    **known_text.ALTERNATIVES,
    **known_json.ALTERNATIVES,
    **known_numbers.ALTERNATIVES,
    **known_aggregates.ALTERNATIVES,
}
"""Function that is refused, or known for other arguments only -> what to write instead."""

ALIASES: Final = {"substr": "substring", "character_length": "char_length", "ceiling": "ceil"}

CASTS: Final[Mapping[tuple[str, str], str]] = {
    **{
        (one, other): "cast({0} as {type})"
        for one in _INTEGERS
        for other in (*_INTEGERS, "float8", "text")
        if one != other
    },
    ("numeric", "int2"): "cast(round({0}, 0) as {type})",
    ("numeric", "int4"): "cast(round({0}, 0) as {type})",
    ("numeric", "int8"): "cast(round({0}, 0) as {type})",
    ("numeric", "float8"): "cast({0} as double)",
    ("float4", "float8"): "cast({0} as double)",
    ("bool", "text"): "cast({0} as string)",
    ("bool", "int4"): "cast({0} as int)",
    ("date", "text"): "cast({0} as string)",
    ("timestamp", "text"): "cast({0} as string)",
    ("uuid", "text"): "{0}",
    ("enum", "text"): "{0}",
    ("date", "timestamp"): "cast({0} as timestamp_ntz)",
    ("date", "timestamptz"): "cast({0} as timestamp)",
    ("timestamp", "date"): "cast({0} as date)",
    ("timestamp", "timestamptz"): "cast({0} as timestamp)",
    ("timestamptz", "timestamp"): "cast({0} as timestamp_ntz)",
    ("timestamptz", "date"): "cast({0} as date)",
    ("timestamptz", "text"): "concat(cast({0} as string), '+00')",
    **known_numbers.CASTS,
    **known_values.CASTS,
    **known_time.CASTS,
    **known_text.CASTS,
    **known_json.CASTS,
}
"""Casts besides those to numeric, to varchar(n) and from char(n). The session of the comparison is in UTC."""

COMPARE_HINTS: Final = {**known_text.COMPARE_HINTS, **known_json.COMPARE_HINTS}
"""Type whose values are not compared -> what to write instead."""

FIELDS: Final = known_time.FIELDS
TRUNCATED_TO: Final = tuple(known_time.TRUNCATED_TO)

AGGREGATES: Final = known_aggregates.AGGREGATES

WINDOWS: Final[Mapping[str, str]] = {
    "row_number": "int8",
    "rank": "int8",
    "dense_rank": "int8",
    "percent_rank": "float8",
    "cume_dist": "float8",
}
"""Window function without arguments -> result type. Aggregates are window functions as well."""
SHIFTED: Final = ("lag", "lead")
PICKED: Final = ("first_value", "last_value", "nth_value")
COUNTED: Final = ("ntile",)
PERCENTILES: Final = ("percentile_cont", "percentile_disc")
CONT_FRACTIONS: Final = frozenset({0.0, 0.25, 0.5, 0.75, 1.0})
"""Fractions for which both interpolate int2 and int4 without rounding."""

CLAUSES: Final = (
    "select, select distinct, distinct on with order by",
    "from: tables, subqueries, `values`, `unnest` and `generate_series`, with `with ordinality` and `as t(a, b)`",
    "join: inner, left, right, full and cross, with on, using or natural; joins in parentheses; lateral",
    "where, group by a name, a position or an expression, rollup, cube, grouping sets, `grouping()`, having",
    "order by with limit, offset, and fetch first with or without ties",
    "with, also nested and materialized, not recursive",
    "union, intersect, except, each with and without all",
    "subqueries: scalar, exists, in, not in, any, all, in from; correlated with the query directly around them",
    "rows: `(a, b) = (c, d)` and the other comparisons, `(a, b) in (...)`",
    "windows with partition by and order by, named windows, frames of rows, and of range with a distance",
)
"""Clauses for the documents; `queries` translates them."""
