"""Reads committed records as a member of a consumer group, and commits offsets explicitly.

Owns one librdkafka consumer. Rebalances are cooperative (KIP-429): partitions that stay are read meanwhile. `poll`, and
only `poll`, calls the `Membership` when partitions are assigned or revoked. This module knows no record format.

The classic protocol is the default because every broker supports it. ``kafka.options.group.protocol = "consumer"``
selects that of Kafka 4 (KIP-848), where the broker sets the timeouts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, cast

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as PartitionOffset

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Kafka
from cdc.errors import BrokerUnreachable, MemberDropped, ProducerFenced, SinkGap, TailraceError, TopicMissing
from cdc.kafka import client_options
from cdc.kafka.bounded_call import within
from cdc.kafka.callbacks import callbacks
from cdc.kafka.client_errors import TRUNCATED, T, attempt, guarded, kafka_error_in, translate
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.cluster_facts import TopicPartition
from cdc.kafka.leaderless import explained
from cdc.kafka.sasl_rotation import create
from cdc.model.change_records import Headers
from cdc.model.log_record import LogRecord

FETCH_AHEAD_BYTES: Final = 8 << 20  # fetched and not polled yet; the runner buffers more, within its own limits
BATCH_RECORDS_MAX: Final = 2_000
ASK_S: Final = 30.0  # for offset requests during an assignment
COMMIT_S: Final = 60.0
"""A commit waits for a coordinator for `session.timeout.ms`, 45 s by default. librdkafka 2.16 sometimes never returns
from one after a restart of Kafka (`rd_kafka_commit_queue`, seen on 2026-11-29 at the ninth of several restarts)."""

DISTURBED_S: Final = 90.0
"""Within this time after a failed connection or session timeout, a refused instance id does not prove a rival."""

_SEEK_AGAIN_S: Final = 0.05
_ASK_AGAIN_S: Final = 0.1
_LATEST: Final = -1
_EARLIEST: Final = -2
# The group continued without this member: the new owner of the partition repeats what was not committed.
_GONE: Final = frozenset(
    {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH"}
)
_SAME_INSTANCE: Final = frozenset({"FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID"})


class CommittedOffset(NamedTuple):
    """A committed offset of a partition, where reading continues, and the metadata committed with it."""

    offset: int
    metadata: str


class PartitionStart(NamedTuple):
    """A newly assigned partition; `committed` is None if the group never committed an offset for it.

    `low` is the first existing offset, `high` the one after the last committed record.
    """

    committed: CommittedOffset | None
    low: int
    high: int


class Membership(Protocol):
    """Called in the polling thread when partitions are assigned or taken away. Its errors are raised by `poll`."""

    def assigned(self, places: Mapping[TopicPartition, PartitionStart]) -> Mapping[TopicPartition, int]:
        """Take over partitions; returns the offset from which to read each of them."""

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        """Give up partitions; they move to another member when this returns, and can be committed until then."""

    def lost(self, places: Sequence[TopicPartition]) -> None:
        """Partitions already belong to another member: do not commit their offsets."""


class PollResult(NamedTuple):
    """Records in order per partition, and ends: no committed record lies between a partition's records and its end."""

    records: list[LogRecord]
    ends: dict[TopicPartition, int]


class GroupConsumer:
    """One member of a group. Used by one thread. `close` leaves the group, unless the member has an instance id."""

    def __init__(
        self,
        kafka: Kafka,
        group: str,
        membership: Membership,
        *,
        instance: str = "",
        clock: Clock | None = None,
        ahead_bytes: int = FETCH_AHEAD_BYTES,
        commit_s: float = COMMIT_S,
    ) -> None:
        """Makes no connection yet. `instance` is the group.instance.id (static membership), empty for none.

        After a commit that takes longer than `commit_s`, this consumer cannot be used again.

        Raises ConfigError for options that librdkafka does not accept.
        """
        self._clock = clock or SystemClock()
        self._membership = membership
        self._events = ClientEvents(self._clock)
        self._servers = kafka.bootstrap
        self._group = group
        self._failure: TailraceError | None = None
        self._commit_s = commit_s
        self._hangs = False
        self._in_callback = False
        self._instance = instance
        self._topics: list[str] = []
        self._mine: set[TopicPartition] = set()
        self._fresh: set[tuple[str | None, int | None]] = set()
        self._paused: set[TopicPartition] = set()
        config: dict[str, object] = {
            **client_options.group_options(kafka, group=group, instance=instance, ahead_bytes=ahead_bytes),
            **callbacks(kafka, self._events),
        }
        self._consumer = create(Consumer, config, kafka, self._events)

    @property
    def member(self) -> str:
        """The member id that the group assigned; empty before it did."""
        return guarded(lambda: self._consumer.memberid() or "", lambda error: self._error(error, "read the member id"))

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group to read these topics, from the next `poll` on."""
        self._topics = list(topics)
        self._call(
            "join the group",
            lambda: self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            ),
        )

    def rejoin(self) -> None:
        """Leave the group and join again, which reassigns all partitions; a later `poll` revokes the current ones."""
        self._call("leave the group", self._consumer.unsubscribe)
        self.subscribe(self._topics)

    def poll(self, wait_s: float) -> PollResult:
        """Return available records after waiting up to `wait_s` for the first; calls the membership meanwhile.

        Raises SinkGap when an offset is no longer in the log, ProducerFenced when another process uses our instance
        id, BrokerRefused, TopicMismatch, and errors of the membership.
        """
        doing = "read records"
        if self._hangs:
            raise self._hanging(doing)
        polled = PollResult([], {})
        first = self._call(doing, lambda: self._consumer.poll(wait_s))
        self._raise_failure()
        if first is None:
            return polled
        self._fresh.clear()
        rest = self._call(doing, lambda: self._consumer.consume(BATCH_RECORDS_MAX - 1, 0))
        self._raise_failure()
        # A partition that was assigned again meanwhile is read from another offset: drop the record fetched before.
        if (first.topic(), first.partition()) not in self._fresh:
            self._take(first, polled)
        for message in rest:
            self._take(message, polled)
        return polled

    def commit(self, positions: Mapping[TopicPartition, tuple[int, str]]) -> bool:
        """Commit offsets with their metadata. Returns False while the group rebalances.

        Then the commit may have had no effect, and partitions may belong to other members already. Raises
        BrokerUnreachable, BrokerRefused, ProducerFenced, and MemberDropped if the client hangs.
        """
        if not positions:
            return True
        wanted = [
            PartitionOffset(topic, partition, offset, metadata)
            for (topic, partition), (offset, metadata) in positions.items()
        ]
        doing = "commit offsets"
        if self._hangs:
            raise self._hanging(doing)
        done = self._bounded(lambda: self._consumer.commit(offsets=wanted, asynchronous=False))
        if done is None:
            self._hangs = True
            raise self._hanging(doing)
        answer, error = done
        errors = [error] if error is not None else [one.error for one in answer or [] if one.error is not None]
        if not errors:
            return True
        kafka_error = kafka_error_in(errors[0])
        if kafka_error is not None and kafka_error.name() in _GONE:
            return False
        raise self._error(errors[0], doing)

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions; records that were fetched and not returned are fetched again later."""
        wanted = [place for place in places if place in self._mine and place not in self._paused]
        if wanted:
            self._call("pause", lambda: self._consumer.pause([PartitionOffset(*place) for place in wanted]))
            self._paused.update(wanted)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Fetch these partitions again."""
        wanted = [place for place in places if place in self._paused]
        if wanted:
            self._call("resume", lambda: self._consumer.resume([PartitionOffset(*place) for place in wanted]))
            self._paused.difference_update(wanted)

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Continue at `offset` in an assigned partition. Raises BrokerUnreachable when that does not take effect."""
        never = threading.Event()
        ends_s = self._clock.monotonic_s() + ASK_S
        while True:
            _, error = attempt(lambda: self._consumer.seek(PartitionOffset(*place, offset)))
            if error is None:
                return
            kafka_error = kafka_error_in(error)
            # A newly assigned partition is not fetched yet.
            if kafka_error is None or kafka_error.name() not in {"_STATE", "_PREV_IN_PROGRESS"}:
                raise self._error(error, "seek", topic=place[0])
            if self._clock.monotonic_s() > ends_s:
                raise BrokerUnreachable(f"cannot read {place[0]}-{place[1]} from another offset", topic=place[0])
            self._clock.wait(never, _SEEK_AGAIN_S)

    def ends(self, places: Iterable[TopicPartition], ask_s: float) -> dict[TopicPartition, int]:
        """Return the ends of partitions, as far as known. Raises nothing.

        With `ask_s`, the broker is asked and has that many seconds. With 0, they are those of the last fetch, which
        does not know of later records in partitions that are paused.
        """
        if ask_s > 0:
            asked = [PartitionOffset(*place, _LATEST) for place in places]
            answer, _ = attempt(lambda: self._consumer.offsets_for_times(asked, ask_s))
            answered = [one for one in answer or [] if one.error is None]
            return {(one.topic, one.partition): one.offset for one in answered if one.offset >= 0}
        found: dict[TopicPartition, int] = {}
        for place in places:
            last, _ = attempt(partial(self._consumer.get_watermark_offsets, PartitionOffset(*place), cached=True))
            if last is not None and last[1] >= 0:
                found[place] = last[1]
        return found

    def close(self) -> None:
        """Leave the group, which revokes its partitions. May be called twice. A client that hangs is abandoned."""
        if not self._hangs:
            attempt(self._consumer.close)

    def _on_assign(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        places = [(one.topic, one.partition) for one in partitions]
        starts: Mapping[TopicPartition, int] = {}
        self._in_callback = True
        try:
            starts = self._membership.assigned(self._begins(consumer, places))
        except TailraceError as error:
            self._failure = error
        finally:
            self._in_callback = False
        # The callback must assign: otherwise the client assigns by itself, at offsets of its own choice.
        wanted = [PartitionOffset(*place, starts[place]) for place in places if place in starts]
        _, refused = attempt(lambda: consumer.incremental_assign(wanted))
        if refused is not None and self._failure is None:
            self._failure = self._error(refused, "take partitions")
        self._mine.update(starts)
        self._fresh.update(starts)

    def _on_revoke(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        self._leave(consumer, partitions, self._membership.revoked)

    def _on_lost(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        self._leave(consumer, partitions, self._membership.lost)

    def _leave(
        self, consumer: Consumer, partitions: list[PartitionOffset], tell: Callable[[Sequence[TopicPartition]], None]
    ) -> None:
        places = [(one.topic, one.partition) for one in partitions]
        self._in_callback = True
        try:
            tell([place for place in places if place in self._mine])
        except TailraceError as error:
            self._failure = self._failure or error
        finally:
            self._in_callback = False
        paused = [PartitionOffset(*place) for place in places if place in self._paused]
        if paused:
            attempt(lambda: consumer.resume(paused))  # librdkafka remembers a pause across assignments
        attempt(lambda: consumer.incremental_unassign([one for one in partitions if self._has(one)]))
        self._mine.difference_update(places)
        self._paused.difference_update(places)

    def _has(self, one: PartitionOffset) -> bool:
        return (one.topic, one.partition) in self._mine

    def _begins(self, consumer: Consumer, places: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionStart]:
        if not places:
            return {}
        doing = "read committed offsets"
        asked = [PartitionOffset(*place) for place in places]
        answer = self._call(doing, lambda: consumer.committed(asked, ASK_S))
        committed: dict[TopicPartition, CommittedOffset | None] = {}
        for one in answer:
            if one.error is not None:
                raise self._error(one.error, doing, topic=one.topic)
            found = CommittedOffset(one.offset, one.metadata or "") if one.offset >= 0 else None
            committed[(one.topic, one.partition)] = found
        low, high = self._offsets(consumer, places, _EARLIEST), self._offsets(consumer, places, _LATEST)
        return {place: PartitionStart(committed.get(place), low[place], high[place]) for place in places}

    def _offsets(self, consumer: Consumer, places: Sequence[TopicPartition], which: int) -> dict[TopicPartition, int]:
        doing = "read offsets"
        asked = [PartitionOffset(*place, which) for place in places]
        ends_s = self._clock.monotonic_s() + ASK_S
        while True:
            answer, error = attempt(lambda: consumer.offsets_for_times(asked, ASK_S))
            errors = [error] if error is not None else [one.error for one in answer or [] if one.error is not None]
            if not errors:
                return {(one.topic, one.partition): one.offset for one in answer or []}
            raised = self._error(errors[0], doing)
            # Transient: a new partition has no leader yet, or its leader moved.
            passing = isinstance(raised, (BrokerUnreachable, TopicMissing))
            if not passing or self._clock.monotonic_s() > ends_s:
                raise explained(raised, doing, consumer, places, timeout_s=ASK_S)
            self._clock.wait(threading.Event(), _ASK_AGAIN_S)

    def _take(self, message: Message, polled: PollResult) -> None:
        error = message.error()
        if error is not None and error.name() != "_PARTITION_EOF":
            self._judge(error, message)
            return
        # Every message has these, except one that reports an error of the client as a whole.
        place = (cast("str", message.topic()), cast("int", message.partition()))
        offset = cast("int", message.offset())
        if place not in self._mine:
            return
        if error is not None:
            polled.ends[place] = offset
            return
        polled.ends.pop(place, None)
        headers = cast("Headers | None", message.headers())  # the stub also covers deserializing consumers
        polled.records.append(
            LogRecord(place[0], place[1], offset, message.timestamp()[1], message.key(), message.value(), headers)
        )

    def _judge(self, error: KafkaError, message: Message) -> None:
        """Raise errors that do not pass by themselves; librdkafka retries the others."""
        name, topic, partition = error.name(), message.topic(), message.partition()
        if name in TRUNCATED:
            raise SinkGap(
                f"{topic}-{partition} no longer has the offset that group {self._group} must read next",
                hint="records are gone before the sink read them: repair topic and sink with "
                "`cdc verify SINK --repair`",
                topic=topic,
                partition=partition,
            )
        raised = self._error(error, "read records", **({} if topic is None else {"topic": topic}))
        if raised.retry != "timed" or isinstance(raised, MemberDropped):  # this client receives no more records
            raise raised

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _bounded(self, call: Callable[[], T]) -> tuple[T, None] | tuple[None, object] | None:
        """Run a call that may never return. Returns None after the limit, else what `attempt` returns.

        In a callback of the client the call has no limit: the client waits for its callback, and a call from another
        thread waits for the client.
        """
        if self._in_callback:
            return attempt(call)
        return within(self._commit_s, lambda: attempt(call))

    def _hanging(self, doing: str) -> TailraceError:
        return MemberDropped(
            f"cannot {doing}: the Kafka client did not return from a commit within {self._commit_s:g} s",
            hint="no action is required: a new client joins group " + self._group,
        )

    def _call(self, doing: str, call: Callable[[], T]) -> T:
        return guarded(call, lambda error: self._error(error, doing))

    def _error(self, error: object, doing: str, **about: object) -> TailraceError:
        kafka_error = kafka_error_in(error)
        name = "" if kafka_error is None else kafka_error.name()
        # With an instance id, the only fatal error of a consumer is that another member uses that id.
        if name in _SAME_INSTANCE or (self._instance and name in {"_FATAL", "_FENCED"}):
            return refused_instance(doing, self._group, self._events)
        return translate(error, doing=doing, uncertain=False, events=self._events, servers=self._servers, **about)


def refused_instance(doing: str, group: str, events: ClientEvents) -> TailraceError:
    """Return the error for a member whose instance id the group refuses.

    The group already has a member with this id: a rival, or this member before an outage. Joining again decides: with
    a rival, the group soon refuses one of the two while the broker answers.
    """
    if events.disturbed_within(DISTURBED_S):
        return MemberDropped(
            f"cannot {doing}: group {group} dropped this member during an outage of Kafka",
            hint="no action is required: the member joins again by itself",
        )
    return ProducerFenced(
        f"cannot {doing}: another process in group {group} uses the same instance id",
        hint="give each process its own instance id",
    )
