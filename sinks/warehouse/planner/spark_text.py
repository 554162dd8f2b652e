"""Parses Spark's SQL for plans: sqlglot's dialect, but functions that it would write differently stay as written. Pure.

sqlglot turns a call into its own form, and writes that: ``date_trunc('day', at)`` with ``'DAY'``, ``date_sub`` as
``date_add``, ``percentile_cont`` as an approximation. Spark's plans of the two texts differ then, and the view could
not be kept by keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

_AS_WRITTEN: Final = frozenset(
    {"date", "date_format", "date_sub", "date_trunc", "from_unixtime", "instr", "len", "log", "log10", "log2", "trunc"}
    | {"parse_json", "signum", "space", "to_char", "to_date", "to_timestamp", "try_to_date", "unix_date"}
    | {"bigint", "boolean", "double", "float", "int", "smallint", "string", "timestamp", "tinyint", "unix_timestamp"}
)
"""Scalar functions that sqlglot would write differently, in lower case."""
_OF_A_UNIT: Final = frozenset({"dateadd", "datediff", "date_add", "date_diff", "timestampadd", "timestampdiff"})
"""With three arguments, the first is a unit: ``timestampdiff(second, a, b)``."""
_AGGREGATES: Final = frozenset({"percentile_cont", "percentile_disc"})
_WITH_UNIT: Final = 3
_Builder: TypeAlias = "Callable[[list[exp.Expr]], exp.Expr]"


def _kept(name: str, kind: type[exp.Expr] = exp.Anonymous) -> _Builder:
    return lambda arguments: kind(this=name, expressions=arguments)


def _of_a_unit(name: str) -> _Builder:
    def call(arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) == _WITH_UNIT and isinstance(arguments[0], exp.Column):
            arguments = [exp.var(arguments[0].name), *arguments[1:]]
        return exp.Anonymous(this=name, expressions=arguments)

    return call


class SparkAsWritten(Spark):
    """Spark's dialect; see this module."""

    class Parser(SparkParser):
        """Spark's, with calls that it writes again as they were read."""

        FUNCTIONS = {
            **SparkParser.FUNCTIONS,
            **{name.upper(): _kept(name) for name in _AS_WRITTEN},
            **{name.upper(): _of_a_unit(name) for name in _OF_A_UNIT},
            **{name.upper(): _kept(name, exp.AnonymousAggFunc) for name in _AGGREGATES},
        }


def is_as_written(call: exp.Anonymous) -> bool:
    """Whether this is a known scalar function that stays as written."""
    name = call.name.lower()
    return name in _AS_WRITTEN or name in _OF_A_UNIT


def tree_of(sql: str) -> exp.Expr:
    """Return the tree of a text. Raises SqlglotError."""
    return sqlglot.parse_one(sql, read=SparkAsWritten)
