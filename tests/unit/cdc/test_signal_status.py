"""The signals thread survives every error, and whether signals are read is visible in log, status, metrics and text."""

from __future__ import annotations

import math
import threading
from typing import Any, cast

import pytest
import structlog

from cdc.config.load import parse
from cdc.errors import BrokerUnreachable, SourceUnreachable
from cdc.model.signal_record import SignalsRecord
from cdc.startup import signal_reader
from cdc.startup.signal_rate import SignalRate
from cdc.startup.signal_reader import HeldCatalog, SignalHandler, SignalListener
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.signal_status import SignalStatus
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.waiting import until

_MINIMAL = 'name = "shop"\nsource = {dsn = "postgresql://h/d"}\nkafka = {bootstrap = "h:9092"}\n'


def _status() -> tuple[SignalStatus, Metrics]:
    metrics = Metrics()
    return SignalStatus(metrics), metrics


def _listening(metrics: Metrics) -> float:
    value = metrics.registry.get_sample_value("cdc_signals_listening_state")
    assert value is not None
    return value


def test_signals_that_are_not_read_are_visible_until_they_are_again() -> None:
    status, metrics = _status()
    assert math.isnan(_listening(metrics))
    alive = [True]

    with structlog.testing.capture_logs() as logged:
        status.signals_listening(lambda: alive[0])
        found = [(_listening(metrics), status.document)]
        for _ in range(3):
            status.signals_failed(BrokerUnreachable("no broker answers"))
        found.append((_listening(metrics), status.document))
        status.signals_failed(None)
        found.append((_listening(metrics), status.document))
        alive[0] = False
        found.append((_listening(metrics), status.document))

    assert [one[0] for one in found] == [1, 0, 1, 0]
    assert [one[1] and one[1]["error"] for one in found] == [
        "",
        "no broker answers",
        "",
        "the signals thread has stopped",
    ]
    assert [event["event"] for event in logged] == ["signals_interrupted", "signals_recovered"]
    assert metrics.registry.get_sample_value("cdc_signal_failures_total") == 3


def test_answers_are_counted() -> None:
    status, metrics = _status()
    status.signals_listening(lambda: True)
    status.signal_handled(refused=True, next_offset=4)
    status.signal_handled(refused=False, next_offset=5)

    assert metrics.registry.get_sample_value("cdc_signals_total", {"outcome": "refused"}) == 1
    assert status.document == {"listening": True, "error": "", "done": 1, "refused": 1, "next_offset": 5}


def test_thread_begins_again_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def reader(*_: object, **__: object) -> Any:
        begun.append(1)
        raise KeyError("public.t")

    monkeypatch.setattr(signal_reader, "LogReader", reader)
    status, metrics = _status()
    handler = SignalHandler("shop", _none(), _none(), SignalsRecord(topic_id="t", next_offset=0), status)
    listener = SignalListener(parse(_MINIMAL, {}), ManualClock(), handler, status)
    with structlog.testing.capture_logs() as logged:
        listener.start()
        until(lambda: len(begun) >= 3, "it begins again")
        shown, value = status.document, _listening(metrics)
        listener.close()

    assert shown is not None
    assert "KeyError" in shown["error"]
    assert value == 0
    assert [event["event"] for event in logged] == ["signals_interrupted"]
    assert status.document is None
    assert math.isnan(_listening(metrics))


def _none() -> Any:
    return None


def test_signals_beyond_the_rate_wait_and_none_is_lost() -> None:
    clock = ManualClock()
    rate, began_s = SignalRate(10, clock), clock.now_s
    never = threading.Event()

    taken = [rate.wait(never) for _ in range(120)]

    assert all(taken)
    assert clock.now_s - began_s == pytest.approx(10, abs=0.2), "a hundred of them, after a burst of twenty"


def test_one_connection_serves_many_signals_until_it_fails_or_nothing_is_left_to_read() -> None:
    opened: list[Any] = []

    class Opened:
        closed = False

        def close(self) -> None:
            self.closed = True

    def connected() -> Any:
        opened.append(Opened())
        return opened[-1]

    held = HeldCatalog(connected, lambda connection: cast("Any", connection))
    for _ in range(3):
        with held() as catalog:
            assert catalog is opened[0]
    with pytest.raises(SourceUnreachable), held():
        raise SourceUnreachable("gone")
    with held() as catalog:
        assert catalog is opened[1]
    held.close()
    held.close()

    assert [one.closed for one in opened] == [True, True]
