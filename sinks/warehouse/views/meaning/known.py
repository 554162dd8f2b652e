"""What is known to have the same meaning in PostgreSQL and in Spark, as data. Everything else is refused. Pure.

Each entry is compared with a PostgreSQL server over hostile values (`tests/spark/meaning`); an entry without such a
test fails the tests. Numeric arithmetic is in `decimals`, because its types are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Function:
    """A function with one list of argument types.

    Attributes:
        arguments: names of their types.
        result: name of the result's type; ``numeric(p,s)`` with digits.
        spark: Spark SQL; ``{0}`` is the first argument.
        literal: positions of arguments that must be literals in `low` to `high`.
    """

    arguments: tuple[str, ...]
    result: str
    spark: str
    literal: tuple[int, ...] = ()
    low: int = 0
    high: int = 1_000_000


_INTEGERS: Final = ("int2", "int4", "int8")
_MOMENTS: Final = ("date", "timestamp", "timestamptz")


def _each(names: tuple[str, ...], spark: str, result: str = "") -> tuple[Function, ...]:
    return tuple(Function((name,), result or name, spark) for name in names)


FUNCTIONS: Final[Mapping[str, tuple[Function, ...]]] = {
    "length": _each(("text",), "char_length({0})", "int4"),
    "char_length": _each(("text",), "char_length({0})", "int4"),
    "md5": _each(("text",), "md5(cast({0} as binary))", "text"),
    "reverse": _each(("text",), "reverse({0})", "text"),
    "btrim": (*_each(("text",), "trim({0})", "text"),),
    "ltrim": _each(("text",), "ltrim({0})", "text"),
    "rtrim": _each(("text",), "rtrim({0})", "text"),
    "strpos": (Function(("text", "text"), "int4", "instr({0}, {1})"),),
    "replace": (Function(("text", "text", "text"), "text", "replace({0}, {1}, {2})"),),
    "left": (Function(("text", "int4"), "text", "left({0}, {1})", (1,)),),
    "right": (Function(("text", "int4"), "text", "right({0}, {1})", (1,)),),
    "substring": (
        Function(("text", "int4"), "text", "substring({0}, {1})", (1,), 1),
        Function(("text", "int4", "int4"), "text", "substring({0}, {1}, {2})", (1, 2), 1),
    ),
    "abs": (*_each((*_INTEGERS, "numeric"), "abs({0})"),),
}
"""Function -> its known argument types. Text functions take a char(n) as PostgreSQL does: without its padding."""

ALIASES: Final = {"substr": "substring", "character_length": "char_length"}

CASTS: Final[Mapping[tuple[str, str], str]] = {
    **{(one, other): "cast({0} as {type})" for one in _INTEGERS for other in (*_INTEGERS, "float8", "text")},
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
}
"""Casts besides those to numeric, to varchar(n) and from char(n). The session of the comparison is in UTC."""

FIELDS: Final[Mapping[str, tuple[str, int, int]]] = {
    "year": ("cast(year({0}) as decimal(10,0))", 10, 0),
    "quarter": ("cast(quarter({0}) as decimal(10,0))", 10, 0),
    "month": ("cast(month({0}) as decimal(10,0))", 10, 0),
    "week": ("cast(weekofyear({0}) as decimal(10,0))", 10, 0),
    "day": ("cast(day({0}) as decimal(10,0))", 10, 0),
    "doy": ("cast(dayofyear({0}) as decimal(10,0))", 10, 0),
    "dow": ("cast(dayofweek({0}) - 1 as decimal(10,0))", 10, 0),
    "isodow": ("cast(weekday({0}) + 1 as decimal(10,0))", 10, 0),
    "hour": ("cast(hour({0}) as decimal(10,0))", 10, 0),
    "minute": ("cast(minute({0}) as decimal(10,0))", 10, 0),
}
"""Field of extract() and date_part() -> Spark SQL, and the digits of its numeric. Hours need a timestamp."""
CLOCK_FIELDS: Final = frozenset({"hour", "minute"})

TRUNCATED_TO: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""Units of date_trunc() for a timestamp and a timestamptz."""

AGGREGATES: Final[Mapping[str, Mapping[str, str]]] = {
    "count": dict.fromkeys(
        (*_INTEGERS, "numeric", "bool", "text", "bpchar", "uuid", "bytea", "enum", *_MOMENTS), "int8"
    ),
    "sum": {"int2": "int8", "int4": "int8", "int8": "numeric", "numeric": "numeric"},
    "avg": dict.fromkeys((*_INTEGERS, "numeric"), "numeric"),
    "min": {name: name for name in (*_INTEGERS, "numeric", "text", *_MOMENTS)},
    "max": {name: name for name in (*_INTEGERS, "numeric", "text", *_MOMENTS)},
    "bool_and": {"bool": "bool"},
    "bool_or": {"bool": "bool"},
}
"""Aggregate -> argument type -> result type. Text is compared by code points (collation C)."""

WINDOWS: Final[Mapping[str, str]] = {"row_number": "int8", "rank": "int8", "dense_rank": "int8"}
"""Window function without arguments -> result type. Aggregates are window functions as well."""
SHIFTED: Final = ("lag", "lead")
PICKED: Final = ("first_value", "last_value")
PERCENTILES: Final = ("percentile_cont", "percentile_disc")
CONT_FRACTIONS: Final = frozenset({0.0, 0.25, 0.5, 0.75, 1.0})
"""Fractions for which both interpolate int2 and int4 without rounding."""

CLAUSES: Final = (
    "select, select distinct, distinct on with order by",
    "where, group by, grouping sets without the empty set, having",
    "order by with limit and offset",
    "join: inner, left, right, full and cross, with on",
    "lateral subqueries",
    "with, not recursive",
    "union, intersect, except, each with and without all",
    "subqueries: scalar, exists, in, not in, in from",
    "window definitions with order by, and frames of rows",
)
"""Clauses for the documents; `queries` translates them."""
