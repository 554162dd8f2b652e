"""Measures the records of a span by ranges of offsets: one pass in Spark that keeps sums only.

The broker knows the size of compressed batches only, and rows are decoded from what is in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from sinks.warehouse.log.cut_pieces import Chunk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sinks.warehouse.log.span import Span

_CHUNKS: Final = 8192  # of a span: enough to divide it evenly, and a list that is small
_RECORD_BYTES: Final = 100  # that a record takes beside key and value: its offset, its position, pointers


def chunks(raw: DataFrame, span: Span) -> list[Chunk]:
    """The chunks of a span that have records.

    Args:
        raw: the records of the span, as `sinks.warehouse.log.span_batch.read_span` gives them.
        span: what was read.
    """
    ranges = span.ranges
    offsets = sum(end - begin for begin, end, _ in ranges.values())
    step = max(1, -(-offsets // _CHUNKS))
    length = fn.coalesce(fn.length("key"), fn.lit(0)) + fn.coalesce(fn.length("value"), fn.lit(0)) + _RECORD_BYTES
    grouped = raw.groupBy("topic", "partition", fn.floor(fn.col("offset") / step).alias("chunk")).agg(
        fn.count("*").alias("records"), fn.sum(length.cast("bigint")).alias("size")
    )
    found: list[Chunk] = []
    for topic, index, chunk, records, size in grouped.collect():
        begin, end, _ = ranges[topic, index]
        first = max(chunk * step, begin)
        found.append(
            Chunk((first - begin) / (end - begin), (topic, index), min((chunk + 1) * step, end), records, size)
        )
    return sorted(found)
