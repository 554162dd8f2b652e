"""Rows that the driver holds, as a frame of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def frame_of_rows(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """All of them.

    ``createDataFrame`` of Spark 4.2.1 leaves out, without a word, what stands behind an empty chunk of an Arrow table.
    Filters and concatenations make such chunks, so they are put together first.
    """
    return spark.createDataFrame(rows.combine_chunks())
