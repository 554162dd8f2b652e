"""Runs the plans of views on Spark: finds the keys that a cut affects, and the rows of these keys.

Every doubt has its reason, and the view is recomputed. `PlanBook` decides what depends on the query alone: whether
Spark reads it like `sinks.warehouse.planner`, and whether the key's values are exactly comparable. What depends on the
cut ends in Unplannable: too many keys, a value that does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner.decide import Decision, decide
from sinks.warehouse.planner.plan import ViewPlan, plan_view
from sinks.warehouse.planner.relations import Relation, Unplannable, images, old
from sinks.warehouse.planner.restrict import RowsQuery
from sinks.warehouse.planner.top_rows import BEFORE, LAST, ORIGIN
from sinks.warehouse.spark.held_rows import HeldRows
from sinks.warehouse.views.budget import Budget
from sinks.warehouse.views.definition import BoundView
from sinks.warehouse.views.inputs import Replacement, ViewInputs
from sinks.warehouse.views.same_query import same_columns, same_query

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KEYS_SHARE_MAX: Final = 0.2  # of the view's rows: above that recomputing was always cheaper (2026-11-21)
_KEYS_FEW: Final = 1_000  # in a small view any share is acceptable
KEYS_MAX: Final = 200_000  # the driver holds them
_KEYS: Final = "__keys"


@dataclass(slots=True)
class PlanBook:
    """Decisions about views, kept from cut to cut. A view is decided again if its SQL or its input columns change."""

    _known: dict[str, tuple[str, Decision]] = field(default_factory=dict)

    def decide(
        self,
        spark: SparkSession,
        view: BoundView,
        relations: Mapping[str, Relation],
        frame: DataFrame,
        inputs: ViewInputs,
    ) -> Decision:
        """Return whether the view can be kept by keys over these relations.

        `frame` is made from its own text, over `inputs`.
        """
        from pyspark.errors import PySparkException

        form = f"{view.sha} {sorted((one.name, list(one.columns.items()), one.key) for one in relations.values())}"
        known = self._known.get(view.name)
        if known is not None and known[0] == form:
            return known[1]
        plan = plan_view(view.name, view.sql, relations)
        try:
            has_use = not plan.reason or plan.unique
            reads_same = bool(has_use) and _reads_same(spark, inputs, plan, frame)
        except Unplannable as found:
            return Decision(plan, str(found))
        except PySparkException as error:
            return Decision(plan, not_run(error))  # not kept: it may be temporary
        decision = decide(plan, dict(frame.dtypes), reads_same=reads_same)
        self._known[view.name] = (form, decision)
        return decision

    def unique(self, name: str) -> tuple[str, ...] | None:
        """Return the columns that no two rows of a view share; None if it is not decided yet."""
        known = self._known.get(name)
        return None if known is None else known[1].unique


def _reads_same(spark: SparkSession, inputs: ViewInputs, plan: ViewPlan, frame: DataFrame) -> bool:
    """Whether Spark reads the planner's form like the view's own text, or like that without time windows."""
    if plan.numbers:
        inputs.add_numbers()
    own = spark.sql(plan.text) if plan.text else frame
    return same_columns(frame, own) and same_query(own, spark.sql(plan.whole_sql()))


def not_run(error: PySparkException) -> str:
    """Return the reason of a plan that Spark refused."""
    return f"its plan could not be run: {error.getCondition() or type(error).__name__}"


def replacement(
    spark: SparkSession,
    inputs: ViewInputs,
    plan: ViewPlan,
    budget: Budget,
    *,
    changed: frozenset[str],
    schema: StructType,
    rows: int,
    before: Callable[[], pa.Table],
) -> Replacement:
    """Return the keys that changes of these inputs affect, and their rows. Raises Unplannable, PySparkException.

    Args:
        spark: the session of `inputs`.
        inputs: the inputs, already added.
        plan: of the view.
        budget: checked before each step.
        changed: names of changed inputs.
        schema: of the view.
        rows: number of rows at the previous cut.
        before: returns these rows.
    """
    obstacle = plan.obstacle(changed)
    if obstacle:
        raise Unplannable(obstacle)
    if plan.top is not None and inputs.in_frames:
        raise Unplannable("executors recompute a view with a limit")
    _check_share(inputs, plan, changed)
    if plan.numbers:
        inputs.add_numbers()
    _check_constants(spark, inputs, plan, changed)
    by_name = {column.name.lower(): column for column in schema.fields}
    text = plan.keys_sql(changed)
    _provide(inputs, plan, changed, text)
    budget.check()
    asked = spark.sql(text)
    asked = asked.select(
        *(asked[quoted(name)].cast(by_name[name].dataType).alias(by_name[name].name) for name in plan.key)
    )
    # The rows of a view with a limit say nothing about the number of its keys.
    keys_max = KEYS_MAX if plan.top is not None else max(rows * KEYS_SHARE_MAX, _KEYS_FEW)
    if not inputs.in_frames:
        keys_max = min(keys_max, KEYS_MAX)
        asked = asked.limit(KEYS_MAX + 1)
    keys = inputs.held(asked)
    if keys.count > keys_max:
        raise Unplannable(f"{keys.count:,} keys are affected, of {rows:,} rows")
    if not keys.count:
        return Replacement(keys, HeldRows.of_table(_named(spark.createDataFrame([], schema), schema).toArrow()))
    inputs.add_rows(_KEYS, keys.rows)
    if plan.top is not None:
        held = before()
        inputs.add_rows(BEFORE, held)
    query = plan.rows_query(_KEYS, {} if inputs.in_frames else _starts(plan, keys.here()))
    text = query.sql(_hold(inputs, query, keys))
    budget.check()
    frame = spark.sql(text)
    if plan.top is not None:
        return _first_rows(frame.toArrow(), held, plan)
    return Replacement(keys, inputs.held(_named(frame, schema)))


def _starts(plan: ViewPlan, keys: pa.Table) -> dict[str, tuple[int, int]]:
    """Return the least and the greatest start of the windows of these keys, in microseconds since 1970, by column.

    Python has no times behind the year 9999; PostgreSQL and Spark have.
    """
    place = {name.lower(): name for name in keys.column_names}
    found = {}
    for span in plan.spans:
        ends = pc.min_max(keys.column(place[span.start]).cast(pa.timestamp("us")).cast(pa.int64())).as_py()
        if ends["min"] is not None:
            found[span.start] = (ends["min"], ends["max"])
    return found


def _check_share(inputs: ViewInputs, plan: ViewPlan, changed: frozenset[str]) -> None:
    """Raises Unplannable if so many rows changed that as many keys are expected. Nothing is read for this."""
    new, rows = sum(map(inputs.rows_taken, changed)), sum(map(inputs.rows, plan.inputs))
    if new > max(rows * KEYS_SHARE_MAX, _KEYS_FEW):
        raise Unplannable(f"{new:,} rows changed, of {rows:,} rows that it reads")


def _check_constants(spark: SparkSession, inputs: ViewInputs, plan: ViewPlan, changed: frozenset[str]) -> None:
    """Raises Unplannable if the value of a subquery that is the same for every row changed."""
    for text in plan.constants_sql(changed):
        _provide(inputs, plan, changed, text)
        if not spark.sql(text).isEmpty():
            raise Unplannable("the value of a subquery that is the same for every row changed")


def _first_rows(found: pa.Table, before: pa.Table, plan: ViewPlan) -> Replacement:
    """Return the replacement of all rows of a view with a limit; no keys if none differs. Raises Unplannable."""
    if LAST in found.column(ORIGIN).to_pylist():
        raise Unplannable("rows left the view, and which rows follow is not known")
    rows = found.drop_columns([ORIGIN]).rename_columns(before.column_names)
    before = before.cast(rows.schema)
    place = {name.lower(): name for name in before.column_names}
    both = pa.concat_tables([before, rows]).select([place[name] for name in plan.key])
    is_same = Counter(map(repr, before.to_pylist())) == Counter(map(repr, rows.to_pylist()))
    keys = both.slice(0, 0) if is_same else both.group_by(both.column_names).aggregate([])
    return Replacement(HeldRows.of_table(keys), HeldRows.of_table(rows))


def _provide(inputs: ViewInputs, plan: ViewPlan, changed: frozenset[str], text: str) -> None:
    """Add the old sides and images that a query names."""
    for name in plan.inputs:
        if name in changed and images(name) in text:
            inputs.add_images(name, text)
        if old(name) in text:
            inputs.add_old(name)


def _hold(inputs: ViewInputs, query: RowsQuery, keys: HeldRows) -> set[str]:
    """Load the narrowed relations of a query that have few rows, and return their names.

    For each relation Spark has some jobs of fixed cost, and it reads a table's columns no faster than the driver.
    """
    if inputs.in_frames:
        return set()
    text = query.sql()
    rows = {quoted(_KEYS): keys.here()}
    for one in query.narrowed:
        asked = rows.get(one.relation)
        if asked is None:
            continue
        place = {name.lower(): index for index, name in enumerate(asked.column_names)}
        wanted = pa.table({mine: asked.column(place[its.lower()]) for mine, its in one.on})
        if not one.null_safe:
            wanted = wanted.drop_null()
        found = inputs.hold(one.name, one.table, wanted, text)
        if found is not None:
            rows[quoted(one.name)] = found
    return {one.name for one in query.narrowed if quoted(one.name) in rows}


def _named(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return the same rows under the column names of the view's own text."""
    return frame.toDF(*(column.name for column in schema.fields))
