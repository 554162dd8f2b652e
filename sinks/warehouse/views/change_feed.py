"""Finds what changed in a view between two versions of its table: rows that came or went, as often as they did.

Views over views need it. Rows that are equal before and after are left out, even if a plan rewrote them.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake.location import Where
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner.relations import WEIGHT
from sinks.warehouse.spark.frames import frame_of_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def view_feed(
    spark: SparkSession, lake: Where, table: str, before: int | None, version: int, keys: pa.Table | None = None
) -> DataFrame:
    """Return the rows of a view's table that went (`planner.relations.WEIGHT` -1) and came (1); lazy, in no order.

    Args:
        spark: the session.
        lake: location of the lake.
        table: of the view, as `layout.view` names it.
        before: its version at the previous cut; None if it had none, so that every row came.
        version: its version now, with the same columns.
        keys: columns and values that contain every change, as in `Replaced.change`; None for unknown.

    A column of a map type cannot be compared: Spark raises AnalysisException.
    """
    from pyspark.sql import functions

    new = _among(spark, frame_of(spark, lake, table, version), keys)
    if before is None:
        return new.withColumn(WEIGHT, functions.lit(1))
    old = _among(spark, frame_of(spark, lake, table, before), keys)
    gone = old.exceptAll(new).withColumn(WEIGHT, functions.lit(-1))
    return gone.unionAll(new.exceptAll(old).withColumn(WEIGHT, functions.lit(1)))


def _among(spark: SparkSession, frame: DataFrame, keys: pa.Table | None) -> DataFrame:
    return frame if keys is None else _of_keys(frame, frame_of_rows(spark, keys))


def _of_keys(frame: DataFrame, keys: DataFrame) -> DataFrame:
    """Return the rows of `frame` with one of these keys, whose columns have its names; a null equals a null."""
    from pyspark.sql import functions

    named = map(quoted, keys.columns)
    same = [functions.col(f"k.{name}").eqNullSafe(functions.col(f"r.{name}")) for name in named]
    matched = reduce(lambda one, two: one & two, same)
    return frame.alias("r").join(functions.broadcast(keys.alias("k")), matched, "left_semi")
