"""Which columns of a view are estimates: their value depends on how the rows were split and put together. Pure.

KLL throws a coin when it is full, `approx_top_k` keeps what came first of items that are as frequent, HLL estimates
otherwise when it was never merged, and the summaries of `approx_percentile` and `histogram_numeric` go by the order of
rows. So the same query over the same cut can give another estimate each time, all within the sketch's error. Theta
sketches do not (`tests/spark/test_kept_views.py`).
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
    """Names, in lower case, of columns anywhere in the query (Spark's SQL) that come from a sketch.

    `of_inputs` are those of the views it reads. Columns go by their name alone, so one that has the name of an estimate
    is taken for one, and one that is renamed by ``as x (a, b)`` is not. A query that only Spark understands has none.
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
