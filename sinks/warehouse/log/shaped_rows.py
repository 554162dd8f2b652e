"""Rewrites rows of a lake table after DDL in Spark's executors, by the same function as the driver of a local lake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema

from cdc.errors import SinkUnfit
from sinks.warehouse.delta.stored_types import plain
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.spark.arrow_tasks import in_python, structs_of_table, table_of_structs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def shaped(frame: DataFrame, shape: Callable[[pa.Table], pa.Table], schema: pa.Schema, *, casts: bool) -> DataFrame:
    """Return the rows of a frame after `shape`, whose result has this schema; lazy.

    With `casts` a value may not fit. Then all rows are computed once before, and SinkUnfit is raised as `shape` does.
    """

    def shaped_rows(rows: pa.Array) -> pa.Array:
        return structs_of_table(shape(plain(table_of_structs(rows))).cast(schema))

    def problems(rows: pa.Array) -> pa.Array:
        try:
            shape(plain(table_of_structs(rows)))
        except SinkUnfit as error:
            return pa.array([[error.message, error.hint or ""]] * len(rows), pa.list_(pa.string()))
        return pa.nulls(len(rows), pa.list_(pa.string()))

    row = fn.struct(*map(quoted, frame.columns))
    if casts:
        found = frame.select(in_python(problems, "array<string>")(row).alias("problem"))
        refused = found.where(fn.col("problem").isNotNull()).limit(1).collect()
        if refused:
            message, hint = refused[0]["problem"]
            raise SinkUnfit(message, hint=hint)
    kind = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return frame.select(in_python(shaped_rows, kind)(row).alias("row")).select("row.*")
