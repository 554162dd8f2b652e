"""A view's plan: the key it is kept by, the keys that a cut affects, and its rows of these keys. Pure, SQL to SQL.

Usage, with `relations` named as in `relations.py` and `k` a relation with the keys:

    plan = plan_view(name, sql, relations)
    plan.reason                       # if not empty: why it is recomputed
    plan.constants_sql(changed)         # if one of these queries has a row, the view must be recomputed
    keys = run(plan.keys_sql(changed))  # columns plan.key; no duplicates
    rows = run(plan.rows_sql("k"))      # the view's rows of these keys, all columns, as of this cut

The view as of the cut is its old rows without those of the keys, plus the new ones. With `plan.top`, `rows` are all its
rows (`top_rows.py`).
`sinks.warehouse.views.incremental` runs this on Spark, the property tests on DuckDB.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner import sql_pieces
from sinks.warehouse.planner.affected_keys import AffectedKeys
from sinks.warehouse.planner.analyse import analyse
from sinks.warehouse.planner.parse import normal_form
from sinks.warehouse.planner.relations import Relation, Unplannable
from sinks.warehouse.planner.restrict import RowsQuery, Side, restriction_of, rows_of, rows_query
from sinks.warehouse.planner.time_windows import (
    HOPS,
    NUMBERS,
    Span,
    TimeWindow,
    has_time_windows,
    spans_of,
    without_time_windows,
)
from sinks.warehouse.planner.top_rows import Top, without_limit
from sinks.warehouse.planner.tree import Base, Block, Node, Sets, leaves, names
from sinks.warehouse.planner.view_keys import unique_key, view_key


@dataclass(frozen=True, slots=True, eq=False)
class ViewPlan:
    """How a view can be kept.

    Attributes:
        name: of the view.
        inputs: relations it reads.
        reason: why it is recomputed after any change; "" if it can be kept by keys.
        key: columns it is kept by; empty with a reason.
        unique: columns that no two rows share, a null being equal to a null; empty if none are known.
        columns: the view's columns, in order, in lower case.
        obstacles: input -> why a change of it causes a recompute.
        top: its ORDER BY ... LIMIT; None if it has none.
        text: its SQL without time windows; "" if it has none.
        numbers: whether its queries read `time_windows.NUMBERS`, which is not an input.
        spans: columns of its key that are starts of windows.
    """

    name: str
    inputs: tuple[str, ...]
    reason: str
    key: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    obstacles: Mapping[str, str] = field(default_factory=dict)
    top: Top | None = None
    text: str = ""
    numbers: bool = False
    spans: tuple[Span, ...] = ()
    _node: Block | Sets | None = None
    _whole: Block | Sets | None = None

    def obstacle(self, changed: Collection[str]) -> str:
        """Return why these changes cause a recompute; "" if its keys are enough."""
        return self.reason or next((self.obstacles[name] for name in sorted(changed) if name in self.obstacles), "")

    def keys_sql(self, changed: Collection[str]) -> str:
        """Return the query of the keys that changes of these relations affect, without duplicates.

        Raises Unplannable as in `obstacle`. At least one relation must be an input.
        """
        found = AffectedKeys(changed)
        branches = found.affected(self._query(), self.key)
        if not branches and found.constants:
            branches = [f"select {', '.join(map(quoted, self.key))} from ({self.whole_sql()}) where false"]
        if not branches:
            raise Unplannable("nothing that it reads changed")
        return f"select distinct * from ({sql_pieces.union(branches)})"

    def constants_sql(self, changed: Collection[str]) -> list[str]:
        """Return a query for each subquery that is the same for every row: it has a row if its value may differ."""
        found = AffectedKeys(changed)
        found.affected(self._query(), self.key)
        return [_difference(leaf.node, branches) for leaf, branches in found.constants.items()]

    def rows_query(self, relation: str, starts: Mapping[str, tuple[int, int]] | None = None) -> RowsQuery:
        """Return the query of its rows at this cut whose key is in `relation`, which has the columns `key`.

        `starts`: column of `spans` -> its least and greatest value in `relation`, in microseconds since 1970, so that
        fewer rows are read.
        """
        node, keys = self._query(), quoted(relation)
        known = starts or {}
        bounds = tuple(span.between(*known[span.start]) for span in self.spans if span.start in known)
        restriction = replace(restriction_of(node, keys, self.key), bounds=bounds)
        found = rows_query(node, Side.NEW, restriction)
        if self.top is not None:
            return RowsQuery(self.top.sql(found.text, keys, self.key, self.columns), found.narrowed)
        if isinstance(node, Block):
            return found
        # Compared again by the result's columns: where a UNION changes their type, other values may be equal.
        same = " and ".join(f"w.{quoted(name)} IS NOT DISTINCT FROM v.{quoted(name)}" for name in self.key)
        text = f"select * from ({found.text}) v where exists (select 1 from {keys} w where {same})"
        return RowsQuery(text, found.narrowed)

    def rows_sql(self, relation: str) -> str:
        """Return `rows_query` as text."""
        return self.rows_query(relation).sql()

    def whole_sql(self) -> str:
        """Return the query of all its rows in the planner's form, to compare it with the view's own text."""
        self._query()
        return rows_of(self._whole or self._query(), Side.NEW, None)

    def graph(self) -> list[str]:
        """Return what its FROM and its subqueries read, for display."""
        if not isinstance(self._node, Block):
            return list(self.inputs)
        found = leaves(self._node.source)
        return [leaf.node.name if isinstance(leaf.node, Base) else f"subquery {leaf.alias}" for leaf in found]

    def _query(self) -> Block | Sets:
        if self._node is None:
            raise Unplannable(self.reason)
        return self._node


def plan_view(name: str, sql: str, relations: Mapping[str, Relation]) -> ViewPlan:
    """Return the plan of a view; if it must be recomputed, a plan with the reason.

    Args:
        name: of the view.
        sql: Spark's, with tables named as in `relations`.
        relations: all relations it may read, by lower-case name.
    """
    try:
        return _planned(name, sql, {relation.lower(): found for relation, found in relations.items()})
    except Exception as error:  # noqa: BLE001 - the parser fails on some texts; without a plan a view is recomputed
        return ViewPlan(name, (), f"the planner cannot read it: {type(error).__name__}")


def _planned(name: str, sql: str, known: Mapping[str, Relation]) -> ViewPlan:
    text = ""
    windows: tuple[TimeWindow, ...] = ()
    try:
        if has_time_windows(sql):
            plain = without_time_windows(sql, known)
            sql = text = plain.sql
            windows, known = plain.windows, {**known, HOPS: NUMBERS}
        query = normal_form(sql, known)
    except Unplannable as found:
        return ViewPlan(name, (), str(found))
    tables = {table.name for table in query.find_all(exp.Table)}
    inputs, numbers = tuple(sorted(tables - {HOPS})), HOPS in tables
    try:
        node = analyse(query, known)
        columns, unique = names(node), unique_key(node)
    except Unplannable as found:
        return ViewPlan(name, inputs, str(found))
    whole, top = node, None
    try:
        if isinstance(node, Block) and node.bounded:
            node, top = without_limit(node)
        key = view_key(node)
    except Unplannable as found:
        return ViewPlan(
            name, inputs, str(found), unique=unique, columns=columns, text=text, numbers=numbers, _node=whole
        )
    obstacles: dict[str, str] = {}
    for one in inputs:
        try:
            AffectedKeys({one}).affected(node, key)
        except Unplannable as found:
            obstacles[one] = str(found)
    reason = next(iter(obstacles.values())) if inputs and len(obstacles) == len(inputs) else ""
    starts = {name: node.outputs[name] for name in key} if isinstance(node, Block) else {}
    spans = spans_of(starts, windows)
    return ViewPlan(name, inputs, reason, key, unique, columns, obstacles, top, text, numbers, spans, node, whole)


def _difference(node: Node, branches: Sequence[str]) -> str:
    """Return a query that has rows only if the node's rows differ before and after the cut; none if nothing changed."""
    if isinstance(node, Base):
        raise TypeError("a subquery is a query")
    new, old = (f"select * from ({rows_of(node, side, None)})" for side in (Side.NEW, Side.OLD))
    changed = f"exists (select 1 from ({sql_pieces.union(branches)}))"
    both = f"((({new}) except ({old})) union all (({old}) except ({new})))"
    return f"select 1 from {both} d where {changed}"
