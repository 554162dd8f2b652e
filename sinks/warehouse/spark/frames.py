"""Converts Arrow rows of the driver to Spark data frames. No other module does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def frame_of_rows(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return all of the rows.

    ``createDataFrame`` of Spark 4.2.1 silently drops the rows after an empty chunk of an Arrow table. Filters and
    concatenations make such chunks, so chunks are combined first. By default it also turns a timestamp without a time
    zone into one with a zone, which is another type than that of the table the rows belong to.
    """
    return spark.createDataFrame(rows.combine_chunks(), from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
