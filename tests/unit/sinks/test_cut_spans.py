"""Spans of a lake: a cut, its views, and the traced transactions in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.encode.envelope import snapshot_stamp
from cdc.encode.envelope import stamp as make_stamp
from cdc.lsn import Lsn
from cdc.telemetry.spans import Sampler, SinkTracing, Span
from cdc.wire.pgoutput import Begin
from sinks.warehouse.cut_spans import TRACED_MAX, CutSpans
from sinks.warehouse.lake.cut_position import START
from sinks.warehouse.lake.manifest import Manifest, PlanRecord, ViewState
from tests.fixtures.servers.manual_clock import ManualClock


class _Lake:
    """The spans of a lake, and what it emits."""

    def __init__(self, ratio: float = 1.0) -> None:
        self.spans: list[Span] = []
        self.clock = ManualClock()
        self.sampler = Sampler("shop", ratio)
        self.cut = CutSpans(SinkTracing("shop", "lake", self.sampler, self, self.clock))

    def emit(self, span: Span) -> None:
        self.spans.append(span)

    def publish(self) -> None:
        plan = PlanRecord(plan="affected", reason="", rows=3)
        view = ViewState(version=4, cut=7, reason="", sql_sha="", generation=1, plan=plan)
        at = replace(START, end_lsn=0x200)
        manifest = Manifest(cut=7, name="shop", position=at, tables={}, views={"totals": view}, committed_at_us=0)
        now_s = self.clock.monotonic_s()
        self.cut.published(
            manifest,
            {"totals": (now_s - 2, now_s - 1)},
            after=Lsn(0x100),
            records=9,
            took=(now_s - 4, now_s),
        )


def _value(xid: int) -> bytes:
    source = make_stamp(Begin(Lsn(100 + xid), 1_700_000_000_000_000, xid), 1).source
    return b'{"after":{"id":1},"source":' + source


def test_cut_has_a_span_with_its_lsn_range_and_each_view_one_below_it() -> None:
    lake = _Lake()
    lake.cut.began()
    lake.publish()

    cut, view = lake.spans
    assert (cut.name, view.name) == ("tailrace cut lake", "tailrace view totals")
    assert (view.trace_id, view.parent_id, cut.parent_id) == (cut.trace_id, cut.span_id, 0)
    assert cut.attributes["tailrace.lsn.after"] == "0/100"
    assert cut.attributes["tailrace.lsn.end"] == "0/200"
    assert (cut.attributes["tailrace.cut"], cut.attributes["tailrace.records"]) == (7, 9)
    assert (view.attributes["tailrace.rows"], view.attributes["tailrace.plan"]) == (3, "affected")
    assert cut.end_ns - cut.start_ns == pytest.approx(4e9, abs=1e6)
    assert view.end_ns - view.start_ns == pytest.approx(1e9, abs=1e6)
    assert cut.end_ns == pytest.approx(lake.clock.wall_s() * 1e9, abs=1e6)
    assert cut.internal
    assert view.internal


def test_traced_transaction_has_a_span_below_that_of_capture_and_links_with_its_cut() -> None:
    lake = _Lake()
    lake.cut.began()
    lake.cut.read([_value(5), None, _value(5), b'{"after":{}}'])
    lake.publish()

    cut, applied = lake.spans[0], lake.spans[-1]
    traced = lake.sampler.chosen(5, 105)
    assert traced is not None
    assert len(lake.spans) == 3
    assert (applied.trace_id, applied.parent_id) == (traced.trace_id, traced.span_id)
    assert applied.name == "tailrace sink lake"
    assert applied.links == ((cut.trace_id, cut.span_id),)
    assert cut.links == ((traced.trace_id, traced.span_id),)


def test_untraced_transactions_and_rows_of_snapshots_are_not_linked() -> None:
    lake, untraced = _Lake(), _Lake(ratio=0)
    lake.cut.read([b'{"after":{"id":1},"source":' + snapshot_stamp(Lsn(7), 1, 1).source])
    untraced.cut.read([_value(5)])

    for one in (lake, untraced):
        one.publish()
        assert [span.links for span in one.spans] == [(), ()]


def test_attempt_that_failed_leaves_nothing_to_the_next_cut_and_the_number_is_bounded() -> None:
    lake = _Lake()
    lake.cut.read([_value(5)])
    lake.cut.began()
    lake.cut.read(_value(xid) for xid in range(10, 10 + 2 * TRACED_MAX))
    lake.publish()

    assert len(lake.spans[0].links) == TRACED_MAX
    lake.publish()
    assert lake.spans[-2].links == ()
