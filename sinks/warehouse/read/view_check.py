"""Compares views with their queries over the same cut, for `cdc views check`. Needs Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cdc.errors import LakeDamaged, UsageError
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.layout import split_beside
from sinks.warehouse.lake.table_naming import known_names_hint, quoted
from sinks.warehouse.spark.spark_errors import translating_spark_errors
from sinks.warehouse.spark.sql_guard import guarded
from sinks.warehouse.views.definition import BoundView, View, bind_each
from sinks.warehouse.views.estimates import estimated_columns
from sinks.warehouse.views.meaning.lake_types import types_of
from sinks.warehouse.views.pattern_frames import patterns_readable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sinks.warehouse.lake.manifest import Manifest, ViewState
    from sinks.warehouse.read.lake_reader import Lake

_RELATIVE: Final = 1e-9  # between floats that were added in different orders


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewReport:
    """The comparison of a view with its query.

    Attributes:
        cut: the cut of both.
        rows: of the view.
        missing: rows that the query gives but the view lacks.
        extra: rows that the view has but the query does not give.
        near: rows that differ only where two runs of one query may differ: in estimates of sketches, and in floats by
            up to a billionth, because the order of addition affects their last digits.
        problem: why it was not compared; "" if it was.
    """

    name: str
    cut: int
    rows: int = 0
    missing: int = 0
    extra: int = 0
    near: int = 0
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether both are equal, row by row, except for what is near."""
        return not (self.problem or self.missing or self.extra)


def check_views(
    spark: SparkSession,
    lake: Lake,
    manifest: Manifest,
    views: Sequence[View],
    names: Sequence[str],
    problems: Mapping[str, str] | None = None,
) -> list[ViewReport]:
    """Compare the named views, or all if `names` is empty. Raises UsageError for an unknown name.

    `problems`: view, or its generation that cannot be built -> what is wrong with its file.
    """
    missing = without_rows(manifest, names, problems or {})
    found = bind_each(views, manifest.tables, types_of(manifest.tables), missing)
    bound: dict[str, BoundView] = {}
    refused: dict[str, str] = {}
    for one in found:
        if isinstance(one, BoundView):
            bound[one.name] = one
        else:
            refused[one[0].name] = one[1].message
    estimates: dict[str, frozenset[str]] = {}
    for name, view in bound.items():
        of_inputs = (estimates.get(read, frozenset()) for read in view.views.values())
        estimates[name] = estimated_columns(view.sql, frozenset().union(*of_inputs))
    wanted = list(names) or sorted(manifest.views)
    failed = [
        ViewReport(name=name, cut=manifest.cut, problem=f"it has no rows: {reason}")
        for name, reason in sorted(missing.items())
        if not names or split_beside(name)[0] in names
    ]
    wanted = [name for name in wanted if name not in missing]
    with translating_spark_errors("check views"):
        return failed + [
            ViewReport(name=name, cut=manifest.views[name].cut, problem=refused[name])
            if name in refused
            else _checked(spark, lake, manifest, bound.get(name), name, estimates.get(name, frozenset()))
            for name in wanted
        ]


def without_rows(manifest: Manifest, names: Sequence[str], problems: Mapping[str, str]) -> dict[str, str]:
    """Return view that has no rows -> why. Raises UsageError for an unknown name."""
    missing = {name: unbuilt.reason for name, unbuilt in manifest.unbuilt.items()} | dict(problems)
    missing = {name: reason for name, reason in missing.items() if name not in manifest.views}
    unknown = sorted(set(names) - manifest.views.keys() - missing.keys())
    if unknown:
        hint = known_names_hint(unknown[0], sorted({*manifest.views, *missing})) or "the lake has no views"
        raise UsageError(f"view {unknown[0]} does not exist at cut {manifest.cut}", hint=hint)
    return missing


def _checked(
    spark: SparkSession,
    lake: Lake,
    manifest: Manifest,
    bound: BoundView | None,
    name: str,
    estimates: frozenset[str],
) -> ViewReport:
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
        return _compared(spark, lake, at, bound, state, estimates)
    except LakeDamaged as error:
        return ViewReport(name=name, cut=at.cut, problem=error.message)


def _problem(bound: BoundView | None, state: ViewState) -> str:
    if bound is None:
        return "its file is missing"
    return "its SQL has changed since" if bound.sha != state.sql_sha else ""


def _compared(
    spark: SparkSession, lake: Lake, at: Manifest, bound: BoundView, state: ViewState, estimates: frozenset[str]
) -> ViewReport:
    def read(table: str, version: int) -> DataFrame:
        return frame_of(spark, lake.location, table, version)

    places: Mapping[str, tuple[str, int]] = {
        **{name: (table, at.tables[table].version) for name, table in bound.tables.items()},
        **{name: _place(at, other) for name, other in bound.views.items()},
    }
    keys = {name: at.tables[table].key or () for name, table in bound.tables.items() if table.startswith("mirror/")}
    try:
        for name, place in places.items():
            read(*place).createOrReplaceTempView(name)
        have = _comparable(read(layout.view(bound.name, state.generation), state.version))
        with patterns_readable(spark, bound.patterns, keys):
            # Computed once: estimates differ each time.
            want = _comparable(guarded(spark, bound.sql)).cache()
        try:
            missing, extra = want.exceptAll(have), have.exceptAll(want)
            counts = missing.count(), extra.count()
            near = _near(missing, extra, estimates) if all(counts) else 0
        finally:
            want.unpersist()
        return ViewReport(
            name=bound.name,
            cut=at.cut,
            rows=have.count(),
            missing=counts[0] - near,
            extra=counts[1] - near,
            near=near,
        )
    finally:
        for name in places:
            spark.catalog.dropTempView(name)


def _place(at: Manifest, view: str) -> tuple[str, int]:
    state = at.views[view]
    return layout.view(view, state.generation), state.version


def _near(missing: DataFrame, extra: DataFrame, estimates: frozenset[str]) -> int:
    """Return how many rows have a counterpart that differs only in estimates and last digits.

    Rows whose other columns are equal are paired in the order of their floats.
    """
    from pyspark.sql import functions as f

    kinds = {field.name: field.dataType.typeName() for field in missing.schema.fields}
    guessed = [name for name in kinds if name.lower() in estimates]
    floats = [name for name, kind in kinds.items() if kind in {"double", "float"} and name not in guessed]
    if not floats and not guessed:
        return 0
    exact = [quoted(name) for name in kinds if name not in guessed and name not in floats]
    loose = f.array(*(f.col(quoted(name)).cast("double") for name in floats))

    def side(frame: DataFrame) -> DataFrame:
        grouped = frame.groupBy(*exact).agg(f.sort_array(f.collect_list(loose)).alias("rows"))
        return grouped.select(f.struct(f.lit(0), *exact).alias("same"), "rows")

    def close(one: Column, other: Column) -> Column:
        apart = f.abs(one - other) > _RELATIVE * f.greatest(f.abs(one), f.abs(other))
        return one.eqNullSafe(other) | ~f.coalesce(apart, f.lit(1) == f.lit(1))

    def alike(one: Column, other: Column) -> Column:
        return f.forall(f.zip_with(one, other, close), lambda is_close: is_close)

    wanted, held = side(missing).alias("wanted"), side(extra).alias("held")
    both = wanted.join(held, f.col("wanted.same").eqNullSafe(f.col("held.same")))
    same_count = f.size("wanted.rows") == f.size("held.rows")
    found = both.where(same_count & f.forall(f.zip_with("wanted.rows", "held.rows", alike), lambda is_alike: is_alike))
    ((total,),) = found.agg(f.coalesce(f.sum(f.size("wanted.rows")), f.lit(0))).collect()
    return int(total)


def _comparable(frame: DataFrame) -> DataFrame:
    """Replace maps, which cannot be compared, by their sorted entries."""
    from pyspark.sql import functions
    from pyspark.sql.types import MapType

    columns = [
        functions.array_sort(functions.map_entries(quoted(field.name))).alias(field.name)
        if isinstance(field.dataType, MapType)
        else functions.col(quoted(field.name))
        for field in frame.schema.fields
    ]
    return frame.select(*columns)
