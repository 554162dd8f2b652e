"""Makes the spans of a lake: one for each cut, one for each view that it computed, and one for each traced transaction.

A cut holds many transactions, so it has a trace of its own, with links to the traced transactions in it. Each of these
gets a span below that of capture, with a link to the cut. Transactions are known only of spans that the driver reads
itself (`sinks.warehouse.log.small_spans`); Spark reads the larger ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cdc.lsn import Lsn
from cdc.telemetry.spans import SinkTracing, Span, TracedTransaction, own_span_id, own_trace_id
from sinks.warehouse.lake.manifest import Manifest

TRACED_MAX: Final = 100
"""Traced transactions of one cut; more get no span. A collector may limit the links of a span to 128."""


Took = tuple[float, float]
"""When something began and ended, by the monotonic clock."""


class CutSpans:
    """The spans of one driver, for its thread. Without a driver's report of a cut, what was read is forgotten."""

    def __init__(self, tracing: SinkTracing) -> None:
        self._tracing = tracing
        self._traced: dict[tuple[int, int], TracedTransaction] = {}

    def began(self) -> None:
        """A cut begins."""
        self._traced.clear()

    def read(self, values: Iterable[bytes | None]) -> None:
        """These values of records belong to the cut."""
        for value in values:
            if len(self._traced) >= TRACED_MAX:
                return
            found = self._tracing.transaction_of(value)
            if found is not None:
                self._traced[found[0]] = found[1]

    def published(self, manifest: Manifest, views: Mapping[str, Took], *, after: Lsn, records: int, took: Took) -> None:
        """A cut is visible. `after` is where the previous one ends, `views` are those that it computed."""
        pipeline, sink = self._tracing.pipeline, self._tracing.sink
        cut, end = manifest.cut, Lsn(manifest.end_lsn)
        trace_id = own_trace_id(pipeline, sink, "cut", cut, end)
        span_id = own_span_id(pipeline, sink, "cut", cut, end)
        facts: dict[str, str | int] = {
            "tailrace.pipeline": pipeline,
            "tailrace.sink": sink,
            "tailrace.cut": cut,
            "tailrace.lsn.after": str(after),
            "tailrace.lsn.end": str(end),
        }
        start_ns, end_ns = self._wall(took)
        links = tuple((one.trace_id, one.span_id) for one in self._traced.values())
        cut_facts = {**facts, "tailrace.records": records, "tailrace.views": len(views)}
        self._emit(f"tailrace cut {sink}", (trace_id, span_id, 0), (start_ns, end_ns), cut_facts, links)
        for name, view_took in views.items():
            state = manifest.views.get(name)
            plan = None if state is None else state.plan
            more: dict[str, str | int] = {}
            if plan is not None:
                more = {"tailrace.plan": plan.plan, "tailrace.rows": plan.rows}
            self._emit(
                f"tailrace view {name}",
                (trace_id, own_span_id(span_id, "view", name), span_id),
                self._wall(view_took),
                {**facts, "tailrace.view": name, **more},
            )
        for (xid, _), one in self._traced.items():
            self._emit(
                f"tailrace sink {sink}",
                (one.trace_id, own_span_id(span_id, one.span_id), one.span_id),
                (start_ns, end_ns),
                {**facts, "tailrace.transaction.xid": xid},
                ((trace_id, span_id),),
                internal=False,
            )
        self._traced.clear()

    def _wall(self, took: Took) -> tuple[int, int]:
        """Return start and end in nanoseconds since 1970."""
        ahead_s = self._tracing.clock.wall_s() - self._tracing.clock.monotonic_s()
        return int((took[0] + ahead_s) * 1e9), int((took[1] + ahead_s) * 1e9)

    def _emit(
        self,
        name: str,
        ids: tuple[int, int, int],
        times: tuple[int, int],
        attributes: Mapping[str, str | int],
        links: tuple[tuple[int, int], ...] = (),
        *,
        internal: bool = True,
    ) -> None:
        trace_id, span_id, parent_id = ids
        self._tracing.outlet.emit(
            Span(
                name=name,
                trace_id=trace_id,
                span_id=span_id,
                parent_id=parent_id,
                start_ns=times[0],
                end_ns=times[1],
                attributes=attributes,
                links=links,
                internal=internal,
            )
        )
