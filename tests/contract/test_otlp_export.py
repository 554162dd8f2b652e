"""Spans and metrics at a real OTLP/HTTP receiver, parsed by OpenTelemetry's own protobuf."""

from __future__ import annotations

import pytest
import structlog
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from cdc.capture.transaction_spans import TransactionSpans
from cdc.clock import SystemClock
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.otel.export import SPANS_MAX, OtlpExport
from cdc.telemetry.spans import Sampler, SinkTracing, Span
from sinks.warehouse.cut_spans import CutSpans
from sinks.warehouse.lake.cut_position import START
from sinks.warehouse.lake.manifest import Manifest, PlanRecord, ViewState
from tests.fixtures.faults.secured import free_ports
from tests.fixtures.servers.http_receiver import Receiver, receiving

_SPAN = Span(
    name="tailrace capture",
    trace_id=0xABC,
    span_id=0x12,
    parent_id=0x34,
    start_ns=1_000,
    end_ns=2_000,
    attributes={"tailrace.transaction.xid": 700},
    links=((0xDEF, 0x56),),
)


def _export(metrics: Metrics, port: int, monkeypatch: pytest.MonkeyPatch) -> OtlpExport:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}/s3cret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    return OtlpExport("shop", "capture", metrics.render, metrics, SystemClock(), interval_s=3600)


def _bodies(server: Receiver, signal: str) -> list[bytes]:
    return [one.body for one in server.requests if one.path == f"/s3cret/v1/{signal}"]


def test_spans_arrive_with_ids_times_attributes_and_links(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as server, _export(Metrics("shop"), server.port, monkeypatch) as export:
        export.emit(_SPAN)
        export.__exit__()

    (resource,) = ExportTraceServiceRequest.FromString(_bodies(server, "traces")[0]).resource_spans
    (span,) = resource.scope_spans[0].spans
    service = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (service["service.name"], service["service.namespace"]) == ("tailrace-capture", "shop")
    assert (span.trace_id.hex(), span.span_id.hex()) == (f"{0xABC:032x}", f"{0x12:016x}")
    assert span.parent_span_id.hex() == f"{0x34:016x}"
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_000, 2_000)
    assert [(one.key, one.value.int_value) for one in span.attributes] == [("tailrace.transaction.xid", 700)]
    assert [(one.trace_id.hex(), one.span_id.hex()) for one in span.links] == [(f"{0xDEF:032x}", f"{0x56:016x}")]


def test_spans_of_a_cut_and_its_views_and_of_a_snapshot_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sampler = SystemClock(), Sampler("shop", 1.0)
    with receiving() as server, _export(Metrics("shop"), server.port, monkeypatch) as export:
        lake = CutSpans(SinkTracing("shop", "lake", sampler, export, clock))
        lake.read([b'{"source":{"txId":7,"epoch":1,"commit_lsn":107}}'])
        view = ViewState(
            version=1, generation=1, reason="", cut=3, sql_sha="", plan=PlanRecord(plan="x", reason="", rows=5)
        )
        manifest = Manifest(cut=3, name="shop", position=START, tables={}, views={"totals": view}, committed_at_us=0)
        now_s = clock.monotonic_s()
        took = (now_s - 2, now_s)
        lake.published(manifest, {"totals": took}, after=Lsn(0), records=1, took=took)
        capture = TransactionSpans("shop", sampler, export, clock)
        capture.chunk("public.t", 1, began_s=clock.wall_s(), row_count=7, byte_count=90)
        capture.write(StreamPosition(Lsn(1)))
        capture.written()
        export.__exit__()

    (resource,) = ExportTraceServiceRequest.FromString(_bodies(server, "traces")[0]).resource_spans
    cut, view_span, applied, chunk = resource.scope_spans[0].spans
    internal = trace_pb2.Span.SpanKind.SPAN_KIND_INTERNAL
    assert [one.name for one in (cut, view_span, applied, chunk)] == [
        "tailrace cut lake",
        "tailrace view totals",
        "tailrace sink lake",
        "tailrace snapshot",
    ]
    assert (cut.kind, view_span.kind) == (internal, internal)
    assert (view_span.trace_id, view_span.parent_span_id) == (cut.trace_id, cut.span_id)
    assert [(one.trace_id, one.span_id) for one in cut.links] == [(applied.trace_id, applied.parent_span_id)]
    assert [(one.trace_id, one.span_id) for one in applied.links] == [(cut.trace_id, cut.span_id)]
    assert {one.key: one.value.int_value for one in view_span.attributes}["tailrace.rows"] == 5
    assert {one.key: one.value.int_value for one in chunk.attributes}["tailrace.rows"] == 7
    assert cut.end_time_unix_nano - cut.start_time_unix_nano == pytest.approx(2e9, abs=1e7)


def test_metrics_arrive_as_prometheus_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics("shop")
    metrics.rows.inc(7)
    metrics.position.set(42)
    for seconds in (0.003, 0.003, 100):
        metrics.commit_seconds.observe(seconds)
    with receiving() as server, _export(metrics, server.port, monkeypatch):
        pass

    (resource,) = ExportMetricsServiceRequest.FromString(_bodies(server, "metrics")[-1]).resource_metrics
    found = {one.name: one for one in resource.scope_metrics[0].metrics}
    (rows,) = found["cdc_rows_total"].sum.data_points
    (histogram,) = found["cdc_commit_seconds"].histogram.data_points
    assert found["cdc_rows_total"].sum.is_monotonic
    assert (rows.as_double, {one.key: one.value.string_value for one in rows.attributes}) == (7, {"pipeline": "shop"})
    assert found["cdc_position_lsn"].gauge.data_points[0].as_double == 42
    assert (histogram.count, histogram.sum) == (3, pytest.approx(100.006))
    assert [count for count in histogram.bucket_counts if count] == [2, 1]
    assert len(histogram.bucket_counts) == len(histogram.explicit_bounds) + 1
    assert "cdc_lag_seconds" not in found, "it is unknown"
    assert [name for name in found if name.endswith("_created")] == []


def test_collector_that_is_down_is_logged_once_and_counted_without_its_address(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (nothing,) = free_ports(1)
    metrics = Metrics("shop")
    export = _export(metrics, nothing, monkeypatch)
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            export.emit(_SPAN)
            export._send_spans()
        export._send_metrics()

    failures = metrics.registry.get_sample_value("cdc_otel_failures_total", {"signal": "traces"})
    assert failures == 2
    assert [(one["event"], one["signal"]) for one in logs] == [("otel_failed", "traces"), ("otel_failed", "metrics")]
    assert "s3cret" not in str(logs) + caplog.text
    assert capfd.readouterr() == ("", "")


def test_spans_beyond_the_bound_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics("shop")
    export = _export(metrics, 9, monkeypatch)

    for _ in range(SPANS_MAX + 5):
        export.emit(_SPAN)

    assert metrics.registry.get_sample_value("cdc_otel_dropped_spans_total") == 5
