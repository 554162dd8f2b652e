"""Compares views with what their queries give over the same cut: `cdc views check`. Needs Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.errors import LakeDamaged, UsageError
from sinks.warehouse import layout
from sinks.warehouse.lake import frame_of
from sinks.warehouse.sparkfaults import sparked
from sinks.warehouse.views import BoundView, View, bind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.look import Lake
    from sinks.warehouse.manifest import Manifest, ViewState


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewReport:
    """A view against its query.

    Attributes:
        cut: at which both were taken.
        rows: of the view.
        missing: rows that the query gives and the view has not.
        extra: rows that the view has and the query does not give.
        problem: why it was not compared; "" when it was.
    """

    name: str
    cut: int
    rows: int = 0
    missing: int = 0
    extra: int = 0
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether both are the same, row for row."""
        return not (self.problem or self.missing or self.extra)


def check_views(
    spark: SparkSession, lake: Lake, manifest: Manifest, views: Sequence[View], names: Sequence[str]
) -> list[ViewReport]:
    """Each of the views named, all for none. Raises UsageError for a name there is not."""
    unknown = sorted(set(names) - manifest.views.keys())
    if unknown:
        there = ", ".join(sorted(manifest.views)) or "none"
        raise UsageError(f"there is no view {unknown[0]} at cut {manifest.cut}", hint=f"there is {there}")
    bound = {view.name: view for view in bind(views, list(manifest.tables))}
    wanted = list(names) or sorted(manifest.views)
    with sparked("check views"):
        return [_checked(spark, lake, manifest, bound.get(name), name) for name in wanted]


def _checked(spark: SparkSession, lake: Lake, manifest: Manifest, bound: BoundView | None, name: str) -> ViewReport:
    state = manifest.views[name]
    problem = _problem(bound, state)
    if bound is None or problem:
        return ViewReport(name=name, cut=state.cut, problem=problem)
    at = manifest
    if state.reason:
        if state.cut not in lake.store.cuts():
            return ViewReport(name=name, cut=state.cut, problem=f"it is as of cut {state.cut}, which is not kept")
        at = lake.store.at(state.cut)
    try:
        return _compared(spark, lake, at, bound, state)
    except LakeDamaged as error:
        return ViewReport(name=name, cut=at.cut, problem=error.message)


def _problem(bound: BoundView | None, state: ViewState) -> str:
    if bound is None:
        return "its file is gone"
    return "its SQL is another one since" if bound.sha != state.sql_sha else ""


def _compared(spark: SparkSession, lake: Lake, at: Manifest, bound: BoundView, state: ViewState) -> ViewReport:
    def read(table: str, version: int) -> DataFrame:
        return frame_of(spark, lake.location, table, version)

    places: Mapping[str, tuple[str, int]] = {
        **{name: (table, at.tables[table].version) for name, table in bound.tables.items()},
        **{name: _place(at, other) for name, other in bound.views.items()},
    }
    try:
        for name, place in places.items():
            read(*place).createOrReplaceTempView(name)
        have = _comparable(read(layout.view(bound.name, state.generation), state.version))
        want = _comparable(spark.sql(bound.sql))
        missing, extra = want.exceptAll(have).count(), have.exceptAll(want).count()
        return ViewReport(name=bound.name, cut=at.cut, rows=have.count(), missing=missing, extra=extra)
    finally:
        for name in places:
            spark.catalog.dropTempView(name)


def _place(at: Manifest, view: str) -> tuple[str, int]:
    state = at.views[view]
    return layout.view(view, state.generation), state.version


def _comparable(frame: DataFrame) -> DataFrame:
    """Maps cannot be compared: their entries in order can."""
    from pyspark.sql import functions
    from pyspark.sql.types import MapType

    columns = [
        functions.array_sort(functions.map_entries(f"`{field.name}`")).alias(field.name)
        if isinstance(field.dataType, MapType)
        else functions.col(f"`{field.name}`")
        for field in frame.schema.fields
    ]
    return frame.select(*columns)
