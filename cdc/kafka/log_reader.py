"""Reads committed records and offsets: progress, cuts, `tail`, `verify`, views.

Owns one librdkafka consumer that assigns partitions by itself; it joins no group and commits nothing. Knows no
format. Control records and aborted data take up offsets, so an end is a position, never "the last record".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Final, Self, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Kafka
from cdc.errors import BrokerUnreachable, TailraceError, TopicMissing
from cdc.kafka import client_options, cluster_facts
from cdc.kafka.client_errors import T, attempt, construct, guarded, translate, unreachable
from cdc.kafka.client_events import ClientEvents
from cdc.model.change_records import Headers

BATCH_RECORDS_MAX: Final = 2_000  # what one batch of `read` holds; bytes are bounded by options.READ_QUEUE_BYTES
POLL_S: Final = 0.2  # how long a read waits before it looks at its deadline, or hands out an empty batch
ANSWER_S: Final = 30.0
ASK_S: Final = 5.0  # for the one question after a read has stalled
ASK_AGAIN_S: Final = 0.2  # between questions for offsets while leaders change
MISSING_S: Final = 5.0  # for a partition the client does not know yet: its topic is new, or the broker just started
_LATEST: Final = -1  # ListOffsets' own timestamps, https://kafka.apache.org/protocol#The_Messages_ListOffsets
_EARLIEST: Final = -2


class LogReader:
    """A reader of committed records. One `read` at a time; calls come from one thread.

    `timeout_s` everywhere is the time without any progress after which BrokerUnreachable is raised (BrokerRefused
    when the client knows that its credentials are the reason).
    """

    def __init__(
        self,
        kafka: Kafka,
        *,
        client_id: str = "tailrace-reader",
        clock: Clock | None = None,
        ahead_bytes: int = client_options.READ_QUEUE_BYTES,
        poll_s: float = POLL_S,
        follows: bool = False,
        answer_s: float = ANSWER_S,
    ) -> None:
        """No connection is made yet; `ahead_bytes` are fetched ahead, and a read waits `poll_s` for the next record.

        `answer_s` is the `timeout_s` of calls that are given none.

        `follows`: it is mostly for reads without `until`; they ask the broker less often (`options.END_WAIT_MS`).
        Raises ConfigError for options nobody takes.
        """
        self._clock = clock or SystemClock()
        self._events = ClientEvents()
        self._servers = kafka.bootstrap
        self._poll_s = poll_s
        self._answer_s = answer_s
        config: dict[str, object] = {
            **client_options.consumer_options(kafka, client_id=client_id, ahead_bytes=ahead_bytes, follows=follows),
            "error_cb": self._events.on_error,
            "logger": self._events,
        }
        self._consumer = construct(lambda: Consumer(config), kafka.options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections. May be called twice."""
        attempt(self._consumer.close)

    def partitions(
        self, topics: Iterable[str], *, timeout_s: float | None = None
    ) -> list[cluster_facts.TopicPartition]:
        """Every partition of `topics`, one request for all. Raises TopicMissing for a topic that is not there."""
        doing = "read the topics' metadata"
        names, wait_s = list(topics), self._within(timeout_s)
        # One topic is asked for by name, several by asking for all: librdkafka has no list in between.
        only = names[0] if len(names) == 1 else None
        answer = self._call(
            doing,
            lambda: self._consumer.list_topics(only, wait_s) if only else self._consumer.list_topics(None, wait_s),
        )
        found: list[cluster_facts.TopicPartition] = []
        for name in names:
            metadata = answer.topics.get(name)
            if metadata is None:
                raise TopicMissing(
                    f"there is no topic {name!r}",
                    hint="create it, or allow Describe on it (see cdc doctor)",
                    topic=name,
                )
            if metadata.error is not None:
                raise self._error(metadata.error, doing, topic=name)
            found.extend((name, partition) for partition in sorted(metadata.partitions))
        return found

    def end_offsets(
        self, topics: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[cluster_facts.TopicPartition, tuple[int, int]]:
        """(low, high) of every partition of `topics`.

        `low` is the first offset there is, `high` the one after the last that no open transaction holds back (the
        last stable offset). It can lag behind a commit that was just acknowledged, by the milliseconds the broker
        takes to write the markers: to see a certain record, read until the offset behind it instead. One request a
        broker for each of the two.
        """
        found = self.partitions(topics, timeout_s=timeout_s)
        low = self._offsets(dict.fromkeys(found, _EARLIEST), timeout_s)
        high = self._offsets(dict.fromkeys(found, _LATEST), timeout_s)
        return {partition: (low[partition], high[partition]) for partition in found}

    def offsets_for_time(
        self, partitions: Iterable[cluster_facts.TopicPartition], timestamp_ms: int, *, timeout_s: float | None = None
    ) -> dict[cluster_facts.TopicPartition, int | None]:
        """The first offset whose timestamp is not earlier than `timestamp_ms`; None where there is no such record."""
        found = self._offsets({partition: max(timestamp_ms, 0) for partition in partitions}, timeout_s)
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def read(
        self,
        assignments: Mapping[cluster_facts.TopicPartition, int],
        until: Mapping[cluster_facts.TopicPartition, int] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Generator[list[cluster_facts.LogRecord], None, None]:
        """Committed records from the given offsets on, in batches; in order per partition.

        With `until` (an offset for each partition) it ends when every position has reached it; records at or after
        it are left out, and batches are not empty. Without it, it goes on for ever and hands out an empty batch
        whenever nothing arrives for a while, so that the caller can stop. `close` it when leaving it early. Raises
        TopicMismatch when an offset is not in the log (any more).
        """
        open_until = None
        if until is not None:
            open_until = {at: until[at] for at, start in assignments.items() if start < until[at]}
            assignments = {at: assignments[at] for at in open_until}
        if not assignments:
            return
        start = [TopicPartition(topic, partition, offset) for (topic, partition), offset in assignments.items()]
        self._call("assign partitions", lambda: self._consumer.assign(start))
        try:
            yield from self._batches(open_until, timeout_s)
        finally:
            # librdkafka keeps it in mind that a partition is paused, over assignments.
            attempt(lambda: self._consumer.resume([TopicPartition(*at) for at in assignments]))
            attempt(self._consumer.unassign)

    def last_records(
        self, topic: str, *, partition: int = 0, keys: Collection[bytes] | None = None, timeout_s: float | None = None
    ) -> dict[bytes, tuple[int, bytes]]:
        """Key -> (offset, value) of the latest record of each key of a compacted partition, up to `end_offsets`.

        Deleted keys and records without a key are left out; so is everything but `keys`, if given. Memory: one value
        a key, so for topics with few keys.
        """
        at = (topic, partition)
        low, high = self._offsets({at: _EARLIEST}, timeout_s)[at], self._offsets({at: _LATEST}, timeout_s)[at]
        latest: dict[bytes, tuple[int, bytes]] = {}
        for batch in self.read({at: low}, {at: high}, timeout_s=timeout_s):
            for _, _, offset, _, key, value, _ in batch:
                if key is None or (keys is not None and key not in keys):
                    continue
                if value is None:
                    latest.pop(key, None)
                else:
                    latest[key] = (offset, value)
        return latest

    def _batches(
        self, until: dict[cluster_facts.TopicPartition, int] | None, timeout_s: float | None
    ) -> Iterator[list[cluster_facts.LogRecord]]:
        moved_s = self._clock.monotonic_s()
        while until is None or until:
            records: list[cluster_facts.LogRecord] = []
            positions: dict[cluster_facts.TopicPartition, int] = {}
            for message in self._messages():
                self._take(message, records, positions, until)
            if positions:
                moved_s = self._clock.monotonic_s()
            elif self._clock.monotonic_s() - moved_s > self._within(timeout_s) and until is not None:
                raise self._stalled(until)
            if records or until is None:
                yield records
            if until is not None:
                self._leave([at for at, offset in positions.items() if at in until and offset >= until[at]], until)

    def _stalled(self, until: Mapping[cluster_facts.TopicPartition, int]) -> TailraceError:
        """Why nothing comes: librdkafka keeps a topic that is gone or forbidden to itself unless it is asked."""
        topic, partition = min(until)
        more = f" and {len(until) - 1} other partitions" if len(until) > 1 else ""
        if not self._events.reason():
            self.partitions([topic], timeout_s=ASK_S)
        return unreachable(f"read {topic}-{partition}{more}", None, self._events, servers=self._servers)

    def _messages(self) -> list[Message]:
        """What there is; `consume` alone would wait until it has as many as asked for."""
        doing = "read records"
        first = self._call(doing, lambda: self._consumer.poll(self._poll_s))
        if first is None:
            return []
        return [first, *self._call(doing, lambda: self._consumer.consume(BATCH_RECORDS_MAX - 1, 0))]

    def _take(
        self,
        message: Message,
        records: list[cluster_facts.LogRecord],
        positions: dict[cluster_facts.TopicPartition, int],
        until: Mapping[cluster_facts.TopicPartition, int] | None,
    ) -> None:
        error = message.error()
        # A message has these unless it stands for an error of the client as a whole.
        at = (cast("str", message.topic()), cast("int", message.partition()))
        offset = cast("int", message.offset())
        if error is None:
            positions[at] = offset + 1
            if until is None or offset < until.get(at, 0):
                # The stub allows text, which only a deserializing consumer has.
                headers = cast("Headers | None", message.headers())
                timestamp_ms = message.timestamp()[1]
                records.append((*at, offset, timestamp_ms, message.key(), message.value(), headers))
        elif error.name() == "_PARTITION_EOF":
            positions[at] = offset  # behind control records and aborted data
        else:
            self._judge(error, at)

    def _judge(self, error: KafkaError, at: cluster_facts.TopicPartition) -> None:
        """Raise what time does not mend; the rest librdkafka retries, and `timeout_s` ends it."""
        if error.name() == "GROUP_AUTHORIZATION_FAILED":
            return  # librdkafka looks for a coordinator although nothing is ever committed
        raised = self._error(error, "read records", topic=at[0], partition=at[1])
        if raised.retry != "timed":
            raise raised

    def _leave(self, done: list[cluster_facts.TopicPartition], until: dict[cluster_facts.TopicPartition, int]) -> None:
        if done and len(done) < len(until):
            self._call("pause", lambda: self._consumer.pause([TopicPartition(*at) for at in done]))
        for at in done:
            del until[at]

    def _within(self, timeout_s: float | None) -> float:
        return self._answer_s if timeout_s is None else timeout_s

    def _offsets(
        self, wanted: Mapping[cluster_facts.TopicPartition, int], timeout_s: float | None
    ) -> dict[cluster_facts.TopicPartition, int]:
        """The offset for each timestamp, -1 for none; the latest one is the last stable offset (read_committed)."""
        if not wanted:
            return {}
        never = threading.Event()
        began_s = self._clock.monotonic_s()
        deadline_s = began_s + self._within(timeout_s)
        while True:
            try:
                return self._offsets_now(wanted, max(deadline_s - self._clock.monotonic_s(), ASK_AGAIN_S))
            except BrokerUnreachable:
                # A new partition has no leader yet, or an old one has another than this client knows.
                if self._clock.monotonic_s() + ASK_AGAIN_S > deadline_s:
                    raise
            except TopicMissing:
                if self._clock.monotonic_s() + ASK_AGAIN_S > min(deadline_s, began_s + MISSING_S):
                    raise
            self._clock.wait(never, ASK_AGAIN_S)

    def _offsets_now(
        self, wanted: Mapping[cluster_facts.TopicPartition, int], timeout_s: float
    ) -> dict[cluster_facts.TopicPartition, int]:
        doing = "read offsets"
        query = [TopicPartition(topic, partition, at) for (topic, partition), at in wanted.items()]
        answer = self._call(doing, lambda: self._consumer.offsets_for_times(query, timeout=timeout_s))
        for one in answer:
            if one.error is not None:
                raise self._error(one.error, doing, topic=one.topic, partition=one.partition)
        return {(one.topic, one.partition): one.offset for one in answer}

    def _call(self, doing: str, call: Callable[[], T]) -> T:
        return guarded(call, lambda error: self._error(error, doing))

    def _error(self, error: object, doing: str, **about: object) -> TailraceError:
        # So that the events are here. A message that this takes is not missed: the read that fails is over.
        attempt(lambda: self._consumer.poll(0))
        return translate(error, doing=doing, uncertain=False, events=self._events, servers=self._servers, **about)
