"""Checks that the key of a view is unique in the rows that a cut writes, where the rows are."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as fn

from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.view_records import check_changed_key, check_counts, check_key, key_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.lake.location import Where
    from sinks.warehouse.lake.manifest import ViewState
    from sinks.warehouse.spark.held_rows import HeldRows
    from sinks.warehouse.views.version_diff import Pin
    from sinks.warehouse.views.view_run import Step


def check_view_key(location: Where, step: Step, rows: HeldRows, state: ViewState | None) -> None:
    """Check that the key of a view, if it has one, is still unique. Raises ViewRefused.

    Args:
        location: of the lake.
        step: the view to commit.
        rows: its rows, or those of the changed keys.
        state: of the previous cut.
    """
    key, name, change = step.view.view.header.key, step.view.name, step.change
    if not key:
        return
    there = None if state is None else (layout.view(name, state.generation), state.version)
    if change is None:
        _check(name, rows, key)
        return
    asked = change.keys.rows
    known = asked.column_names if isinstance(asked, pa.Table) else asked.columns
    is_part = {one.lower() for one in known} <= {one.lower() for one in key}
    if not isinstance(asked, pa.Table) and not isinstance(rows.rows, pa.Table):
        _check(name, rows, key)
        if there is not None and not is_part:
            _check_with_others(location, name, there, rows.rows, asked, key)
        return
    before, found = None, rows.here()
    if there is not None and not is_part:
        wanted = {*known, *key_columns(name, found.schema, key)}
        before = pinned(location, *there).to_pyarrow_dataset().to_table(columns=sorted(wanted))
    check_changed_key(name, change.keys.here(), found, key, before)


def check_stored_key(spark: SparkSession, location: Where, view: str, pin: Pin, key: Sequence[str]) -> None:
    """Check in the executors that the key of a view is unique in a version. Raises ViewRefused."""
    rows = frame_of(spark, location, *pin)
    _check_frame(view, rows, key_columns(view, rows.limit(0).toArrow().schema, key))


def _check(view: str, rows: HeldRows, key: Sequence[str]) -> None:
    if isinstance(rows.rows, pa.Table):
        check_key(view, rows.rows, key)
    else:
        _check_frame(view, rows.rows, key_columns(view, rows.rows.limit(0).toArrow().schema, key))


def _check_frame(view: str, rows: DataFrame, names: Sequence[str]) -> None:
    """As `view_records.check_key`, in the executors."""
    columns = [f"k{index}" for index in range(len(names))]
    keys = rows.select(*(fn.col(quoted(name)).alias(column) for name, column in zip(names, columns, strict=True)))
    groups = keys.groupBy(*columns).agg(fn.count("*").alias("rows"))
    rows_if = [fn.lit(True), *(fn.col(column).isNull() for column in columns)]  # noqa: FBT003 - a value
    sums = [fn.coalesce(fn.sum(fn.when(one, fn.col("rows"))), fn.lit(0)) for one in rows_if]
    total, distinct, *nulls = groups.agg(sums[0], fn.count("*"), *sums[1:]).collect()[0]
    check_counts(view, dict(zip(names, nulls, strict=True)), total, distinct)


def _check_with_others(
    location: Where, view: str, there: tuple[str, int], rows: DataFrame, keys: DataFrame, key: Sequence[str]
) -> None:
    """Check the new rows together with the previous rows that stay: those without one of the replaced keys."""
    names = key_columns(view, rows.limit(0).toArrow().schema, key)
    before = frame_of(rows.sparkSession, location, *there)
    gone = keys.toDF(*(f"k{index}" for index in range(len(keys.columns))))
    same = [before[quoted(name)].eqNullSafe(gone[f"k{index}"]) for index, name in enumerate(keys.columns)]
    stays = before.join(gone, reduce(and_, same), "left_anti")
    columns = [quoted(name) for name in names]
    _check_frame(view, stays.select(*columns).unionAll(rows.select(*columns)), names)
