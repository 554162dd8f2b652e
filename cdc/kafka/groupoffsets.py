"""What a consumer group has committed and who its members are, asked by somebody who is none of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Kafka
from cdc.errors import BrokerUnreachable, TailraceError
from cdc.kafka import options
from cdc.kafka.errors import attempt, construct, of, translate, unreachable
from cdc.kafka.events import ClientEvents
from cdc.kafka.facts import Dealt, Owner
from cdc.kafka.facts import TopicPartition as Place
from cdc.kafka.group import Committed

ASK_S: Final = 15.0
REQUEST_S: Final = 3000.0
"""When the client itself gives up a request. Long, because that ends the whole process now and then: a request for a
group's coordinator that times out while a broker restarts fails an assertion of librdkafka 2.16
(https://github.com/confluentinc/librdkafka/issues/4605). We stop waiting after ASK_S, and leave the request behind."""

AGAIN_S: Final = 5.0
"""A question that has no answer by then is asked again: the first one may wait for a connection that is gone."""
PATIENCE_S: Final = 20.0
_AGAIN_S: Final = 0.2
_NO_GROUP: Final = frozenset({"GROUP_ID_NOT_FOUND"})


class GroupAdmin:
    """Asks about groups. One client, which connects when it is first asked. Raises BrokerUnreachable, BrokerRefused."""

    def __init__(self, kafka: Kafka, *, client_id: str = "tailrace-groups", clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._events = ClientEvents()
        self._servers = kafka.bootstrap
        config: dict[str, Any] = {
            **options.admin_options(kafka, client_id=client_id),
            "error_cb": self._events.on_error,
            "logger": self._events,
        }
        self._client = construct(lambda: AdminClient(config), kafka.options)

    def committed(self, group: str) -> dict[Place, Committed]:
        """Of each partition that has an offset; empty for a group nobody ever was in."""
        doing = f"read the offsets of group {group}"
        found = self._result(
            doing,
            lambda: self._client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_S
            )[group].result(AGAIN_S),
        )
        offsets = found.topic_partitions if found is not None else []
        for one in offsets:
            if one.error is not None:
                raise self._error(one.error, doing)
        return {
            (one.topic, one.partition): Committed(one.offset, one.metadata or "") for one in offsets if one.offset >= 0
        }

    def alter(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        """Write offsets of a group without members; with members the broker refuses."""
        wanted = [TopicPartition(*place, one.offset, one.metadata) for place, one in offsets.items()]
        doing = f"write the offsets of group {group}"
        answer = self._result(
            doing,
            lambda: self._client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=REQUEST_S
            )[group].result(ASK_S),
        )
        for one in answer.topic_partitions if answer is not None else []:
            if one.error is not None:
                raise self._error(one.error, doing)

    def delete(self, group: str) -> None:
        """Have the broker forget a group without members; nothing when there is none."""
        self._result(
            f"delete group {group}",
            lambda: self._client.delete_consumer_groups([group], request_timeout=REQUEST_S)[group].result(ASK_S),
        )

    def members(self, group: str) -> set[str]:
        """Ids of those that are in a group now."""
        found = self._result(
            f"ask who is in group {group}",
            lambda: self._client.describe_consumer_groups([group], request_timeout=REQUEST_S)[group].result(AGAIN_S),
        )
        return set() if found is None else {member.member_id for member in found.members}

    def operations(self, group: str) -> frozenset[str] | None:
        """What our user may do with a group, as ``READ``; nothing: an empty set. None: the broker does not say."""
        found = self._result(f"ask for rights on group {group}", lambda: self._allowed(group))
        return found if found is None else frozenset(found)

    def _allowed(self, group: str) -> set[str] | None:
        """Raises what the client does, but for a group that we may not even ask about."""
        asked = self._client.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=REQUEST_S
        )[group]
        answer, error = attempt(lambda: asked.result(ASK_S))
        refused = of(error)
        if refused is not None and refused.name() == "GROUP_AUTHORIZATION_FAILED":
            return set()
        told = answer.authorized_operations if answer is not None else asked.result(0).authorized_operations
        return None if told is None else {operation.name for operation in told}

    def _result(self, doing: str, ask: Any) -> Any:
        """The answer; None when there is no such group."""
        ends_s = self._clock.monotonic_s() + PATIENCE_S
        while True:
            answer, error = attempt(ask)
            kafka_error = of(error)
            if kafka_error is not None and kafka_error.name() in _NO_GROUP:
                return None
            if error is None:
                return answer
            raised = self._error(error, doing)
            # The first group of a broker waits for a topic to be made, and each for its coordinator.
            if not isinstance(raised, BrokerUnreachable) or self._clock.monotonic_s() > ends_s:
                raise raised
            self._clock.wait(threading.Event(), _AGAIN_S)

    def _error(self, error: object, doing: str) -> TailraceError:
        attempt(lambda: self._client.poll(0))
        if isinstance(error, TimeoutError):
            return unreachable(doing, None, self._events, servers=self._servers)
        return translate(error, doing=doing, uncertain=False, events=self._events, servers=self._servers)


class GroupDealing:
    """Who has which partitions of one group, asked without waiting."""

    def __init__(self, kafka: Kafka, group: str, *, clock: Clock | None = None) -> None:
        self._group = group
        self._clock = clock or SystemClock()
        self._asked_s = 0.0
        events = ClientEvents()
        config: dict[str, Any] = {
            **options.admin_options(kafka, client_id=f"{group}.dealing"),
            "error_cb": events.on_error,
            "logger": events,
        }
        self._client = construct(lambda: AdminClient(config), kafka.options)
        self._asked: Future[Any] | None = None

    def look(self) -> Dealt | None:
        """What the coordinator answered to an earlier call, once; None while it has not. Errors are no answer."""
        attempt(lambda: self._client.poll(0))
        now_s = self._clock.monotonic_s()
        if self._asked is None or now_s - self._asked_s > ASK_S:
            self._asked_s = now_s
            self._asked = self._client.describe_consumer_groups([self._group], request_timeout=REQUEST_S)[self._group]
        if not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        found, _ = attempt(lambda: asked.result(0))
        return None if found is None else dealt_of(found)


def dealt_of(found: Any) -> Dealt:
    """What the description of a group says of its members."""
    owners = [
        Owner(
            one.member_id,
            one.group_instance_id or "",
            frozenset((place.topic, place.partition) for place in one.assignment.topic_partitions),
        )
        for one in found.members
    ]
    return Dealt(found.state is ConsumerGroupState.STABLE, frozenset(owners))


class GroupOffsets:
    """How far one group is; see `sinks.reach.Offsets`."""

    def __init__(self, kafka: Kafka, group: str) -> None:
        self._admin = GroupAdmin(kafka)
        self._group = group

    def committed(self, partitions: Iterable[Place]) -> dict[Place, int]:
        """The offset each partition is to be read on from; none for one that was never committed.

        Raises BrokerUnreachable, BrokerRefused.
        """
        known = self._admin.committed(self._group)
        return {place: known[place].offset for place in partitions if place in known}

    def close(self) -> None:
        """The client ends with its last use."""


def committed_offsets(kafka: Kafka, group: str) -> dict[Place, Committed]:
    """As `GroupAdmin.committed`, once."""
    return GroupAdmin(kafka).committed(group)
