"""Reports of a sink's process: one every few seconds, one at each change of state, and a last one."""

from __future__ import annotations

import threading

import structlog

from cdc.clock import SystemClock
from cdc.errors import BrokerUnreachable
from cdc.model.sink_report import SinkReport
from sinks.state.report_sender import ReportSender

_DEADLINE_S = 10.0


class Sink:
    """A process whose state can be set; `sent` are its reports."""

    def __init__(self, *, fails: bool = False) -> None:
        self.state = "RUNNING"
        self.sent: list[SinkReport] = []
        self.fails = fails
        self.came = threading.Condition()
        self.outlet = ReportSender(self._report, self._send, SystemClock(), every_s=3600.0, name="test")

    def until_sent(self, count: int) -> None:
        with self.came:
            assert self.came.wait_for(lambda: len(self.sent) >= count, _DEADLINE_S)

    def _report(self) -> SinkReport:
        return SinkReport(at_ms=1, state=self.state)

    def _send(self, report: SinkReport) -> None:
        with self.came:
            self.sent.append(report)
            self.came.notify_all()
        if self.fails:
            raise BrokerUnreachable("away")


def test_change_of_state_is_reported_before_the_next_report_is_due_and_the_end_too() -> None:
    sink = Sink()
    sink.outlet.start()
    sink.until_sent(1)

    sink.state = "WAITING"
    sink.until_sent(2)
    sink.state = "MISCONFIGURED"

    assert sink.outlet.close()
    assert [one.state for one in sink.sent[:2]] == ["RUNNING", "WAITING"]
    assert (sink.sent[-1].state, sink.sent[-1].ended) == ("MISCONFIGURED", True)


def test_topic_that_cannot_be_written_is_logged_once_and_the_sink_goes_on() -> None:
    sink = Sink(fails=True)

    with structlog.testing.capture_logs() as logged:
        sink.outlet.start()
        sink.until_sent(1)
        sink.state = "WAITING"
        sink.until_sent(2)
        assert sink.outlet.close()

    assert [one["event"] for one in logged] == ["sink_heartbeat_failed"]
