"""A member of a consumer group: which partitions are ours, their committed records, and how far we are.

Owns one librdkafka consumer. Partitions come and go cooperatively (KIP-429): those that stay are read on meanwhile.
Whoever is told is a `Membership`, called inside `poll`, and only there. Offsets are committed when asked for, never by
themselves. Knows no format, and nothing of what is done with a record.

The classic protocol is the default, since every broker has it; ``kafka.options.group.protocol = "consumer"`` is the
one of Kafka 4 (KIP-848), whose timeouts are the broker's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Kafka
from cdc.errors import BrokerUnreachable, MemberDropped, ProducerFenced, SinkGap, TailraceError, TopicMissing
from cdc.kafka import client_options, cluster_facts
from cdc.kafka.client_errors import TRUNCATED, T, attempt, construct, guarded, of, translate
from cdc.kafka.client_events import ClientEvents
from cdc.model.change_records import Headers

Place: TypeAlias = cluster_facts.TopicPartition

FETCH_AHEAD_BYTES: Final = 8 << 20  # fetched and not asked for yet; the runner holds more, by its own bounds
BATCH_RECORDS_MAX: Final = 2_000
ASK_S: Final = 30.0  # for offsets while an assignment begins
CLOSE_S: Final = 10.0
DISTURBED_S: Final = 90.0
"""So soon after a failed connection or a session that timed out, a refused instance id says nothing of a rival."""

_SEEK_AGAIN_S: Final = 0.05
_ASK_AGAIN_S: Final = 0.1
_LATEST: Final = -1
_EARLIEST: Final = -2
# The group went on without us: what we would have committed is done again by whoever has the partition now.
_GONE: Final = frozenset(
    {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH"}
)
_SAME_INSTANCE: Final = frozenset({"FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID"})


class CommittedOffset(NamedTuple):
    """What the group has committed for a partition: the offset to read on from, and what was written beside it."""

    offset: int
    metadata: str


class PartitionStart(NamedTuple):
    """A partition that is ours from now on; `committed` is None when nobody ever was.

    `low` is the first offset there is, `high` the one after the last committed record.
    """

    committed: CommittedOffset | None
    low: int
    high: int


class Membership(Protocol):
    """Told what becomes of partitions, in the thread that polls. What it raises comes out of that call."""

    def assigned(self, places: Mapping[Place, PartitionStart]) -> Mapping[Place, int]:
        """These are ours now. Returns where to read each of them from."""

    def revoked(self, places: Sequence[Place]) -> None:
        """These go to somebody else as soon as this returns; offsets may be committed until then."""

    def lost(self, places: Sequence[Place]) -> None:
        """These are somebody else's already: nothing of them may be committed."""


class PollResult(NamedTuple):
    """Records in order per partition, and ends: nothing committed lies between a partition's records and its end."""

    records: list[cluster_facts.LogRecord]
    ends: dict[Place, int]


class GroupConsumer:
    """One member of a group. Every call from one thread. `close` leaves the group, unless it has an instance id."""

    def __init__(
        self,
        kafka: Kafka,
        group: str,
        membership: Membership,
        *,
        instance: str = "",
        clock: Clock | None = None,
        ahead_bytes: int = FETCH_AHEAD_BYTES,
    ) -> None:
        """No connection is made yet. `instance`: a name that stays ours over restarts (static membership).

        Raises ConfigError for options nobody takes.
        """
        self._clock = clock or SystemClock()
        self._membership = membership
        self._events = ClientEvents(self._clock)
        self._servers = kafka.bootstrap
        self._group = group
        self._failure: TailraceError | None = None
        self._instance = instance
        self._topics: list[str] = []
        self._mine: set[Place] = set()
        self._fresh: set[tuple[str | None, int | None]] = set()
        self._paused: set[Place] = set()
        config: dict[str, object] = {
            **client_options.group_options(kafka, group=group, instance=instance, ahead_bytes=ahead_bytes),
            "error_cb": self._events.on_error,
            "logger": self._events,
        }
        self._consumer = construct(lambda: Consumer(config), kafka.options)

    @property
    def member(self) -> str:
        """What the group calls us; empty before it does."""
        return guarded(lambda: self._consumer.memberid() or "", lambda error: self._error(error, "read the member id"))

    def subscribe(self, topics: Iterable[str]) -> None:
        """Take part in reading these topics from the next `poll` on."""
        self._topics = list(topics)
        self._call(
            "join the group",
            lambda: self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            ),
        )

    def rejoin(self) -> None:
        """Leave the group and come again, which deals all partitions anew; ours are revoked in a `poll` to come."""
        self._call("leave the group", self._consumer.unsubscribe)
        self.subscribe(self._topics)

    def poll(self, wait_s: float) -> PollResult:
        """What there is, after waiting up to `wait_s` for the first record; the membership is told meanwhile.

        Raises SinkGap when an offset is not in the log any more, ProducerFenced when another process has our
        instance id, BrokerRefused, TopicMismatch, and what the membership raised.
        """
        doing = "read records"
        polled = PollResult([], {})
        first = self._call(doing, lambda: self._consumer.poll(wait_s))
        self._raise_failure()
        if first is None:
            return polled
        self._fresh.clear()
        rest = self._call(doing, lambda: self._consumer.consume(BATCH_RECORDS_MAX - 1, 0))
        self._raise_failure()
        # A partition that came again meanwhile is read from another offset: what was there before is not of it.
        if (first.topic(), first.partition()) not in self._fresh:
            self._take(first, polled)
        for message in rest:
            self._take(message, polled)
        return polled

    def commit(self, positions: Mapping[Place, tuple[int, str]]) -> bool:
        """Make offsets durable, with what is to be written beside each. False: the group is being dealt anew.

        Then nothing was committed for sure, and some of it may belong to others by now. Raises BrokerUnreachable,
        BrokerRefused, ProducerFenced.
        """
        if not positions:
            return True
        wanted = [
            TopicPartition(topic, partition, offset, metadata)
            for (topic, partition), (offset, metadata) in positions.items()
        ]
        answer, error = attempt(lambda: self._consumer.commit(offsets=wanted, asynchronous=False))
        errors = [error] if error is not None else [one.error for one in answer or [] if one.error is not None]
        if not errors:
            return True
        kafka_error = of(errors[0])
        if kafka_error is not None and kafka_error.name() in _GONE:
            return False
        raise self._error(errors[0], "commit offsets")

    def pause(self, places: Iterable[Place]) -> None:
        """Fetch no more of these; what was fetched and not handed out is fetched again later."""
        wanted = [place for place in places if place in self._mine and place not in self._paused]
        if wanted:
            self._call("pause", lambda: self._consumer.pause([TopicPartition(*place) for place in wanted]))
            self._paused.update(wanted)

    def resume(self, places: Iterable[Place]) -> None:
        """Fetch these again."""
        wanted = [place for place in places if place in self._paused]
        if wanted:
            self._call("resume", lambda: self._consumer.resume([TopicPartition(*place) for place in wanted]))
            self._paused.difference_update(wanted)

    def seek(self, place: Place, offset: int) -> None:
        """Read on from `offset` in a partition of ours. Raises BrokerUnreachable when that does not take effect."""
        never = threading.Event()
        ends_s = self._clock.monotonic_s() + ASK_S
        while True:
            _, error = attempt(lambda: self._consumer.seek(TopicPartition(*place, offset)))
            if error is None:
                return
            kafka_error = of(error)
            # A partition that was just given to us is not being fetched yet.
            if kafka_error is None or kafka_error.name() not in {"_STATE", "_PREV_IN_PROGRESS"}:
                raise self._error(error, "seek", topic=place[0])
            if self._clock.monotonic_s() > ends_s:
                raise BrokerUnreachable(f"cannot read {place[0]}-{place[1]} from another offset", topic=place[0])
            self._clock.wait(never, _SEEK_AGAIN_S)

    def close(self) -> None:
        """Leave the group; the membership is told that its partitions are revoked. May be called twice."""
        attempt(self._consumer.close)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = [(one.topic, one.partition) for one in partitions]
        starts: Mapping[Place, int] = {}
        try:
            starts = self._membership.assigned(self._begins(consumer, places))
        except TailraceError as error:
            self._failure = error
        # Something has to be assigned: the client would do it by itself otherwise, from where it likes.
        wanted = [TopicPartition(*place, starts[place]) for place in places if place in starts]
        _, refused = attempt(lambda: consumer.incremental_assign(wanted))
        if refused is not None and self._failure is None:
            self._failure = self._error(refused, "take partitions")
        self._mine.update(starts)
        self._fresh.update(starts)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._leave(consumer, partitions, self._membership.revoked)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._leave(consumer, partitions, self._membership.lost)

    def _leave(
        self, consumer: Consumer, partitions: list[TopicPartition], tell: Callable[[Sequence[Place]], None]
    ) -> None:
        places = [(one.topic, one.partition) for one in partitions]
        try:
            tell([place for place in places if place in self._mine])
        except TailraceError as error:
            self._failure = self._failure or error
        paused = [TopicPartition(*place) for place in places if place in self._paused]
        if paused:
            attempt(lambda: consumer.resume(paused))  # librdkafka keeps it in mind over assignments
        attempt(lambda: consumer.incremental_unassign([one for one in partitions if self._has(one)]))
        self._mine.difference_update(places)
        self._paused.difference_update(places)

    def _has(self, one: TopicPartition) -> bool:
        return (one.topic, one.partition) in self._mine

    def _begins(self, consumer: Consumer, places: Sequence[Place]) -> dict[Place, PartitionStart]:
        if not places:
            return {}
        doing = "read committed offsets"
        asked = [TopicPartition(*place) for place in places]
        answer = self._call(doing, lambda: consumer.committed(asked, ASK_S))
        committed: dict[Place, CommittedOffset | None] = {}
        for one in answer:
            if one.error is not None:
                raise self._error(one.error, doing, topic=one.topic)
            found = CommittedOffset(one.offset, one.metadata or "") if one.offset >= 0 else None
            committed[(one.topic, one.partition)] = found
        low, high = self._offsets(consumer, places, _EARLIEST), self._offsets(consumer, places, _LATEST)
        return {place: PartitionStart(committed.get(place), low[place], high[place]) for place in places}

    def _offsets(self, consumer: Consumer, places: Sequence[Place], which: int) -> dict[Place, int]:
        doing = "read offsets"
        asked = [TopicPartition(*place, which) for place in places]
        ends_s = self._clock.monotonic_s() + ASK_S
        while True:
            answer, error = attempt(lambda: consumer.offsets_for_times(asked, ASK_S))
            errors = [error] if error is not None else [one.error for one in answer or [] if one.error is not None]
            if not errors:
                return {(one.topic, one.partition): one.offset for one in answer or []}
            raised = self._error(errors[0], doing)
            # A new partition has no leader yet, or an old one has another than this client knows, or none it knows.
            passing = isinstance(raised, (BrokerUnreachable, TopicMissing))
            if not passing or self._clock.monotonic_s() > ends_s:
                raise raised
            self._clock.wait(threading.Event(), _ASK_AGAIN_S)

    def _take(self, message: Message, polled: PollResult) -> None:
        error = message.error()
        if error is not None and error.name() != "_PARTITION_EOF":
            self._judge(error, message)
            return
        # A message has these unless it stands for an error of the client as a whole.
        place = (cast("str", message.topic()), cast("int", message.partition()))
        offset = cast("int", message.offset())
        if place not in self._mine:
            return
        if error is not None:
            polled.ends[place] = offset
            return
        polled.ends.pop(place, None)
        headers = cast("Headers | None", message.headers())  # the stub allows what a deserializing consumer has
        polled.records.append((*place, offset, message.timestamp()[1], message.key(), message.value(), headers))

    def _judge(self, error: KafkaError, message: Message) -> None:
        """Raise what time does not mend; the rest librdkafka retries by itself."""
        name, topic, partition = error.name(), message.topic(), message.partition()
        if name in TRUNCATED:
            raise SinkGap(
                f"{topic}-{partition} does not have the offset that group {self._group} must read next",
                hint="records are gone that the sink has not read: repair topic and sink by `cdc verify SINK --repair`",
                topic=topic,
                partition=partition,
            )
        raised = self._error(error, "read records", **({} if topic is None else {"topic": topic}))
        if raised.retry != "timed" or isinstance(raised, MemberDropped):  # this client gets nothing more
            raise raised

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _call(self, doing: str, call: Callable[[], T]) -> T:
        return guarded(call, lambda error: self._error(error, doing))

    def _error(self, error: object, doing: str, **about: object) -> TailraceError:
        kafka_error = of(error)
        name = "" if kafka_error is None else kafka_error.name()
        # With an instance id the only fatal error of a consumer is that somebody else has it.
        if name in _SAME_INSTANCE or (self._instance and name in {"_FATAL", "_FENCED"}):
            return refused_instance(doing, self._group, self._events)
        return translate(error, doing=doing, uncertain=False, events=self._events, servers=self._servers, **about)


def refused_instance(doing: str, group: str, events: ClientEvents) -> TailraceError:
    """The error for a member that the group refuses under its own instance id.

    The group has another member of this name: a rival, or this member as it was before an outage. Joining again
    decides: with a rival, one of both is refused soon, while the broker answers.
    """
    if events.disturbed_within(DISTURBED_S):
        return MemberDropped(
            f"cannot {doing}: group {group} has dropped this member while Kafka was away",
            hint="no action is needed: the member joins again by itself",
        )
    return ProducerFenced(
        f"cannot {doing}: another process is a member of group {group} under our instance id",
        hint="give each process an instance id of its own",
    )
