"""How long an error that needs an operator is retried before it ends the process."""

from __future__ import annotations

import pytest

from cdc.errors import (
    BrokerRefused,
    ConfigError,
    ProducerFenced,
    SinkGap,
    SinkStale,
    SinkUnfit,
    TailraceError,
    TopicMismatch,
    TopicMissing,
)
from cdc.run.retry_policy import FENCED_REPEAT_S, INCIDENT_GAP_S, MISSING_S, REFUSED_S, RetryPolicy
from tests.fixtures.servers.manual_clock import ManualClock


class Process:
    """A process with its own clock."""

    def __init__(self, *, retries_fenced: bool = False) -> None:
        self.clock = ManualClock()
        self.patience = RetryPolicy(self.clock, retries_fenced=retries_fenced)

    def retries_for_s(self, error: TailraceError) -> float:
        """Return how long an error that occurs every second is retried."""
        began_s = self.clock.now_s
        while self.patience.allows(error):
            self.clock.now_s += 1.0
            assert self.clock.now_s - began_s < 10_000
        return self.clock.now_s - began_s


def test_missing_topic_ends_a_process_only_when_it_stays_missing() -> None:
    error = TopicMissing("no topic 't'")

    assert Process().retries_for_s(error) == MISSING_S
    assert error.message == "no topic 't' (for 30 s, while the broker answered)"


def test_broker_that_stops_answering_begins_the_time_again() -> None:
    process = Process()

    assert process.patience.allows(TopicMissing("x"))
    process.clock.now_s += MISSING_S - 1
    process.patience.interrupted()

    assert process.retries_for_s(TopicMissing("x")) == MISSING_S


def test_missing_topic_long_after_the_last_one_is_another_incident() -> None:
    process = Process()

    assert process.patience.allows(TopicMissing("x"))
    process.clock.now_s += INCIDENT_GAP_S + 1

    assert process.retries_for_s(TopicMissing("x")) == MISSING_S


def test_refusal_ends_a_process_at_once_unless_its_settings_have_worked() -> None:
    first, later = Process(), Process()
    later.patience.worked()

    assert first.retries_for_s(BrokerRefused("x")) == 0.0
    assert later.retries_for_s(BrokerRefused("x")) == REFUSED_S


@pytest.mark.parametrize("error", [TopicMismatch("x"), SinkGap("x"), SinkStale("x"), SinkUnfit("x"), ConfigError("x")])
def test_what_time_does_not_change_ends_a_process_at_once(error: TailraceError) -> None:
    process = Process(retries_fenced=True)
    process.patience.worked()

    assert process.retries_for_s(error) == 0.0


def test_sink_is_fenced_for_good_only_when_a_rival_fences_it_again() -> None:
    sink, capture = Process(retries_fenced=True), Process()

    assert sink.patience.allows(ProducerFenced("x"))
    assert not sink.patience.allows(ProducerFenced("x"))
    sink.clock.now_s += FENCED_REPEAT_S + 1
    assert sink.patience.allows(ProducerFenced("x"))
    assert not capture.patience.allows(ProducerFenced("x"))
