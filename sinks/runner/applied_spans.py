"""Makes the spans of a sink: from the publication of a record until the store has it, for traced transactions."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.model.log_record import LogRecord
from cdc.telemetry.spans import SinkTracing, Span, own_span_id


class AppliedSpans:
    """Called by the runner's thread. Costs one search in each applied record."""

    def __init__(self, tracing: SinkTracing) -> None:
        self._tracing = tracing

    def applied(self, records: Sequence[LogRecord]) -> None:
        """The store has the newest of these records of one key."""
        of = self._tracing
        for record in records:
            found = of.transaction_of(record.value)
            if found is None:
                continue
            (xid, _), traced = found
            start_ns = record.timestamp_ms * 1_000_000
            of.outlet.emit(
                Span(
                    name=f"tailrace sink {of.sink}",
                    trace_id=traced.trace_id,
                    span_id=own_span_id(of.pipeline, of.sink, record.topic, record.partition, record.offset),
                    parent_id=traced.span_id,
                    start_ns=start_ns,
                    end_ns=max(start_ns, int(of.clock.wall_s() * 1e9)),
                    attributes={
                        "tailrace.pipeline": of.pipeline,
                        "tailrace.sink": of.sink,
                        "tailrace.transaction.xid": xid,
                        "messaging.system": "kafka",
                        "messaging.destination.name": record.topic,
                        "messaging.destination.partition.id": str(record.partition),
                        "messaging.kafka.offset": record.offset,
                    },
                )
            )
