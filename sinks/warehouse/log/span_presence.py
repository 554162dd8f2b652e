"""Checks that all records of a span are still in the log. Spark's own error would be less clear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.errors import SinkGap, SinkStale
from sinks.warehouse.log.transaction_markers import Ends, awaited_ends

if TYPE_CHECKING:
    from cdc.clock import Clock
    from sinks.warehouse.log.span import Span


def check_there(reader: Ends, span: Span, clock: Clock) -> None:
    """Raise SinkStale or SinkGap if the log ends before the span does, or begins after it."""
    needed = {at: end for at, (_, end, _) in span.ranges.items()}
    ends = awaited_ends(reader, needed, clock)
    for partition, (begin, end, _) in span.ranges.items():
        low, high = ends.get(partition, (0, 0))
        topic, index = partition
        if high < end:
            raise SinkStale(
                f"{topic}-{index} ends at offset {high}, but the cut index says {end}",
                hint="the topic was recreated; rebuild the lake in another folder",
                topic=topic,
            )
        if low > begin:
            raise SinkGap(
                f"offsets {begin} to {low} of {topic}-{index} were removed before the lake read them",
                hint="retention passed while the sink was down; rebuild the lake in another folder",
                topic=topic,
                partition=index,
            )
