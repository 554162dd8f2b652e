"""Finds columns of a view that are estimates: their value depends on how rows were divided and merged. Pure.

KLL flips a coin when it is full. `approx_top_k` keeps the first of equally frequent items. HLL estimates differently if
it was never merged. The summaries of `approx_percentile` and `histogram_numeric` depend on the order of rows. So the
same query over the same cut can give different estimates, all within the error of the sketch. Theta sketches do not
(`tests/spark/test_kept_views.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_SKETCHES: Final = re.compile(r"(hll|kll)_\w+|histogram_numeric|approx_top_k\w*", re.IGNORECASE)
_KNOWN_SKETCHES: Final = (exp.ApproxQuantile, exp.ApproxTopK)


def estimated_columns(sql: str, of_inputs: Collection[str] = ()) -> frozenset[str]:
    """Return the names, in lower case, of columns anywhere in the query (Spark's SQL) that come from a sketch.

    `of_inputs` are those of the views it reads. Columns are identified by name alone. So a column with the name of an
    estimate counts as one, and a column renamed by ``as x (a, b)`` does not. A query that only Spark can parse has
    none.
    """
    found = {name.lower() for name in of_inputs}
    try:
        query = sqlglot.parse_one(sql, read="spark")
    except SqlglotError:
        return frozenset(found)
    while more := set(_more(query, found)) - found:
        found |= more
    return frozenset(found)


def _more(query: exp.Expr, found: Collection[str]) -> Iterator[str]:
    for select in query.find_all(exp.Select):
        yield from (column.output_name.lower() for column in select.expressions if _is_estimate(column, found))


def _is_estimate(column: exp.Expr, found: Collection[str]) -> bool:
    for node in column.walk():
        if isinstance(node, _KNOWN_SKETCHES):
            return True
        if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) and _SKETCHES.fullmatch(node.name):
            return True
        if isinstance(node, exp.Column) and node.name.lower() in found:
            return True
    return False
