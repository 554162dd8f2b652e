"""Aggregates whose value is known to be equal, by argument type. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sinks.warehouse.views.meaning.pg_types import COMPARED, INTEGERS, ORDERED

_WHOLE: Final = tuple(INTEGERS)
_MOMENTS: Final = ("date", "timestamp", "timestamptz")
_NUMERICS: Final = dict.fromkeys((*_WHOLE, "numeric"), "numeric")
_LEAST: Final = {name: name for name in (*_WHOLE, "numeric", "text", *_MOMENTS, "time")}

AGGREGATES: Final[Mapping[str, Mapping[str, str]]] = {
    "count": dict.fromkeys(sorted(COMPARED - {"varchar"}), "int8"),
    "sum": {"int2": "int8", "int4": "int8", "int8": "numeric", "numeric": "numeric"},
    "avg": _NUMERICS,
    "min": _LEAST,
    "max": _LEAST,
    "bool_and": {"bool": "bool"},
    "bool_or": {"bool": "bool"},
    "bit_and": {name: name for name in _WHOLE},
    "bit_or": {name: name for name in _WHOLE},
    "bit_xor": {name: name for name in _WHOLE},
    "var_samp": _NUMERICS,
    "var_pop": _NUMERICS,
}
"""Aggregate -> argument type -> result type. Text is compared by code points (collation C)."""
PICKED_BY_ORDER: Final = tuple(sorted(ORDERED - {"float4", "float8", "bpchar", "varchar"}))
"""Types of percentile_disc() and mode(): equal values have one form, so that it does not matter which is picked."""
ALTERNATIVES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("stddev", "stddev_samp", "stddevsamp"), "select var_samp(x), and compute its square root outside"),
    **dict.fromkeys(("stddev_pop", "stddevpop"), "select var_pop(x), and compute its square root outside"),
    **dict.fromkeys(
        ("corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_count", "regr_avgx"),
        "compute it in PostgreSQL: sums of floats depend on the order of rows",
    ),
}
