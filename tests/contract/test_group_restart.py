"""Requests about consumer groups across restarts of the coordinator."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from cdc.errors import BrokerUnreachable
from cdc.kafka.group_member import CommittedOffset
from cdc.kafka.group_offsets import GroupAdmin, GroupAssignmentReader, GroupOffsets
from tests.contract.kafka_clients import create_topic, settings_of
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.running_servers import MakeStack

GROUP = "restarted"


@pytest.mark.timeout(300)
def test_questions_about_a_group_are_answered_after_every_restart_of_the_broker(make_stack: MakeStack) -> None:
    """The same clients ask before, meanwhile and afterwards, also a coordinator that moves."""
    broker = make_stack("kafka").kafka
    kafka = settings_of(broker)
    create_topic(broker, "t")
    place, offset = ("t", 0), CommittedOffset(7, "beside it")
    admin, dealing = GroupAdmin(kafka), GroupAssignmentReader(kafka, GROUP)
    admin.alter(GROUP, {place: offset})

    with closing(GroupOffsets(kafka, GROUP)) as offsets:

        def ask(stop: threading.Event) -> None:
            while not stop.wait(0.02):
                with suppress(BrokerUnreachable):
                    offsets.committed([place])

        for end in ("fast", "kill", "kill"):
            assert admin.members(GROUP) == set()
            until(lambda: dealing.look() is not None, "the coordinator says who has which partitions")
            with beside(ask):
                broker.stop(end)
                broker.start()
            assert offsets.found([place, ("t", 5)]) == {place: offset}
        assert admin.committed(GROUP, [place]) == {place: offset}
        assert admin.members(GROUP) == set()
        until(lambda: dealing.look() is not None, "the coordinator says who has which partitions")
