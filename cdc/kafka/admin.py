"""Describes and creates topics and describes the cluster, hundreds of topics in a request.

Reports settings as they are; `cdc.publish.topic_setup` decides what they should be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Kafka
from cdc.errors import BrokerRefused, TailraceError, TopicMissing
from cdc.kafka import client_options
from cdc.kafka.callbacks import callbacks
from cdc.kafka.client_errors import MISSING, T, attempt, guarded, kafka_error_in, translate, unreachable
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.cluster_facts import READ_CONFIGS, BrokerFacts, TopicFacts, TopicSpec
from cdc.kafka.leaderless import no_leader
from cdc.kafka.sasl_rotation import create

BROKER_CONFIGS: Final = frozenset({"message.max.bytes", "transaction.max.timeout.ms", "min.insync.replicas"})
# Kafka refuses a request that creates more than 10,000 records in its metadata log (`MAX_RECORDS_PER_USER_OP` of
# QuorumController): one for each topic, partition and setting. Kafka 4.3.1 refused 2,003 topics of 1 partition.
CREATE_RECORDS_MAX: Final = 9_000
# The client makes an object for each of the forty settings of a topic: 350,000 of them for 10,000 topics in one request
# take more memory than all else in capture.
DESCRIBE_TOPICS_MAX: Final = 500
VISIBLE_WAIT_S: Final = 0.03  # between checks for a topic that was just created
# After its creation, not every broker may know a topic. It takes milliseconds, but more than 10 seconds on three busy
# brokers with 40,000 partitions (2026-11-29).
SPREAD_S: Final = 60.0
CHECK_S: Final = 0.2  # how often a wait for an answer checks the client's events
REFUSAL_S: Final = 1.0  # a refusal must last this long: another broker of the list may still accept the client
ANSWER_GRACE_S: Final = 2.0  # librdkafka times a request out by itself; this is the limit if it does not

R = TypeVar("R")


class TopicAdmin:
    """The admin client. Thread-safe. `timeout_s` limits one call; BrokerUnreachable is raised after it."""

    def __init__(self, kafka: Kafka, *, client_id: str = "tailrace-admin", clock: Clock | None = None) -> None:
        """Raises ConfigError for options that librdkafka does not accept. Makes no connection yet."""
        self._clock = clock or SystemClock()
        self._events = ClientEvents()
        self._servers = kafka.bootstrap
        self._created_s: dict[str, float] = {}
        config: dict[str, Any] = {
            **client_options.admin_options(kafka, client_id=client_id),
            **callbacks(kafka, self._events),
        }
        self._client = create(AdminClient, config, kafka, self._events)

    def describe(self, topics: Iterable[str], *, timeout_s: float = 30.0) -> dict[str, TopicFacts | None]:
        """Return the facts of each topic, None for one that does not exist. Two requests for 500 topics.

        `timeout_s` limits each request. A topic that this client has just created is waited for: each request may be
        answered by another broker, which learns of the topic a moment later.
        """
        found = self._described(topics, timeout_s)
        while young := [name for name, facts in found.items() if facts is None and self._is_young(name)]:
            self._clock.wait(threading.Event(), VISIBLE_WAIT_S)
            found |= self._described(young, timeout_s)
        return found

    def create(self, specs: Sequence[TopicSpec], *, timeout_s: float = 300.0) -> None:
        """Create topics, about a thousand in one request, and wait until all of them can be described.

        This can take minutes: a loaded broker creates 10 to 20 partitions per second (measured 2026-11-21, 2 cores).

        Existing topics stay unchanged. Raises for the first topic that the broker refuses (TopicMismatch for a name,
        BrokerRefused for a setting or a right); the others are created nevertheless.
        """
        failures = [failure for batch in _batches(specs) for failure in self._create(batch, timeout_s)]
        if failures:
            raise failures[0]
        self._wait_visible([spec.topic for spec in specs], timeout_s)
        self._created_s.update(dict.fromkeys((spec.topic for spec in specs), self._clock.monotonic_s()))

    def delete_records(self, partition: tuple[str, int], before: int, *, timeout_s: float = 30.0) -> None:
        """Remove the records of a partition below an offset. Raises BrokerUnreachable, BrokerRefused."""
        doing, (topic, index) = "delete records", partition
        wanted = [TopicPartition(topic, index, before)]
        asked = self._call(doing, lambda: self._client.delete_records(wanted, request_timeout=timeout_s))
        for future in asked.values():
            self._result(doing, future, timeout_s, topic=topic)

    def written_to(self, partition: tuple[str, int], *, timeout_s: float = 30.0) -> int:
        """Return the offset behind the last record, of open transactions too. `LogReader` reads only committed ones.

        Raises BrokerUnreachable, BrokerRefused, TopicMissing.
        """
        doing, (topic, index) = "read the end of a partition", partition
        wanted = {TopicPartition(topic, index): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        level = IsolationLevel.READ_UNCOMMITTED
        asked = self._call(
            doing, lambda: self._client.list_offsets(wanted, isolation_level=level, request_timeout=timeout_s)
        )
        (future,) = asked.values()
        _, error = attempt(lambda: self._await(doing, future, timeout_s + ANSWER_GRACE_S))
        refused = kafka_error_in(error)
        if refused is not None and refused.name() == "_NOENT":
            raise no_leader(doing, [partition])
        found = self._result(doing, future, timeout_s, topic=topic)
        if found is None:
            raise TopicMissing(f"topic {topic!r} has no partition {index}", topic=topic)
        return int(found.offset)

    def operations(self, topics: Sequence[str], *, timeout_s: float = 30.0) -> dict[str, frozenset[str]]:
        """Return the operations that our user may perform on each topic, for example ``WRITE``.

        A topic that our user may not even describe has an empty set; it may not exist. Topics that do not exist, and
        those whose operations the broker does not report, are left out. Raises BrokerUnreachable, BrokerRefused.
        """
        doing = "read the rights on topics"
        asked = self._call(
            doing,
            lambda: self._client.describe_topics(
                TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout_s
            ),
        )
        found: dict[str, frozenset[str]] = {}
        for name, future in asked.items():
            _, error = attempt(lambda: self._await(doing, future, timeout_s + ANSWER_GRACE_S))  # noqa: B023 - now
            refused = kafka_error_in(error)
            if refused is not None and refused.name() == "TOPIC_AUTHORIZATION_FAILED":
                found[name] = frozenset()
                continue
            one = self._result(doing, future, timeout_s, topic=name)
            if one is not None and one.authorized_operations is not None:
                found[name] = frozenset(operation.name for operation in one.authorized_operations)
        return found

    def broker_facts(self, *, timeout_s: float = 30.0) -> BrokerFacts:
        """Return the id of the cluster, its number of brokers, and the limits of one broker if our ACLs allow it."""
        doing = "describe the cluster"
        asked = self._call(doing, lambda: self._client.describe_cluster(request_timeout=timeout_s))
        cluster = self._result(doing, asked, timeout_s)
        if cluster is None:
            raise unreachable(doing, None, self._events, servers=self._servers)
        try:
            configs = self._configs(ResourceType.BROKER, [str(cluster.nodes[0].id)], BROKER_CONFIGS, timeout_s)
        except BrokerRefused:
            configs = {}
        return BrokerFacts(
            cluster_id=cluster.cluster_id,
            broker_count=len(cluster.nodes),
            configs=next(iter(configs.values()), {}),
        )

    def _is_young(self, topic: str) -> bool:
        created_s = self._created_s.get(topic)
        return created_s is not None and self._clock.monotonic_s() - created_s < SPREAD_S

    def _described(self, topics: Iterable[str], timeout_s: float) -> dict[str, TopicFacts | None]:
        found: dict[str, TopicFacts | None] = {}
        for names in _parts(list(dict.fromkeys(topics))):
            descriptions = self._descriptions(names, timeout_s)
            there = [name for name, description in descriptions.items() if description is not None]
            configs = self._configs(ResourceType.TOPIC, there, READ_CONFIGS, timeout_s)
            found |= {
                name: None if description is None or name not in configs else _facts(name, description, configs[name])
                for name, description in descriptions.items()
            }
        return found

    def _create(self, specs: Sequence[TopicSpec], timeout_s: float) -> Iterator[TailraceError]:
        """Send one request; yields the refusals."""
        doing = "create the topic"
        wanted = [
            NewTopic(spec.topic, spec.partition_count, spec.replication_factor, config=dict(spec.configs))
            for spec in specs
        ]
        asked = self._call(
            doing,
            lambda: self._client.create_topics(wanted, operation_timeout=timeout_s, request_timeout=timeout_s),
        )
        for name, future in asked.items():
            _, error = attempt(lambda: future.result(timeout_s + ANSWER_GRACE_S))  # noqa: B023 - called at once
            kafka_error = kafka_error_in(error)
            if error is not None and (kafka_error is None or kafka_error.name() != "TOPIC_ALREADY_EXISTS"):
                yield self._error(error, doing, topic=name)

    def _configs(
        self, kind: ResourceType, names: Sequence[str], wanted: Iterable[str], timeout_s: float
    ) -> dict[str, dict[str, str]]:
        """Return settings by resource; a topic that was deleted meanwhile is left out."""
        doing = "read settings"
        if not names:
            return {}
        resources = [ConfigResource(kind, name) for name in names]
        asked = self._call(doing, lambda: self._client.describe_configs(resources, request_timeout=timeout_s))
        found: dict[str, dict[str, str]] = {}
        for resource, future in asked.items():
            entries = self._result(doing, future, timeout_s, topic=resource.name)
            if entries is not None:
                found[resource.name] = {key: entries[key].value for key in wanted if key in entries}
        return found

    def _descriptions(self, names: Sequence[str], timeout_s: float) -> dict[str, Any]:
        """Return the client's `TopicDescription` by topic, None for one that does not exist."""
        doing = "describe topics"
        if not names:
            return {}
        asked = self._call(
            doing, lambda: self._client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        )
        return {name: self._result(doing, future, timeout_s, topic=name) for name, future in asked.items()}

    def _wait_visible(self, topics: Sequence[str], timeout_s: float) -> None:
        """Wait until a broker knows the new topics; `timeout_s` limits the time without progress."""
        never = threading.Event()
        deadline_s = self._clock.monotonic_s() + timeout_s
        missing = list(topics)
        while True:
            unknown = [
                name
                for names in _parts(missing)
                for name, found in self._descriptions(names, timeout_s).items()
                if found is None
            ]
            if not unknown:
                return
            if len(unknown) < len(missing):
                deadline_s = self._clock.monotonic_s() + timeout_s
            elif self._clock.monotonic_s() > deadline_s:
                doing = f"see {len(unknown)} new topics ({unknown[0]})"
                raise unreachable(doing, None, self._events, servers=self._servers)
            missing = unknown
            self._clock.wait(never, VISIBLE_WAIT_S)

    def _result(self, doing: str, future: Future[R], timeout_s: float, **about: object) -> R | None:
        """Return the answer of the broker; None when it does not know the topic."""
        result, error = attempt(lambda: self._await(doing, future, timeout_s + ANSWER_GRACE_S))
        kafka_error = kafka_error_in(error)
        if isinstance(error, TailraceError):
            raise error
        if kafka_error is not None and kafka_error.name() in MISSING:
            return None
        if error is not None:
            raise self._error(error, doing, **about) from (error if isinstance(error, BaseException) else None)
        return result

    def _await(self, doing: str, future: Future[R], timeout_s: float) -> R:
        """Return the result of the future; gives up early when only an operator can fix the connection."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        refused_s: float | None = None
        while True:
            try:
                return future.result(CHECK_S)
            except TimeoutError:
                now_s = self._clock.monotonic_s()
                if now_s > deadline_s:
                    raise
            attempt(lambda: self._client.poll(0))  # delivers pending error events
            if self._events.refusal() is not None:
                refused_s = now_s if refused_s is None else refused_s
                if now_s - refused_s > REFUSAL_S:
                    raise unreachable(doing, None, self._events, servers=self._servers)

    def _call(self, doing: str, call: Callable[[], T]) -> T:
        return guarded(call, lambda error: self._error(error, doing))

    def _error(self, error: object, doing: str, **about: object) -> TailraceError:
        attempt(lambda: self._client.poll(0))  # delivers pending error events
        if isinstance(error, TimeoutError):
            return unreachable(doing, None, self._events, servers=self._servers, **about)
        return translate(error, doing=doing, uncertain=False, events=self._events, servers=self._servers, **about)


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[first : first + DESCRIBE_TOPICS_MAX] for first in range(0, len(names), DESCRIBE_TOPICS_MAX))


def _batches(specs: Sequence[TopicSpec]) -> Iterator[list[TopicSpec]]:
    """Divide topics into requests that the controller accepts."""
    batch: list[TopicSpec] = []
    record_count = 0
    for spec in specs:
        needed = 1 + spec.partition_count + len(spec.configs)
        if batch and record_count + needed > CREATE_RECORDS_MAX:
            yield batch
            batch, record_count = [], 0
        batch.append(spec)
        record_count += needed
    if batch:
        yield batch


def _facts(topic: str, description: Any, configs: Mapping[str, str]) -> TopicFacts:
    """Convert a `TopicDescription`. Its id is standard base64; Kafka's own tools print the URL-safe form."""
    return TopicFacts(
        topic=topic,
        topic_id=str(description.topic_id).translate(_URL_SAFE),
        partition_count=len(description.partitions),
        replication_factor=min(len(partition.replicas) for partition in description.partitions),
        configs=configs,
        offline=sum(partition.leader is None for partition in description.partitions),
    )


_URL_SAFE: Final = str.maketrans("+/", "-_")
