"""A trace through real servers: the application's span, capture's, and that of a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from outbox.event import Event
from outbox.writer import Writer
from tests.fixtures.outbox.outbox_events import made
from tests.fixtures.servers.http_receiver import Receiver, receiving
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_process import SinkProcess

if TYPE_CHECKING:
    import pytest
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.daemon import CaptureSite


def _spans(server: Receiver) -> dict[str, Span]:
    return {span.name: span for span in _all_spans(server)}


def _all_spans(server: Receiver) -> list[Span]:
    return [
        span
        for one in server.requests
        if one.path.endswith("/v1/traces")
        for resource in ExportTraceServiceRequest.FromString(one.body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def test_trace_leads_from_the_application_through_capture_to_the_sink(
    capture: CaptureSite, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture.sql("create table t (id int primary key, v text)", *made())
    capture.sql("create table old (id int primary key)", "insert into old select generate_series(1, 5)")
    with receiving() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.port}")
        daemon = capture.running(
            {
                "outbox": {},
                "snapshot": {"mode": "initial"},
                "otel": {"enabled": True, "sample_ratio": 1.0, "interval_s": 1},
                "sinks.fast": {"kind": "cache", "url": valkey.url, "tables": ["public.t"]},
            }
        )
        tracer = TracerProvider().get_tracer("application")
        with (
            SinkProcess(capture.folder / "cdc-0.toml", "fast"),
            psycopg.connect(capture.dsn) as session,
            tracer.start_as_current_span("order") as order,
        ):
            session.execute("insert into t values (1, 'a')")
            placed = Event(aggregate_type="order", aggregate_id="1", type="placed", payload="{}")
            Writer().write(session.cursor(), placed)
            session.commit()
            wanted = {"tailrace capture", "tailrace capture event", "tailrace sink fast"}
            expected = wanted | {"tailrace snapshot"}
            until(lambda: expected <= _spans(server).keys(), "all spans are exported", within_s=90)
        metrics = [one for one in server.requests if one.path.endswith("/v1/metrics")]
        log = capture.settled(daemon)
        assert daemon.stop() == 0

    found = _spans(server)
    event, applied = found["tailrace capture event"], found["tailrace sink fast"]
    transaction = next(span for span in _all_spans(server) if span.span_id == event.links[0].span_id)
    assert transaction.name == "tailrace capture"
    context = order.get_span_context()
    assert (event.trace_id.hex(), event.parent_span_id.hex()) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")
    assert event.links[0].trace_id == transaction.trace_id
    assert applied.trace_id == transaction.trace_id
    assert applied.parent_span_id == transaction.span_id
    assert transaction.start_time_unix_nano <= transaction.end_time_unix_nano
    assert applied.start_time_unix_nano <= applied.end_time_unix_nano
    chunks = [span for span in _all_spans(server) if span.name == "tailrace snapshot"]
    facts = [{one.key: one.value for one in span.attributes} for span in chunks]
    read = {one["tailrace.table"].string_value: one["tailrace.rows"].int_value for one in facts}
    assert read["public.old"] == 5
    assert all(span.start_time_unix_nano < span.end_time_unix_nano for span in chunks)
    assert metrics
    rows = log.topic(capture.topic("t"))  # the snapshot may have read the row, too
    assert rows
    assert all(row.headers == {} for row in rows), "records of tables are the same as without tracing"
