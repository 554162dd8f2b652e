"""Makes the spans of capture: from the commit of a transaction until its records are published.

A traced transaction gets a span that starts its trace. An outbox event that was written in a sampled trace gets a span
below the application's span. A chunk of a snapshot gets one in the trace of that snapshot. Implements
`cdc.contracts.SideWriter` without writing, to know what a commit contains.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from cdc.capture.side_topics import SideTopics
from cdc.clock import Clock
from cdc.model.change_records import Headers, StreamPosition
from cdc.telemetry.spans import Sampler, Span, SpanOutlet, own_span_id, own_trace_id, sampled_parent
from cdc.wire.pgoutput import Begin

_WAITING_MAX: Final = 1000  # spans of one Kafka transaction; more are not traced
_EVENT_BYTES_MAX: Final = 200  # of an event's id in an attribute
_TRACEPARENT: Final = "traceparent"


class TransactionSpans:
    """Collects spans in the capture thread, and emits them once their commit is known."""

    def __init__(self, pipeline: str, sampler: Sampler, outlet: SpanOutlet, clock: Clock) -> None:
        self._pipeline = pipeline
        self._sampler = sampler
        self._outlet = outlet
        self._clock = clock
        self._begin: Begin | None = None
        self._read_ns = self._chunks = 0
        self._events: list[tuple[str, int, int]] = []
        self._waiting: list[Span] = []
        self._submitted: deque[list[Span]] = deque()

    def begun(self, begin: Begin) -> None:
        """A transaction begins in the stream."""
        self._begin = begin
        self._read_ns = int(self._clock.wall_s() * 1e9)
        self._events.clear()

    def event(self, headers: Headers) -> None:
        """An outbox event of the open transaction has these headers."""
        for name, value in headers:
            if name == _TRACEPARENT:
                parent = sampled_parent(value)
                if parent is not None and len(self._events) < _WAITING_MAX:
                    event = next((text for header, text in headers if header == "id"), b"")
                    self._events.append((event[:_EVENT_BYTES_MAX].decode("utf-8", "replace"), *parent))
                return

    def ended(self) -> None:
        """The open transaction is in the buffers, up to its end."""
        begin = self._begin
        if begin is None or len(self._waiting) >= _WAITING_MAX:
            return
        facts: dict[str, str | int] = {
            "tailrace.pipeline": self._pipeline,
            "tailrace.transaction.xid": begin.xid,
            "tailrace.commit_lsn": str(begin.commit_lsn),
            "tailrace.read_after_ms": max(0, self._read_ns // 1_000_000 - begin.commit_us // 1000),
        }
        start_ns = begin.commit_us * 1000
        traced = self._sampler.chosen(begin.xid, begin.commit_lsn)
        if traced is not None:
            self._waiting.append(
                Span(
                    name="tailrace capture",
                    trace_id=traced.trace_id,
                    span_id=traced.span_id,
                    parent_id=0,
                    start_ns=start_ns,
                    end_ns=start_ns,
                    attributes=facts,
                )
            )
        for event, trace_id, parent_id in self._events:
            self._waiting.append(
                Span(
                    name="tailrace capture event",
                    trace_id=trace_id,
                    span_id=own_span_id(self._pipeline, begin.commit_lsn, event),
                    parent_id=parent_id,
                    start_ns=start_ns,
                    end_ns=start_ns,
                    attributes={**facts, "messaging.message.id": event},
                    links=() if traced is None else ((traced.trace_id, traced.span_id),),
                )
            )
        self._events.clear()

    def chunk(self, table: str, number: int, *, began_s: float, row_count: int, byte_count: int) -> None:
        """A chunk of a snapshot is in the buffers: the one numbered `number` of the table, whose read began then.

        All chunks of one snapshot are in one trace.
        """
        if len(self._waiting) >= _WAITING_MAX:
            return
        snapshot, start_ns = (self._pipeline, "snapshot", table, number), int(began_s * 1e9)
        self._chunks += 1
        self._waiting.append(
            Span(
                name="tailrace snapshot",
                trace_id=own_trace_id(*snapshot),
                span_id=own_span_id(*snapshot, start_ns, self._chunks),
                parent_id=0,
                start_ns=start_ns,
                end_ns=start_ns,
                attributes={
                    "tailrace.pipeline": self._pipeline,
                    "tailrace.table": table,
                    "tailrace.snapshot.number": number,
                    "tailrace.rows": row_count,
                    "tailrace.bytes": byte_count,
                },
            )
        )

    def due(self) -> bool:
        """See `SideWriter`. Nothing is ever written."""
        return False

    def write(self, position: StreamPosition) -> bool:  # noqa: ARG002 - the contract's signature
        """See `SideWriter`: a commit of everything that has ended follows."""
        self._submitted.append(self._waiting)
        self._waiting = []
        return False

    def written(self) -> None:
        """See `SideWriter`: that commit is known."""
        published_ns = int(self._clock.wall_s() * 1e9)
        for span in self._submitted.popleft() if self._submitted else ():
            # Clocks of two machines may differ; a span must not end before it starts.
            self._outlet.emit(replace(span, end_ns=max(published_ns, span.start_ns)))


class TracedSideTopics(SideTopics):
    """The records beside those of tables; also reports transactions to `spans`, which must be set."""

    spans: TransactionSpans

    def begin(self, begin: Begin, *, written: bool) -> None:
        """See `SideTopics.begin`."""
        super().begin(begin, written=written)
        self.spans.begun(begin)

    def end(self) -> None:
        """See `SideTopics.end`."""
        super().end()
        self.spans.ended()
