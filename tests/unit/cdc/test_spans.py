"""Spans of capture and sinks: which transactions are traced, and how their spans belong together."""

from __future__ import annotations

import subprocess
import sys
import timeit

import pytest

from cdc.capture.transaction_spans import TransactionSpans
from cdc.encode.envelope import snapshot_stamp
from cdc.encode.envelope import stamp as make_stamp
from cdc.lsn import Lsn
from cdc.model.change_records import Headers, StreamPosition
from cdc.model.log_record import LogRecord
from cdc.telemetry.spans import Sampler, SinkTracing, Span, sampled_parent
from cdc.wire.pgoutput import Begin
from sinks.runner.applied_spans import AppliedSpans
from tests.fixtures.outbox.scripted_router import Routing
from tests.fixtures.servers.manual_clock import ManualClock

_TRACE, _PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
_TRACEPARENT = f"00-{_TRACE}-{_PARENT}-01".encode()
_AT = StreamPosition(Lsn(1))


class _Outlet:
    """Keeps spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def emit(self, span: Span) -> None:
        self.spans.append(span)


class _Traced:
    """Capture and a sink with the same ratio."""

    def __init__(self, ratio: float = 1.0) -> None:
        self.clock, self.outlet = ManualClock(), _Outlet()
        self.capture = TransactionSpans("shop", Sampler("shop", ratio), self.outlet, self.clock)
        self.sink = AppliedSpans(SinkTracing("shop", "cache", Sampler("shop", ratio), self.outlet, self.clock))

    def transaction(self, xid: int, *, events: tuple[bytes, ...] = (), age_s: float = 2.0) -> Begin:
        begin = Begin(Lsn(100 + xid), int((self.clock.wall_s() - age_s) * 1e6), xid)
        self.capture.begun(begin)
        for number, traceparent in enumerate(events):
            self.capture.event([("id", b"e%d" % number), ("traceparent", traceparent)])
        self.capture.ended()
        return begin

    def commit(self) -> None:
        self.capture.write(_AT)
        self.clock.now_s += 1
        self.capture.written()

    def record(self, begin: Begin, row: bytes = b"") -> LogRecord:
        source = make_stamp(begin, 1).source
        value = b'{"before":null,"after":{"v":"%b"},"source":{%b0\\"]","lsn":1,"ordinal":1},"op":"c"}' % (row, source)
        return LogRecord("shop.public.t", 2, 7, int(self.clock.wall_s() * 1000), b"k", value, None)


def test_capture_and_sink_choose_the_same_transactions_and_agree_on_their_ids() -> None:
    traced = _Traced(ratio=0.3)
    begins = [traced.transaction(xid) for xid in range(700)]
    traced.commit()
    captured = {span.attributes["tailrace.transaction.xid"]: span for span in traced.outlet.spans}
    traced.outlet.spans = []

    for begin in begins:
        traced.sink.applied([traced.record(begin)])

    applied = {span.attributes["tailrace.transaction.xid"]: span for span in traced.outlet.spans}
    assert captured.keys() == applied.keys()
    assert 140 < len(captured) < 280
    assert all(applied[xid].trace_id == span.trace_id for xid, span in captured.items())
    assert all(applied[xid].parent_id == span.span_id for xid, span in captured.items())
    assert len({span.trace_id for span in captured.values()}) == len(captured)


def test_span_of_capture_lasts_from_the_commit_until_the_kafka_transaction_is_committed() -> None:
    traced = _Traced()

    begin = traced.transaction(700, age_s=2.0)
    before = len(traced.outlet.spans)
    traced.commit()

    (span,) = traced.outlet.spans
    assert before == 0
    assert (span.start_ns, span.parent_id) == (begin.commit_us * 1000, 0)
    assert span.end_ns - span.start_ns == pytest.approx(3e9, abs=1e6)
    assert span.attributes["tailrace.read_after_ms"] == pytest.approx(2000, abs=1)


def test_transaction_that_ends_after_a_commit_began_belongs_to_the_next_one() -> None:
    traced = _Traced()
    traced.transaction(1)
    traced.capture.write(_AT)
    traced.transaction(2)
    traced.capture.written()

    first = [span.attributes["tailrace.transaction.xid"] for span in traced.outlet.spans]
    traced.commit()

    assert first == [1]
    assert [span.attributes["tailrace.transaction.xid"] for span in traced.outlet.spans] == [1, 2]


def test_outbox_event_continues_the_trace_of_the_application() -> None:
    traced = _Traced(ratio=0)

    traced.transaction(7, events=(_TRACEPARENT, b"00-1-2-01", _TRACEPARENT[:-2] + b"00"))
    traced.commit()

    (span,) = traced.outlet.spans
    assert (f"{span.trace_id:032x}", f"{span.parent_id:016x}") == (_TRACE, _PARENT)
    assert span.attributes["messaging.message.id"] == "e0"
    assert span.links == ()


def test_event_of_a_traced_transaction_is_linked_to_it() -> None:
    traced = _Traced()

    traced.transaction(7, events=(_TRACEPARENT,))
    traced.commit()

    transaction, event = traced.outlet.spans
    assert event.links == ((transaction.trace_id, transaction.span_id),)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"00-1-2-01",
        _TRACEPARENT[:-2] + b"00",
        _TRACEPARENT.upper(),
        b"ff" + _TRACEPARENT[2:],
        _TRACEPARENT + b"-x",
        b"00-%b-%b-01" % (b"0" * 32, _PARENT.encode()),
    ],
)
def test_traceparent_that_is_not_sampled_or_not_valid_is_ignored(text: bytes) -> None:
    assert sampled_parent(text) is None


def test_router_reports_events_that_it_publishes_and_leaves_their_headers_as_they_are() -> None:
    seen: list[Headers] = []
    plain, routing = Routing(), Routing()
    routing.router.traced = seen.append
    for each in (plain, routing):
        each.insert(headers=b'{"traceparent": "%b"}' % _TRACEPARENT)
        each.insert(id=None)  # refused

    assert [dict(headers)["traceparent"] for headers in seen] == [_TRACEPARENT]
    assert routing.gather() == plain.gather()


def test_rows_that_imitate_the_envelope_or_were_read_from_a_table_do_not_mislead_a_sink() -> None:
    traced = _Traced()
    begin = Begin(Lsn(5), 1_000_000, 9)
    row = b'\\"txId\\":1,\\"epoch\\":1,\\"commit_lsn\\":1'
    copied = b'{"after":{},"source":{%b0\\"]"},"op":"r"}' % snapshot_stamp(5, 1_000_000, 1).source

    traced.sink.applied([traced.record(begin, row), traced.record(begin)._replace(value=copied)])
    traced.sink.applied([traced.record(begin)._replace(value=None)])

    assert [span.attributes["tailrace.transaction.xid"] for span in traced.outlet.spans] == [9]


def test_no_more_than_a_bounded_number_of_spans_waits_for_a_commit() -> None:
    traced = _Traced()

    for xid in range(5000):
        traced.transaction(xid)
    traced.commit()

    assert len(traced.outlet.spans) == 1000


@pytest.mark.bench
def test_cost_of_tracing_in_the_router(capsys: pytest.CaptureFixture[str]) -> None:
    plain, traced = Routing(), Routing()
    traced.router.traced = _Traced().capture.event
    costs: dict[str, list[float]] = {"off": [], "on": []}
    for _ in range(15):  # in turn, because the machine may become busier
        for name, routing in (("off", plain), ("on", traced)):
            costs[name].append(timeit.timeit(lambda: routing.insert(headers=b'{"traceparent": "x"}'), number=1000))  # noqa: B023 - called at once
    off, on = (min(costs[name]) / 1000 * 1e6 for name in ("off", "on"))

    with capsys.disabled():
        print(f"an event of the outbox costs {off:.2f} us, with tracing {on:.2f} us: {on / off:.2f} times")


def test_process_without_tracing_imports_nothing_of_opentelemetry() -> None:
    code = "import sys, cdc.run.app, sinks.compose, cdc.startup.protocol; print('opentelemetry' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def test_chunks_of_one_snapshot_are_in_one_trace_and_end_with_their_commit() -> None:
    traced = _Traced(ratio=0)
    began_s = traced.clock.wall_s() - 5

    for number in (1, 1, 2):
        traced.capture.chunk("public.t", number, began_s=began_s, row_count=7, byte_count=90)
    before = len(traced.outlet.spans)
    traced.commit()

    first, second, again = traced.outlet.spans
    assert before == 0
    assert first.trace_id == second.trace_id != again.trace_id
    assert len({first.span_id, second.span_id, again.span_id}) == 3
    assert first.end_ns - first.start_ns == pytest.approx(6e9, abs=1e6)
    assert (first.attributes["tailrace.rows"], first.attributes["tailrace.bytes"]) == (7, 90)
