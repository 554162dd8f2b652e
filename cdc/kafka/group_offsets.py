"""Reads and writes the offsets of a consumer group, and lists its members, without being a member.

Two defects of librdkafka 2.16 shape this module. An admin client that knew a group's coordinator never gets another
answer about groups once the broker was restarted, so a new client asks again what has no answer. And an admin client
that asks for offsets crashes the process while the coordinator moves (it has no group of its own to update), so a
consumer that joins nothing reads and writes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Kafka
from cdc.errors import BrokerUnreachable, TailraceError
from cdc.kafka import client_options
from cdc.kafka.client_errors import attempt, construct, of, translate, unreachable
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.cluster_facts import AssignedMember, GroupAssignment
from cdc.kafka.cluster_facts import TopicPartition as Place
from cdc.kafka.group_member import CommittedOffset

REQUEST_S: Final = 3000.0
"""When the client itself gives up a request. Long, because that ends the whole process now and then: a request for a
group's coordinator that times out while a broker restarts fails an assertion of librdkafka 2.16
(https://github.com/confluentinc/librdkafka/issues/4605). We stop waiting after AGAIN_S, and drop the client."""

AGAIN_S: Final = 5.0
"""A question that has no answer by then is asked again, by a new client."""

PATIENCE_S: Final = 20.0
"""After this long without an answer BrokerUnreachable is raised."""

_PAUSE_S: Final = 0.2
_NO_GROUP: Final = frozenset({"GROUP_ID_NOT_FOUND"})


class GroupAdmin:
    """Asks about groups. Connects when it is first asked. Raises BrokerUnreachable, BrokerRefused."""

    def __init__(self, kafka: Kafka, *, client_id: str = "tailrace-groups", clock: Clock | None = None) -> None:
        """Raises ConfigError."""
        self._kafka = kafka
        self._clock = clock or SystemClock()
        self._admin = _Admin(kafka, client_id)

    def committed(self, group: str, places: Iterable[Place]) -> dict[Place, CommittedOffset]:
        """Of each of these partitions that has an offset; empty for a group that does not exist."""
        with closing(GroupOffsets(self._kafka, group, clock=self._clock)) as offsets:
            return offsets.found(places)

    def alter(self, group: str, offsets: Mapping[Place, CommittedOffset]) -> None:
        """Write offsets of a group without members; with members the broker refuses."""
        with closing(GroupOffsets(self._kafka, group, clock=self._clock)) as writer:
            writer.alter(offsets)

    def delete(self, group: str) -> None:
        """Have the broker forget a group without members; nothing when there is none."""
        self._result(
            f"delete group {group}",
            lambda client: client.delete_consumer_groups([group], request_timeout=REQUEST_S)[group].result(AGAIN_S),
        )

    def members(self, group: str) -> set[str]:
        """Ids of those that are in a group now."""
        found = self._result(
            f"ask who is in group {group}",
            lambda client: client.describe_consumer_groups([group], request_timeout=REQUEST_S)[group].result(AGAIN_S),
        )
        return set() if found is None else {member.member_id for member in found.members}

    def operations(self, group: str) -> frozenset[str] | None:
        """What our user may do with a group, as ``READ``; nothing: an empty set. None: the broker does not say."""
        found = self._result(f"ask for rights on group {group}", lambda client: _allowed(client, group))
        return found if found is None else frozenset(found)

    def _result(self, doing: str, ask: Callable[[AdminClient], Any]) -> Any:
        """The answer; None when there is no such group."""
        ends_s = self._clock.monotonic_s() + PATIENCE_S
        while True:
            answer, error = attempt(lambda: ask(self._admin.client))
            if error is None:
                return answer
            kafka_error = of(error)
            if kafka_error is not None and kafka_error.name() in _NO_GROUP:
                return None
            raised = self._admin.error(error, doing)
            # The first group of a broker waits for a topic to be made, and each for its coordinator.
            if not isinstance(raised, BrokerUnreachable) or self._clock.monotonic_s() > ends_s:
                raise raised
            self._admin.renew()
            self._clock.wait(threading.Event(), _PAUSE_S)


class GroupAssignmentReader:
    """Which members have which partitions of one group, asked without waiting."""

    def __init__(self, kafka: Kafka, group: str, *, clock: Clock | None = None) -> None:
        """Raises ConfigError."""
        self._group = group
        self._clock = clock or SystemClock()
        self._asked_s = 0.0
        self._admin = _Admin(kafka, f"{group}.dealing")
        self._asked: Future[Any] | None = None

    def look(self) -> GroupAssignment | None:
        """What the coordinator answered to an earlier call, once; None while it has not. Errors are no answer."""
        attempt(lambda: self._admin.client.poll(0))
        now_s = self._clock.monotonic_s()
        if self._asked is not None and not self._asked.done() and now_s - self._asked_s > AGAIN_S:
            self._asked = None
            self._admin.renew()
        if self._asked is None:
            self._asked_s = now_s
            asking = self._admin.client.describe_consumer_groups([self._group], request_timeout=REQUEST_S)
            self._asked = asking[self._group]
        if not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        found, error = attempt(lambda: asked.result(0))
        if error is not None:
            self._admin.renew()
        return None if found is None else dealt_of(found)


class GroupOffsets:
    """Reads the offsets of one group without joining it (`sinks.operate.applied_lsn.Offsets`). One thread.

    Raises BrokerUnreachable, BrokerRefused.
    """

    def __init__(self, kafka: Kafka, group: str, *, clock: Clock | None = None) -> None:
        """No connection is made yet. Raises ConfigError."""
        self._clock = clock or SystemClock()
        self._events = ClientEvents()
        self._servers = kafka.bootstrap
        self._group = group
        config: dict[str, Any] = {
            **client_options.offsets_options(kafka, group=group),
            "error_cb": self._events.on_error,
            "logger": self._events,
        }
        self._consumer = construct(lambda: Consumer(config), kafka.options)

    def committed(self, partitions: Iterable[Place]) -> dict[Place, int]:
        """The offset each partition is to be read on from; none for one that was never committed."""
        return {place: one.offset for place, one in self.found(partitions).items()}

    def found(self, partitions: Iterable[Place]) -> dict[Place, CommittedOffset]:
        """The same, with what was written beside each."""
        asked = [TopicPartition(*place) for place in partitions]
        if not asked:
            return {}
        doing = f"read the offsets of group {self._group}"
        answer = self._answer(doing, lambda: self._consumer.committed(asked, AGAIN_S))
        return {
            (one.topic, one.partition): CommittedOffset(one.offset, one.metadata or "")
            for one in answer
            if one.offset >= 0
        }

    def alter(self, offsets: Mapping[Place, CommittedOffset]) -> None:
        """Write offsets; the broker refuses while the group has members."""
        wanted = [TopicPartition(*place, one.offset, one.metadata) for place, one in offsets.items()]
        if wanted:
            doing = f"write the offsets of group {self._group}"
            self._answer(doing, lambda: self._consumer.commit(offsets=wanted, asynchronous=False) or [])

    def close(self) -> None:
        """End the connections. May be called twice."""
        attempt(self._consumer.close)

    def _answer(self, doing: str, ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
        ends_s = self._clock.monotonic_s() + PATIENCE_S
        while True:
            answer, error = attempt(ask)
            errors = [error] if error is not None else [one.error for one in answer or [] if one.error is not None]
            if not errors:
                return answer or []
            attempt(lambda: self._consumer.poll(0))  # so that the events are here
            raised = translate(errors[0], doing=doing, events=self._events, servers=self._servers)
            # The first group of a broker waits for a topic to be made, and each for its coordinator.
            if not isinstance(raised, BrokerUnreachable) or self._clock.monotonic_s() > ends_s:
                raise raised
            self._clock.wait(threading.Event(), _PAUSE_S)


class _Admin:
    """An admin client that can be replaced."""

    def __init__(self, kafka: Kafka, client_id: str) -> None:
        self._kafka = kafka
        self._client_id = client_id
        self.renew()

    def renew(self) -> None:
        """Drop the client, with the requests that wait in it, for a new one. Raises ConfigError."""
        self._events = events = ClientEvents()
        config: dict[str, Any] = {
            **client_options.admin_options(self._kafka, client_id=self._client_id),
            "error_cb": events.on_error,
            "logger": events,
        }
        self.client = construct(lambda: AdminClient(config), self._kafka.options)

    def error(self, error: object, doing: str) -> TailraceError:
        """The error of our tree for what a request of the client came to."""
        attempt(lambda: self.client.poll(0))
        servers = self._kafka.bootstrap
        if isinstance(error, TimeoutError):
            return unreachable(doing, None, self._events, servers=servers)
        return translate(error, doing=doing, events=self._events, servers=servers)


def dealt_of(found: Any) -> GroupAssignment:
    """What the description of a group says of its members."""
    owners = [
        AssignedMember(
            one.member_id,
            one.group_instance_id or "",
            frozenset((place.topic, place.partition) for place in one.assignment.topic_partitions),
        )
        for one in found.members
    ]
    return GroupAssignment(found.state is ConsumerGroupState.STABLE, frozenset(owners))


def _allowed(client: AdminClient, group: str) -> set[str] | None:
    """Raises what the client does, but for a group that we may not even ask about."""
    asked = client.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=REQUEST_S)
    answer, error = attempt(lambda: asked[group].result(AGAIN_S))
    refused = of(error)
    if refused is not None and refused.name() == "GROUP_AUTHORIZATION_FAILED":
        return set()
    told = answer.authorized_operations if answer is not None else asked[group].result(0).authorized_operations
    return None if told is None else {operation.name for operation in told}
