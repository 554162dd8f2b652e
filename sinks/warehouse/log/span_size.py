"""Measures the records of a span by ranges of offsets, in one Spark pass that keeps only sums.

The broker knows only the size of compressed batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from sinks.warehouse.log.cut_pieces import Chunk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sinks.warehouse.log.span import Span

_CHUNKS: Final = 8192  # per span: fine enough to divide it evenly, and a short list
_RECORD_BYTES: Final = 100  # per record beside key and value: offset, position, pointers


def chunks(raw: DataFrame, span: Span) -> list[Chunk]:
    """Return the chunks of a span that have records.

    Args:
        raw: records of the span, from `sinks.warehouse.log.span_batch.read_span`.
        span: the span that was read.
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
