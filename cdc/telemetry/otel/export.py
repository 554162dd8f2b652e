"""Exports spans and metrics to a collector by OTLP over HTTP, in a thread that capture and sinks never wait for.

The variables OTEL_EXPORTER_OTLP_* name the collector, as everywhere. What it does not accept is dropped after the
exporter's own attempts, and counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

from cdc import __version__
from cdc.clock import Clock
from cdc.telemetry import log
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.otel.metrics_data import metrics_data
from cdc.telemetry.spans import Span

SPANS_MAX: Final = 4096
"""Spans that wait for the next export; more are dropped."""

_EVERY_S: Final = 2.0  # between exports of spans
_END_S: Final = 5.0
_SCOPE: Final = InstrumentationScope("tailrace", __version__)


class OtlpExport:
    """Implements `cdc.telemetry.spans.SpanOutlet`. Thread-safe. Use it as a context manager."""

    def __init__(
        self,
        pipeline: str,
        process: str,
        render: Callable[[], bytes],
        metrics: Metrics,
        clock: Clock,
        *,
        interval_s: float,
    ) -> None:
        """`process`: capture, or the name of a sink. `render` returns the page of /metrics."""
        _keep_quiet()
        self._render = render
        self._metrics = metrics
        self._clock = clock
        self._interval_s = interval_s
        self._spans: deque[Span] = deque()
        self._failing: set[str] = set()
        self._resource = Resource.create({"service.name": f"tailrace-{process}", "service.namespace": pipeline})
        self._traces = OTLPSpanExporter()
        self._numbers = OTLPMetricExporter()
        self._start_ns = self._now_ns()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_END_S)
        self._traces.shutdown()  # type: ignore[no-untyped-call] # the library has no annotation here
        self._numbers.shutdown()

    def emit(self, span: Span) -> None:
        """See `SpanOutlet`."""
        if len(self._spans) >= SPANS_MAX:
            self._metrics.otel_dropped.inc()
        else:
            self._spans.append(span)

    def _run(self) -> None:
        exported_s = self._clock.monotonic_s()
        while not self._clock.wait(self._stop, _EVERY_S):
            self._send_spans()
            now_s = self._clock.monotonic_s()
            if now_s - exported_s >= self._interval_s:
                exported_s = now_s
                self._send_metrics()
        self._send_spans()
        self._send_metrics()

    def _send_spans(self) -> None:
        taken = [self._spans.popleft() for _ in range(len(self._spans))]
        if taken:
            found = [_readable(span, self._resource) for span in taken]
            self._sent("traces", lambda: self._traces.export(found) is SpanExportResult.SUCCESS)

    def _send_metrics(self) -> None:
        data = metrics_data(self._render(), self._resource, _SCOPE, self._start_ns, self._now_ns())
        self._sent("metrics", lambda: self._numbers.export(data) is MetricExportResult.SUCCESS)

    def _sent(self, signal: str, export: Callable[[], bool]) -> None:
        """Export, and report an incident once when it begins and once when it ends."""
        try:
            done, why = export(), "the collector did not accept them"
        except (OSError, ValueError) as error:  # as requests raises them, for example for an invalid address
            done, why = False, type(error).__name__
        if done and signal in self._failing:
            self._failing.discard(signal)
            log.get().info("otel_recovered", signal=signal)
        elif not done:
            self._metrics.otel_failures.labels(signal).inc()
            if signal not in self._failing:
                self._failing.add(signal)
                log.get().warning(
                    "otel_failed", signal=signal, reason=why, hint="check OTEL_EXPORTER_OTLP_ENDPOINT and the collector"
                )

    def _now_ns(self) -> int:
        return int(self._clock.wall_s() * 1e9)


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    def context(span_id: int, trace_id: int = span.trace_id, *, remote: bool = False) -> SpanContext:
        return SpanContext(trace_id, span_id, remote, TraceFlags(TraceFlags.SAMPLED))

    kind = SpanKind.CONSUMER if span.parent_id else SpanKind.PRODUCER
    return ReadableSpan(
        name=span.name,
        context=context(span.span_id),
        parent=context(span.parent_id, remote=True) if span.parent_id else None,
        resource=resource,
        attributes=span.attributes,
        links=[Link(context(span_id, trace_id, remote=True)) for trace_id, span_id in span.links],
        kind=SpanKind.INTERNAL if span.internal else kind,
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=_SCOPE,
    )


def _keep_quiet() -> None:
    """Silence the library's own log: each failure is in ours, without the address of the collector."""
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL + 1)
