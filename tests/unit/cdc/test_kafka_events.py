"""Conclusions from librdkafka's log lines, and which lines are logged."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from cdc.kafka.client_events import EVENTS_MAX, REPEATS_MAX, ClientEvents, RepeatFilter

DISCONNECTED = "[thrd:TxnCoordinator]: TxnCoordinator: b:9092: Disconnected (after 3819ms in state UP)"
REFUSED = "[thrd:b:9092/1]: b:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused"


def _log(events: ClientEvents, facility: str, text: str) -> None:
    events.log(logging.INFO, "%s [%s] %s", facility, "x#producer-1", text)


@pytest.mark.parametrize(
    ("facility", "text"),
    [
        ("FAIL", DISCONNECTED),
        ("FAIL", "b:9092/1: Disconnected (after 3ms in state UP, 4 identical error(s) suppressed)"),
        ("FAIL", "b:9092/1: 1 request(s) timed out: disconnect (average rtt 5.000ms) (after 60003ms in state UP)"),
        ("FAIL", "b:9092/1: Disconnected (after 3ms in state REAUTH)"),
        ("FAIL", "a text of another version"),
        ("REQTMOUT", "Timed out 1 in-flight, 0 retry-queued, 0 out-queue, 0 partially-sent requests"),
    ],
)
def test_a_broken_connection_or_a_timeout_may_have_lost_a_request(facility: str, text: str) -> None:
    events = ClientEvents()

    _log(events, facility, text)

    assert events.lost == text.removeprefix("[thrd:TxnCoordinator]: ")


@pytest.mark.parametrize(
    ("facility", "text"),
    [
        ("FAIL", f"{REFUSED} (after 0ms in state CONNECT)"),
        ("FAIL", f"{REFUSED} (after 0ms in state CONNECT, 7 identical error(s) suppressed)"),
        ("FAIL", "ssl://b/1: SSL handshake failed (after 2ms in state SSL_HANDSHAKE)"),
        ("FAIL", "b/1: SASL mechanism handshake failed (after 2ms in state AUTH_HANDSHAKE)"),
        ("GETPID", "Failed to acquire transactional PID from broker: retrying"),
    ],
)
def test_where_there_was_no_connection_nothing_can_be_lost(facility: str, text: str) -> None:
    events = ClientEvents()

    _log(events, facility, text)

    assert events.lost is None


def test_a_lost_request_is_never_forgotten() -> None:
    events = ClientEvents()
    _log(events, "FAIL", DISCONNECTED)

    events.clear()
    _log(events, "REQTMOUT", "later")

    assert events.lost == DISCONNECTED.removeprefix("[thrd:TxnCoordinator]: ")


def test_the_reason_is_the_latest_broken_connection_without_librdkafkas_thread() -> None:
    events = ClientEvents()
    _log(events, "FAIL", f"{REFUSED} (after 0ms in state CONNECT)")
    _log(events, "FAIL", "[thrd:b:9092/1]: b:9092/1: Disconnected: verify security.protocol (after 1ms in state UP)")
    _log(events, "GETPID", "retrying")

    assert events.reason() == "b:9092/1: Disconnected: verify security.protocol (after 1ms in state UP)"
    events.clear()
    assert events.reason() == ""


def test_the_latest_refusal_is_reported_and_events_are_bounded() -> None:
    events = ClientEvents()
    for number in range(EVENTS_MAX * 3):
        events.on_error(KafkaError(KafkaError._AUTHENTICATION, f"wrong password {number}"))
    events.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))

    refusal = events.refusal()
    assert refusal is not None
    assert refusal.str() == f"wrong password {EVENTS_MAX * 3 - 1}"
    assert len(events._errors) == EVENTS_MAX


def _record(text: str, created_s: float) -> logging.LogRecord:
    record = logging.LogRecord("librdkafka", logging.ERROR, "", 0, text, None, None)
    record.created = created_s
    return record


def test_a_repeated_line_is_logged_once_a_minute() -> None:
    seen = RepeatFilter()

    logged = [
        seen.filter(_record(f"{REFUSED} (after {number}ms in state CONNECT)", created_s=1000.0 + number))
        for number in range(121)
    ]

    assert [number for number, was in enumerate(logged) if was] == [0, 60, 120]


def test_different_lines_are_all_logged_and_their_memory_is_bounded() -> None:
    seen = RepeatFilter()

    assert all(seen.filter(_record(f"text {number}", 1000.0)) for number in range(REPEATS_MAX * 2))
    assert len(seen._seen) == REPEATS_MAX


def test_a_clock_set_back_does_not_silence_the_log() -> None:
    seen = RepeatFilter()

    assert seen.filter(_record("text", 5000.0))
    assert seen.filter(_record("text", 1000.0))


def test_a_coordinator_that_still_loads_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    text = "[thrd:main]: Failed to acquire transactional PID from broker b/1: Broker: Coordinator load in progress: "

    with caplog.at_level(logging.INFO, logger="librdkafka"):
        ClientEvents().log(logging.WARNING, "%s [%s] %s", "GETPID", "x#producer-1", f"{text}retrying")
        ClientEvents().log(logging.WARNING, "%s [%s] %s", "GETPID", "x#producer-1", f"{text}giving up")

    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]
