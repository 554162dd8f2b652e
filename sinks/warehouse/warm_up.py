"""Makes Spark load and compile the code of a cut before the first cut, which would wait seconds for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from sinks.warehouse.log import changes, span_batch, table_outputs
from sinks.warehouse.log.lake_columns import LakeColumn, LakeTable
from sinks.warehouse.log.prepared_plans import PreparedPlans, fits
from sinks.warehouse.log.small_spans import RAW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RAW: Final = "topic string, partition int, offset bigint, key binary, value binary, timestamp timestamp"
_COLUMNS: Final = (("id", "bigint", "integer"), ("n", "decimal(10,2)", "decimal"), ("t", "timestamp", "timestamp_utc"))
_VALUE: Final = (
    b'{"after":{"id":%d,"n":"1.50","t":"2026-11-21T16:52:38.25+00:00"},"op":"c",'
    b'"source":{"schema_id":"0","ts_us":1,"epoch":1,"commit_lsn":1,"ordinal":1}}'
)


def warm_up(spark: SparkSession) -> None:
    """Run a small batch through the plans of large and small cuts. Reads neither the log nor the lake."""
    columns = tuple(LakeColumn(name, kind, encoding, key=name == "id") for name, kind, encoding in _COLUMNS)
    table = LakeTable(table="warm.up", topic="warm.up", schema_id="0", key=("id",), columns=columns)
    rows = [("warm.up", 0, number, b'{"id":%d}' % number, _VALUE % number, None) for number in range(64)]
    table_outputs.checked(
        changes.sequenced(span_batch.parse(spark.createDataFrame(rows, _RAW), [table]), table).toArrow(), table
    )
    if fits(spark):
        plans = PreparedPlans(spark)
        records = pa.Table.from_pylist([dict(zip(RAW.names, row, strict=False)) for row in rows], schema=RAW)
        table_outputs.checked(plans.rows(records, [table]), table)
        plans.close()
