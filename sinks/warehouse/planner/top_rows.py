"""Keeps a query with ORDER BY ... LIMIT by the keys of the same query without LIMIT. Pure, SQL to SQL.

The view's own rows are enough, nothing else is stored. A row that is not among them, and whose key is not affected, is
not before the view's last row. So the first rows are among the view's rows of unaffected keys and the new rows of
affected keys, unless fewer than the limit of these come up to the last row: then the view is recomputed. Of rows that
are equal in the order, those that the view has come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner.relations import Unplannable
from sinks.warehouse.planner.tree import Block, is_plain

BEFORE: Final = "__before"
"""The view's rows at the previous cut."""
ORIGIN: Final = "__n"
"""An additional last column of the new rows: 0 and 1 for rows, `LAST` if the view must be recomputed."""
LAST: Final = 2
_ROWS_MAX: Final = 10_000  # the driver holds them


@dataclass(frozen=True, slots=True)
class Top:
    """The order and limit of a query.

    Attributes:
        order: SQL over columns of the result, whether it is descending, and whether nulls come first.
        limit: number of rows.
    """

    order: tuple[tuple[str, bool, bool], ...]
    limit: int

    def sql(self, rows: str, keys: str, key: Sequence[str], columns: Sequence[str]) -> str:
        """Return the query of the view's rows, with the column `ORIGIN`.

        Args:
            rows: query of the rows of affected keys, without the limit.
            keys: relation with the affected keys, which has the columns `key`.
            key: columns of the view.
            columns: all columns of the view.
        """
        listed = ", ".join(map(quoted, columns))
        same = " and ".join(f"k.{quoted(name)} IS NOT DISTINCT FROM b.{quoted(name)}" for name in key)
        is_full = f"(select count(*) from {BEFORE}) >= {self.limit}"
        last = f"select {listed}, {LAST} as {ORIGIN} from {BEFORE} where {is_full}"
        parts = (
            f"select {listed}, 0 as {ORIGIN} from {BEFORE} b where not exists (select 1 from {keys} k where {same})",
            f"select {listed}, 1 as {ORIGIN} from ({rows})",
            f"select * from ({last} order by {self._by(reverse=True)} limit 1)",
        )
        return f"select * from ({' union all '.join(parts)}) order by {self._by()}, {ORIGIN} limit {self.limit}"

    def _by(self, *, reverse: bool = False) -> str:
        return ", ".join(
            f"{value} {'desc' if descending != reverse else 'asc'} "
            f"nulls {'first' if nulls_first != reverse else 'last'}"
            for value, descending, nulls_first in self.order
        )


def without_limit(block: Block) -> tuple[Block, Top]:
    """Return the block without its ORDER BY ... LIMIT, and these. Raises Unplannable."""
    select = block.select
    limit = select.args.get("limit")
    value = limit.expression if isinstance(limit, exp.Limit) else None
    if select.args.get("offset") or not isinstance(value, exp.Literal) or not value.name.isdigit():
        raise Unplannable("ORDER BY ... LIMIT with OFFSET, or with a limit that is not a number")
    count = int(value.name)
    if not 0 < count <= _ROWS_MAX:
        raise Unplannable(f"LIMIT of more than {_ROWS_MAX:,} rows, or of none")
    order = select.args.get("order")
    if order is None:
        raise Unplannable("LIMIT without ORDER BY")
    by = tuple(_ordered(block, one) for one in order.expressions)
    plain = select.copy()
    plain.set("limit", None)
    plain.set("order", None)
    return replace(block, select=plain, bounded=False), Top(by, count)


def _ordered(block: Block, ordered: exp.Expr) -> tuple[str, bool, bool]:
    value = ordered.this if isinstance(ordered, exp.Ordered) else ordered
    descending = bool(ordered.args.get("desc"))
    nulls_first = ordered.args.get("nulls_first")
    return _over_columns(block, value), descending, not descending if nulls_first is None else bool(nulls_first)


def _over_columns(block: Block, value: exp.Expr) -> str:
    """Return a value of the block's rows as SQL over its result."""
    place = {expression: name for name, expression in reversed(block.outputs.items())}

    def placed(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name in block.outputs:
            return exp.column(node.name, quoted=True)
        return exp.column(place[node], quoted=True) if node in place else node

    found = value.copy().transform(placed)
    is_position = isinstance(value, exp.Literal)
    if is_position or not is_plain(found) or any(column.table for column in found.find_all(exp.Column)):
        raise Unplannable("ORDER BY ... LIMIT by a value that its columns do not determine")
    return str(found.sql("spark"))
