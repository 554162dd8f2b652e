"""Reads a version of a Delta table as a Spark data frame, from its files and without Delta's own reader."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from cdc.errors import LakeDamaged
from sinks.warehouse.delta.pinned_version import Part, parts, pinned, schema_json
from sinks.warehouse.lake.location import Location, Where
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.spark.storage_options import check_connector, read_options

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructField, StructType


def frame_of(
    spark: SparkSession,
    path: Where,
    table: str,
    version: int,
    *,
    storage: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
) -> DataFrame:
    """Return a table of the lake (``mirror/public.orders``) at a version of its Delta log, or `only` some of its files.

    Columns that a file lacks are null in its rows; partition columns have the values from the log. Raises LakeDamaged
    if that version or its files are missing, SinkUnfit if Spark cannot read from the location at all.
    """
    from pyspark.sql.types import StructType

    location = Location.of(path, storage)
    check_connector(spark, location)
    found = pinned(location, table, version)
    schema = StructType.fromJson(schema_json(found))
    reader = spark.read.options(**read_options(spark, location))
    frames = [_frame(reader, part, schema) for part in parts(location, table, found, only)]
    # One union per set of partition values: tables of a lake have one set, or two (open and closed versions).
    return reduce(lambda one, other: one.union(other), frames) if frames else spark.createDataFrame([], schema)


def _frame(reader: DataFrameReader, part: Part, schema: StructType) -> DataFrame:
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import DoubleType, FloatType, StructType

    stored = StructType([field for field in schema.fields if field.name not in part.values])
    try:
        frame = reader.schema(stored).parquet(*part.files)
    except AnalysisException as error:
        raise LakeDamaged(
            f"files of the lake are gone: {error.getCondition()}",
            hint="restore the lake from a copy, or rebuild the sink",
        ) from error
    floats = {field.name for field in stored.fields if isinstance(field.dataType, DoubleType | FloatType)}
    if not part.values and not floats:
        return frame
    return frame.select(*(_column(frame, field, part, floats) for field in schema.fields))


def _column(frame: DataFrame, field: StructField, part: Part, floats: Collection[str]) -> Column:
    from pyspark.sql import functions

    if field.name in part.values:
        return functions.lit(part.values[field.name]).cast(field.dataType).alias(field.name)
    column = frame[quoted(field.name)]
    if field.name not in floats:
        return column
    # The same value, but Spark does not test it by a file's statistics and dictionaries: these leave NaN out, which
    # is larger than every number for Spark, and tell 0 from -0.
    return functions.nanvl(column, column).alias(field.name, metadata=field.metadata)
