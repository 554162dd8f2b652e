"""Runs the plans of views on Spark: finds the keys that a cut affects, and the rows of these keys.

Every doubt ends in Unplannable with its reason, and the view is recomputed: a query that Spark reads differently from
`sinks.warehouse.planner`, a key type that is not exactly comparable, too many keys, a value that does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner.plan import ViewPlan, plan_view
from sinks.warehouse.planner.relations import Relation, Unplannable, images, old
from sinks.warehouse.planner.restrict import RowsQuery
from sinks.warehouse.views.definition import BoundView
from sinks.warehouse.views.inputs import Replacement, ViewInputs
from sinks.warehouse.views.same_query import same_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

KEYS_SHARE_MAX: Final = 0.2  # of the view's rows: above that recomputing was always cheaper (2026-11-21)
_KEYS_FEW: Final = 1_000  # in a small view any share is acceptable
KEYS_MAX: Final = 200_000  # the driver holds them
_KEY_TYPES: Final = frozenset(
    {"tinyint", "smallint", "int", "bigint", "boolean", "date", "timestamp", "timestamp_ntz", "string", "binary"}
)
_KEYS: Final = "__keys"


@dataclass(slots=True)
class PlanBook:
    """Plans of views, kept from cut to cut. A plan is made again if the SQL or its input columns change.

    Attributes:
        unique: view -> columns that no two of its rows share, according to its plan.
    """

    unique: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _plans: dict[str, tuple[str, ViewPlan]] = field(default_factory=dict)
    _same: dict[str, bool] = field(default_factory=dict)

    def plan(self, view: BoundView, relations: Mapping[str, Relation]) -> ViewPlan:
        """Return the view's plan over these relations."""
        form = f"{view.sha} {sorted((one.name, list(one.columns.items()), one.key) for one in relations.values())}"
        known = self._plans.get(view.name)
        if known is None or known[0] != form:
            known = (form, plan_view(view.name, view.sql, relations))
            self._plans[view.name] = known
            self._same.pop(view.name, None)
            self.unique[view.name] = known[1].unique
        return known[1]

    def agrees(self, spark: SparkSession, view: BoundView, plan: ViewPlan, frame: DataFrame) -> bool:
        """Whether Spark reads the planner's form of the query like the view's own text, from which `frame` is made."""
        if view.name not in self._same:
            self._same[view.name] = same_query(frame, spark.sql(plan.whole_sql()))
        return self._same[view.name]


def replacement(
    spark: SparkSession, inputs: ViewInputs, plan: ViewPlan, *, changed: frozenset[str], schema: StructType, rows: int
) -> Replacement:
    """Return the keys that changes of these inputs affect, and their rows. Raises Unplannable, PySparkException.

    Args:
        spark: the session of `inputs`.
        inputs: the inputs, already added.
        plan: of the view.
        changed: names of changed inputs.
        schema: of the view.
        rows: number of rows at the previous cut.
    """
    obstacle = plan.obstacle(changed)
    if obstacle:
        raise Unplannable(obstacle)
    by_name = _comparable(schema, plan.key)
    text = plan.keys_sql(changed)
    _provide(inputs, plan, changed, text)
    asked = spark.sql(text)
    keys: pa.Table = (
        asked.select(*(asked[quoted(name)].cast(by_name[name].dataType).alias(by_name[name].name) for name in plan.key))
        .limit(KEYS_MAX + 1)
        .toArrow()
    )
    if keys.num_rows > KEYS_MAX or keys.num_rows > max(rows * KEYS_SHARE_MAX, _KEYS_FEW):
        raise Unplannable(f"{keys.num_rows:,} keys are affected, of {rows:,} rows")
    if not keys.num_rows:
        return Replacement(keys, _named(spark.createDataFrame([], schema), schema).toArrow())
    inputs.add_rows(_KEYS, keys)
    query = plan.rows_query(_KEYS)
    text = query.sql(_hold(inputs, query, keys))
    return Replacement(keys, _named(spark.sql(text), schema).toArrow())


def _comparable(schema: StructType, key: Sequence[str]) -> dict[str, StructField]:
    """Return the view's columns by lower-case name. Raises Unplannable if the key is not exactly comparable."""
    by_name = {column.name.lower(): column for column in schema.fields}
    for name in key:
        kind = by_name[name].dataType.simpleString()
        if kind not in _KEY_TYPES and not kind.startswith("decimal"):
            raise Unplannable(f"its key {name} has the type {kind}, whose values are not exactly comparable")
    return by_name


def _provide(inputs: ViewInputs, plan: ViewPlan, changed: frozenset[str], text: str) -> None:
    """Add the old sides and images that a query names."""
    for name in plan.inputs:
        if name in changed and images(name) in text:
            inputs.add_images(name, text)
        if old(name) in text:
            inputs.add_old(name)


def _hold(inputs: ViewInputs, query: RowsQuery, keys: pa.Table) -> set[str]:
    """Load the narrowed relations of a query that have few rows, and return their names.

    For each relation Spark has some jobs of fixed cost, and it reads a table's columns no faster than the driver.
    """
    text = query.sql()
    rows = {quoted(_KEYS): keys}
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
