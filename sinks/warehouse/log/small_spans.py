"""Reads a span of few records in the driver itself, from librdkafka to Arrow, without a Spark job.

Spark's Kafka source opens a client, requests the partitions and plans a job for each topic. For a few thousand records
that is most of the cost of a cut. No value is decoded here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection

    from cdc.kafka.log_reader import LogReader
    from cdc.model.log_record import LogRecord
    from sinks.warehouse.lake.cut_position import Partition
    from sinks.warehouse.log.span import Span

RECORDS_MAX: Final = 20_000  # above, two tasks are faster than one, and the cost of a job hardly matters
_BYTES_MAX: Final = 64 << 20  # in this process, before conversion to Arrow
RAW: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
"""The parts of a record that `sinks.warehouse.log.span_batch.parse` reads."""


def is_small(span: Span) -> bool:
    """Whether the index counts few records in the span. A span that is not counted may have any number."""
    return span.counted and span.records <= RECORDS_MAX


def read_small(
    reader: LogReader, span: Span, topics: Collection[str], *, bytes_max: int = _BYTES_MAX
) -> dict[str, pa.Table] | None:
    """Return topic -> its committed records of the span, in partition order; None if they are too large.

    A topic without records has an empty table. Raises what `LogReader.read` raises.
    """
    ranges = {at: (begin, end) for at, (begin, end, _) in span.ranges.items() if at[0] in topics}
    found: dict[str, list[LogRecord]] = {topic: [] for topic in topics}
    size = 0
    batches = reader.read(
        {at: begin for at, (begin, _) in ranges.items()}, {at: end for at, (_, end) in ranges.items()}
    )
    try:
        for batch in batches:
            for record in batch:
                found[record.topic].append(record)
                size += len(record.key or b"") + len(record.value or b"")
            if size > min(bytes_max, _BYTES_MAX):
                return None
    finally:
        batches.close()
    return {topic: _table(records) for topic, records in found.items()}


def counted(records: pa.Table) -> dict[Partition, int]:
    """Return partition -> number of records, for a table of `read_small`."""
    groups = records.group_by(["topic", "partition"]).aggregate([([], "count_all")]).to_pylist()
    return {(group["topic"], group["partition"]): group["count_all"] for group in groups}


def _table(records: list[LogRecord]) -> pa.Table:
    topic, partition, offset, _, key, value, _ = zip(*records, strict=True) if records else ((),) * 7
    return pa.table([topic, partition, offset, key, value], schema=RAW)
