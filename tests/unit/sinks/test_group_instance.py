"""A member of a group that is refused under its own instance id."""

from __future__ import annotations

import logging

import pytest

from cdc.errors import MemberDropped, ProducerFenced
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.group_member import DISTURBED_S, refused_instance
from tests.fixtures.servers.manual_clock import ManualClock


def refused(facility: str, ago_s: float) -> type[Exception]:
    """The error for a refusal so long after a log line of the client."""
    clock = ManualClock()
    events = ClientEvents(clock)
    if facility:
        events.log(logging.INFO, "%s [%s] %s", facility, "x#consumer-1", "a text")
    clock.now_s += ago_s
    return type(refused_instance("read records", "shop.sink.fast", events))


@pytest.mark.parametrize("facility", ["SESSTMOUT", "FAIL", "REQTMOUT"])
def test_member_that_is_refused_after_an_outage_joins_again(facility: str) -> None:
    assert refused(facility, 0.0) is MemberDropped
    assert refused(facility, DISTURBED_S) is MemberDropped


@pytest.mark.parametrize(("facility", "ago_s"), [("", 0.0), ("GETPID", 1.0), ("SESSTMOUT", DISTURBED_S + 1)])
def test_member_that_is_refused_while_the_broker_answers_has_a_rival(facility: str, ago_s: float) -> None:
    assert refused(facility, ago_s) is ProducerFenced
