"""Converts Arrow rows of the driver to Spark data frames. No other module does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def frame_of_rows(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return all of the rows.

    ``createDataFrame`` of Spark 4.2.1 silently drops the rows after an empty chunk of an Arrow table. Filters and
    concatenations make such chunks, so chunks are combined first.
    """
    return spark.createDataFrame(rows.combine_chunks())
