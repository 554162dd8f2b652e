"""Requests about consumer groups across restarts of the coordinator."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from cdc.errors import BrokerUnreachable, MemberDropped
from cdc.kafka.group_member import CommittedOffset, GroupConsumer, PartitionStart
from cdc.kafka.group_offsets import GroupAdmin, GroupAssignmentReader, GroupOffsets
from tests.contract.kafka_clients import create_topic, producing, publish, rows, settings_of, values
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cdc.kafka.cluster_facts import TopicPartition
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


class Resumed:
    """A membership that reads each partition from its committed offset on."""

    def assigned(self, places: Mapping[TopicPartition, PartitionStart]) -> Mapping[TopicPartition, int]:
        return {place: start.committed.offset if start.committed else start.low for place, start in places.items()}

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        """Nothing is under way."""

    def lost(self, places: Sequence[TopicPartition]) -> None:
        """Nothing is under way."""


def test_commit_that_does_not_return_gives_the_consumer_up_and_its_successor_continues(make_stack: MakeStack) -> None:
    broker = make_stack("kafka").kafka
    kafka, place = settings_of(broker), (create_topic(broker, "t"), 0)
    with producing(broker, "x") as producer:
        publish(producer, *place, rows("1", "2"))
    hanging = GroupConsumer(kafka, GROUP, Resumed(), instance="a", commit_s=1.0)
    hanging.subscribe(["t"])
    until(lambda: hanging.poll(0.1).records, "it reads")
    assert hanging.commit({place: (1, "")})

    broker.pause()
    with pytest.raises(MemberDropped, match="did not return from a commit within 1 s"):
        hanging.commit({place: (2, "")})
    with pytest.raises(MemberDropped):
        hanging.commit({place: (2, "")})
    with pytest.raises(MemberDropped):
        hanging.poll(0.1)
    hanging.close()  # the broker is still silent: to leave the group would wait for it
    broker.resume()
    with producing(broker, "x") as producer:
        publish(producer, *place, rows("3"))

    with closing(GroupConsumer(kafka, GROUP, Resumed(), instance="a")) as successor:
        successor.subscribe(["t"])
        found = until(lambda: successor.poll(0.1).records, "its successor reads")
    # Kafka may have carried out the commit after all.
    assert values(found) in ([b"3"], [b"2", b"3"])
