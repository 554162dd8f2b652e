"""Reads and writes the offsets of a consumer group, and lists its members, without joining it.

Two defects of librdkafka 2.16 shape this module. After a restart of the broker, an admin client that knew the
coordinator never gets another answer about groups; therefore a new client repeats unanswered requests. And an admin
client that requests offsets crashes the process while the coordinator moves, because it has no group of its own to
update; therefore a consumer that never joins reads and writes offsets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka import TopicPartition as PartitionOffset
from confluent_kafka.admin import AdminClient

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Kafka
from cdc.errors import BrokerUnreachable, TailraceError
from cdc.kafka import client_options
from cdc.kafka.callbacks import callbacks
from cdc.kafka.client_errors import attempt, kafka_error_in, translate, unreachable
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.cluster_facts import AssignedMember, GroupAssignment, TopicPartition
from cdc.kafka.group_member import CommittedOffset
from cdc.kafka.sasl_rotation import create

REQUEST_S: Final = 3000.0
"""Timeout inside the client. Long, because such a timeout can end the process: a coordinator request that times out
while a broker restarts fails an assertion of librdkafka 2.16
(https://github.com/confluentinc/librdkafka/issues/4605). Callers stop waiting after AGAIN_S and drop the client."""

AGAIN_S: Final = 5.0
"""A request without an answer by then is repeated by a new client."""

PATIENCE_S: Final = 20.0
"""BrokerUnreachable is raised after this time without an answer."""

_PAUSE_S: Final = 0.2
_NO_GROUP: Final = frozenset({"GROUP_ID_NOT_FOUND"})


class GroupAdmin:
    """Reads and changes groups. Connects at the first request. Raises BrokerUnreachable, BrokerRefused."""

    def __init__(self, kafka: Kafka, *, client_id: str = "tailrace-groups", clock: Clock | None = None) -> None:
        """Raises ConfigError."""
        self._kafka = kafka
        self._clock = clock or SystemClock()
        self._admin = _Admin(kafka, client_id)

    def committed(self, group: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offset of each partition that has one; empty for a group that does not exist."""
        with closing(GroupOffsets(self._kafka, group, clock=self._clock)) as offsets:
            return offsets.found(places)

    def alter(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Write offsets of a group without members; the broker refuses while it has members."""
        with closing(GroupOffsets(self._kafka, group, clock=self._clock)) as writer:
            writer.alter(offsets)

    def delete(self, group: str) -> None:
        """Delete a group without members, if it exists."""
        self._result(
            f"delete group {group}",
            lambda client: client.delete_consumer_groups([group], request_timeout=REQUEST_S)[group].result(AGAIN_S),
        )

    def members(self, group: str) -> set[str]:
        """Return the ids of the current members of a group."""
        found = self._result(
            f"list the members of group {group}",
            lambda client: client.describe_consumer_groups([group], request_timeout=REQUEST_S)[group].result(AGAIN_S),
        )
        return set() if found is None else {member.member_id for member in found.members}

    def operations(self, group: str) -> frozenset[str] | None:
        """Return the operations that our user may perform on a group, for example ``READ``; None if unknown."""
        found = self._result(f"read the rights on group {group}", lambda client: _allowed(client, group))
        return found if found is None else frozenset(found)

    def _result(self, doing: str, ask: Callable[[AdminClient], Any]) -> Any:
        """Return the answer; None if the group does not exist."""
        ends_s = self._clock.monotonic_s() + PATIENCE_S
        while True:
            answer, error = attempt(lambda: ask(self._admin.client))
            if error is None:
                return answer
            kafka_error = kafka_error_in(error)
            if kafka_error is not None and kafka_error.name() in _NO_GROUP:
                return None
            raised = self._admin.error(error, doing)
            # The first group of a broker waits for the offsets topic, and every group for its coordinator.
            if not isinstance(raised, BrokerUnreachable) or self._clock.monotonic_s() > ends_s:
                raise raised
            self._admin.renew()
            self._clock.wait(threading.Event(), _PAUSE_S)


class GroupAssignmentReader:
    """Reads which member of a group has which partitions, without blocking."""

    def __init__(self, kafka: Kafka, group: str, *, clock: Clock | None = None) -> None:
        """Raises ConfigError."""
        self._group = group
        self._clock = clock or SystemClock()
        self._asked_s = 0.0
        self._admin = _Admin(kafka, f"{group}.dealing")
        self._asked: Future[Any] | None = None

    def look(self) -> GroupAssignment | None:
        """Return the answer to an earlier request, once; None while there is none, also after an error."""
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
            **callbacks(kafka, self._events),
        }
        self._consumer = create(Consumer, config, kafka, self._events)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition; partitions without one are left out."""
        return {place: one.offset for place, one in self.found(partitions).items()}

    def found(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offset and its metadata of each partition that has one."""
        asked = [PartitionOffset(*place) for place in partitions]
        if not asked:
            return {}
        doing = f"read the offsets of group {self._group}"
        answer = self._answer(doing, lambda: self._consumer.committed(asked, AGAIN_S))
        return {
            (one.topic, one.partition): CommittedOffset(one.offset, one.metadata or "")
            for one in answer
            if one.offset >= 0
        }

    def alter(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Write offsets; the broker refuses while the group has members."""
        wanted = [PartitionOffset(*place, one.offset, one.metadata) for place, one in offsets.items()]
        if wanted:
            doing = f"write the offsets of group {self._group}"
            self._answer(doing, lambda: self._consumer.commit(offsets=wanted, asynchronous=False) or [])

    def close(self) -> None:
        """End the connections. May be called twice."""
        attempt(self._consumer.close)

    def _answer(self, doing: str, ask: Callable[[], list[PartitionOffset]]) -> list[PartitionOffset]:
        ends_s = self._clock.monotonic_s() + PATIENCE_S
        while True:
            answer, error = attempt(ask)
            errors = [error] if error is not None else [one.error for one in answer or [] if one.error is not None]
            if not errors:
                return answer or []
            attempt(lambda: self._consumer.poll(0))  # delivers pending events
            raised = translate(errors[0], doing=doing, events=self._events, servers=self._servers)
            # The first group of a broker waits for the offsets topic, and every group for its coordinator.
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
        """Replace the client; requests that wait in the old one are dropped. Raises ConfigError."""
        self._events = events = ClientEvents()
        config: dict[str, Any] = {
            **client_options.admin_options(self._kafka, client_id=self._client_id),
            **callbacks(self._kafka, events),
        }
        self.client = create(AdminClient, config, self._kafka, events)

    def error(self, error: object, doing: str) -> TailraceError:
        """Return the error of our tree for a failed request of the client."""
        attempt(lambda: self.client.poll(0))
        servers = self._kafka.bootstrap
        if isinstance(error, TimeoutError):
            return unreachable(doing, None, self._events, servers=servers)
        return translate(error, doing=doing, events=self._events, servers=servers)


def dealt_of(found: Any) -> GroupAssignment:
    """Convert the description of a group."""
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
    """Return the allowed operations, an empty set if describing the group is forbidden. Raises the client's errors."""
    asked = client.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=REQUEST_S)
    answer, error = attempt(lambda: asked[group].result(AGAIN_S))
    refused = kafka_error_in(error)
    if refused is not None and refused.name() == "GROUP_AUTHORIZATION_FAILED":
        return set()
    allowed = answer.authorized_operations if answer is not None else asked[group].result(0).authorized_operations
    return None if allowed is None else {operation.name for operation in allowed}
