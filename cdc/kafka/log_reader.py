"""Reads committed records and offsets without a consumer group: progress, cuts, `tail`, `verify`, views.

Owns one librdkafka consumer that assigns partitions by itself, joins no group and commits nothing. It knows no record
format. Control records and aborted data use up offsets, so an end is a position, never "the last record".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Final, Self, cast

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as PartitionOffset

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Kafka
from cdc.errors import BrokerUnreachable, TailraceError, TopicMissing
from cdc.kafka import client_options
from cdc.kafka.callbacks import callbacks
from cdc.kafka.client_errors import T, attempt, guarded, translate, unreachable
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.cluster_facts import TopicPartition
from cdc.kafka.leaderless import explained
from cdc.kafka.sasl_rotation import create
from cdc.model.change_records import Headers
from cdc.model.log_record import LogRecord
from cdc.model.read_pace import ReadPace

BATCH_RECORDS_MAX: Final = 2_000  # in one batch of `read`; bytes are bounded by client_options.READ_QUEUE_BYTES
POLL_S: Final = 0.2  # how long a read waits before it checks its deadline or yields an empty batch
ANSWER_S: Final = 30.0
ASK_S: Final = 5.0  # for the one request after a read has stalled
ASK_AGAIN_S: Final = 0.2  # between requests for offsets while leaders change
MISSING_S: Final = 5.0  # for a partition unknown to the client: its topic is new, or the broker just started
_OFFSETS_MAX: Final = 4000
"""Partitions in one request for offsets, so that `timeout_s` is enough: three busy brokers needed longer for 40,000."""
_LATEST: Final = -1  # ListOffsets' own timestamps, https://kafka.apache.org/protocol#The_Messages_ListOffsets
_EARLIEST: Final = -2


class LogReader:
    """A reader of committed records. One `read` at a time; used by one thread.

    `timeout_s` is always the time without progress after which BrokerUnreachable is raised (BrokerRefused when the
    client knows that its credentials are the reason).
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
        """Makes no connection yet. Raises ConfigError for options that librdkafka does not accept.

        Args:
            kafka: the section of the configuration.
            client_id: the name in the logs of the broker.
            clock: the system clock by default.
            ahead_bytes: fetched ahead of the caller.
            poll_s: how long a read waits for the next record.
            follows: the reader is mostly used without `until`; fetches then wait longer in the broker
                (`client_options.END_WAIT_MS`).
            answer_s: `timeout_s` of calls that have none.
        """
        self._clock = clock or SystemClock()
        self._events = ClientEvents()
        self._servers = kafka.bootstrap
        self._poll_s = poll_s
        self._answer_s = answer_s
        config: dict[str, object] = {
            **client_options.consumer_options(kafka, client_id=client_id, ahead_bytes=ahead_bytes, follows=follows),
            **callbacks(kafka, self._events),
        }
        self._consumer = create(Consumer, config, kafka, self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections. May be called twice."""
        attempt(self._consumer.close)

    def partitions(self, topics: Iterable[str], *, timeout_s: float | None = None) -> list[TopicPartition]:
        """Return every partition of `topics`, with one request. Raises TopicMissing for a topic that does not exist."""
        doing = "read the topics' metadata"
        names, wait_s = list(topics), self._within(timeout_s)
        # librdkafka requests either one topic or all topics.
        only = names[0] if len(names) == 1 else None
        answer = self._call(
            doing,
            lambda: self._consumer.list_topics(only, wait_s) if only else self._consumer.list_topics(None, wait_s),
        )
        found: list[TopicPartition] = []
        for name in names:
            metadata = answer.topics.get(name)
            if metadata is None:
                raise TopicMissing(
                    f"topic {name!r} does not exist",
                    hint="create it, or allow Describe on it (see cdc doctor)",
                    topic=name,
                )
            if metadata.error is not None:
                raise self._error(metadata.error, doing, topic=name)
            found.extend((name, partition) for partition in sorted(metadata.partitions))
        return found

    def end_offsets(
        self, topics: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return (low, high) of every partition of `topics`; two requests per broker for 4,000 partitions.

        `low` is the first existing offset, `high` the last stable offset: the first that an open transaction may still
        hold back. `high` can lag behind a commit that was just acknowledged, by the milliseconds that the broker needs
        to write the markers. To see a certain record, read until the offset behind it instead.
        """
        found = self.partitions(topics, timeout_s=timeout_s)
        low = self._offsets(dict.fromkeys(found, _EARLIEST), timeout_s)
        high = self._offsets(dict.fromkeys(found, _LATEST), timeout_s)
        return {partition: (low[partition], high[partition]) for partition in found}

    def offsets_for_time(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset whose timestamp is at least `timestamp_ms`; None where there is no such record."""
        found = self._offsets({partition: max(timestamp_ms, 0) for partition in partitions}, timeout_s)
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def read(
        self,
        assignments: Mapping[TopicPartition, int],
        until: Mapping[TopicPartition, int] | None = None,
        *,
        timeout_s: float | None = None,
        pace: ReadPace | None = None,
    ) -> Generator[list[LogRecord], None, None]:
        """Yield committed records from the given offsets on, in batches; in order per partition.

        With `until` (an offset for each partition) the generator ends when every position has reached it. Records at
        or after `until` are left out, and batches are not empty. Without `until` it never ends, and yields an empty
        batch when nothing arrives for a while, so that the caller can stop. `close` the generator when leaving it
        early. Raises TopicMismatch when an offset is not (or no longer) in the log.

        With `pace`, a batch is also yielded, perhaps empty, when only `pace.reached` has changed. Records of a
        partition that was held back can come a second time.
        """
        open_until = None
        if until is not None:
            open_until = {at: until[at] for at, start in assignments.items() if start < until[at]}
            assignments = {at: assignments[at] for at in open_until}
        if not assignments:
            return
        start = [PartitionOffset(topic, partition, offset) for (topic, partition), offset in assignments.items()]
        self._call("assign partitions", lambda: self._consumer.assign(start))
        try:
            yield from self._batches(open_until, timeout_s, pace)
        finally:
            # librdkafka remembers a pause across assignments.
            attempt(lambda: self._consumer.resume([PartitionOffset(*at) for at in assignments]))
            attempt(self._consumer.unassign)

    def last_records(
        self, topic: str, *, partition: int = 0, keys: Collection[bytes] | None = None, timeout_s: float | None = None
    ) -> dict[bytes, tuple[int, bytes]]:
        """Return key -> (offset, value) of the latest record of each key of a compacted partition, up to `end_offsets`.

        Deleted keys and records without a key are left out, and with `keys` all other keys. Keeps one value per key in
        memory, so it is for topics with few keys.
        """
        at = (topic, partition)
        low, high = self._offsets({at: _EARLIEST}, timeout_s)[at], self._offsets({at: _LATEST}, timeout_s)[at]
        latest: dict[bytes, tuple[int, bytes]] = {}
        for batch in self.read({at: low}, {at: high}, timeout_s=timeout_s):
            for record in batch:
                key, value = record.key, record.value
                if key is None or (keys is not None and key not in keys):
                    continue
                if value is None:
                    latest.pop(key, None)
                else:
                    latest[key] = (record.offset, value)
        return latest

    def _batches(
        self, until: dict[TopicPartition, int] | None, timeout_s: float | None, pace: ReadPace | None
    ) -> Iterator[list[LogRecord]]:
        moved_s = self._clock.monotonic_s()
        paused: set[TopicPartition] = set()
        while until is None or until:
            if pace is not None and pace.held != paused:
                paused = self._hold(pace.held, paused, until)
            records: list[LogRecord] = []
            positions: dict[TopicPartition, int] = {}
            for message in self._messages():
                self._take(message, records, positions, until)
            if positions:
                moved_s = self._clock.monotonic_s()
            elif self._clock.monotonic_s() - moved_s > self._within(timeout_s) and until is not None:
                raise self._stalled(until)
            if pace is not None:
                pace.reached.update(positions)
            if records or until is None or (pace is not None and positions):
                yield records
                moved_s = self._clock.monotonic_s()  # the caller may take as long as it wants
            if until is not None:
                self._leave([at for at, offset in positions.items() if at in until and offset >= until[at]], until)

    def _stalled(self, until: Mapping[TopicPartition, int]) -> TailraceError:
        """Return the reason for a stall: librdkafka reports a deleted or forbidden topic only on request."""
        topic, partition = min(until)
        more = f" and {len(until) - 1} other partitions" if len(until) > 1 else ""
        if not self._events.reason():
            self.partitions([topic], timeout_s=ASK_S)
        return unreachable(f"read {topic}-{partition}{more}", None, self._events, servers=self._servers)

    def _messages(self) -> list[Message]:
        """Return available messages; `consume` alone would wait for the full number."""
        doing = "read records"
        first = self._call(doing, lambda: self._consumer.poll(self._poll_s))
        if first is None:
            return []
        return [first, *self._call(doing, lambda: self._consumer.consume(BATCH_RECORDS_MAX - 1, 0))]

    def _take(
        self,
        message: Message,
        records: list[LogRecord],
        positions: dict[TopicPartition, int],
        until: Mapping[TopicPartition, int] | None,
    ) -> None:
        error = message.error()
        # Every message has these, except one that reports an error of the client as a whole.
        at = (cast("str", message.topic()), cast("int", message.partition()))
        offset = cast("int", message.offset())
        if error is None:
            positions[at] = offset + 1
            if until is None or offset < until.get(at, 0):
                # The stub also covers deserializing consumers.
                headers = cast("Headers | None", message.headers())
                timestamp_ms = message.timestamp()[1]
                records.append(LogRecord(at[0], at[1], offset, timestamp_ms, message.key(), message.value(), headers))
        elif error.name() == "_PARTITION_EOF":
            positions[at] = offset  # behind control records and aborted data
        else:
            self._judge(error, at)

    def _judge(self, error: KafkaError, at: TopicPartition) -> None:
        """Raise errors that do not pass by themselves; librdkafka retries the others until `timeout_s`."""
        if error.name() == "GROUP_AUTHORIZATION_FAILED":
            return  # librdkafka looks for a coordinator although it never commits anything
        raised = self._error(error, "read records", topic=at[0], partition=at[1])
        if raised.retry != "timed":
            raise raised

    def _hold(
        self, held: set[TopicPartition], paused: set[TopicPartition], until: Mapping[TopicPartition, int] | None
    ) -> set[TopicPartition]:
        """Fetch nothing from `held`, and again from those that are no longer there, unless they are read."""
        stops, goes = held - paused, paused - held
        if until is not None:
            stops, goes = stops & until.keys(), goes & until.keys()
        if stops:
            self._call("pause", lambda: self._consumer.pause([PartitionOffset(*at) for at in stops]))
        if goes:
            self._call("resume", lambda: self._consumer.resume([PartitionOffset(*at) for at in goes]))
        return set(held)

    def _leave(self, done: list[TopicPartition], until: dict[TopicPartition, int]) -> None:
        if done and len(done) < len(until):
            self._call("pause", lambda: self._consumer.pause([PartitionOffset(*at) for at in done]))
        for at in done:
            del until[at]

    def _within(self, timeout_s: float | None) -> float:
        return self._answer_s if timeout_s is None else timeout_s

    def _offsets(self, wanted: Mapping[TopicPartition, int], timeout_s: float | None) -> dict[TopicPartition, int]:
        """Return the offset for each timestamp, -1 for none; _LATEST gives the last stable offset (read_committed)."""
        found: dict[TopicPartition, int] = {}
        places = iter(wanted.items())
        while part := dict(islice(places, _OFFSETS_MAX)):
            found |= self._offsets_of(part, timeout_s)
        return found

    def _offsets_of(self, wanted: Mapping[TopicPartition, int], timeout_s: float | None) -> dict[TopicPartition, int]:
        never = threading.Event()
        began_s = self._clock.monotonic_s()
        deadline_s = began_s + self._within(timeout_s)
        while True:
            try:
                return self._offsets_now(wanted, max(deadline_s - self._clock.monotonic_s(), ASK_AGAIN_S))
            except BrokerUnreachable:
                # Transient: a new partition has no leader yet, or its leader moved.
                if self._clock.monotonic_s() + ASK_AGAIN_S > deadline_s:
                    raise
            except TopicMissing as error:
                if self._clock.monotonic_s() + ASK_AGAIN_S > min(deadline_s, began_s + MISSING_S):
                    raise explained(error, "read offsets", self._consumer, wanted, timeout_s=ASK_S) from error
            self._clock.wait(never, ASK_AGAIN_S)

    def _offsets_now(self, wanted: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, int]:
        doing = "read offsets"
        query = [PartitionOffset(topic, partition, at) for (topic, partition), at in wanted.items()]
        answer = self._call(doing, lambda: self._consumer.offsets_for_times(query, timeout=timeout_s))
        for one in answer:
            if one.error is not None:
                raise self._error(one.error, doing, topic=one.topic, partition=one.partition)
        return {(one.topic, one.partition): one.offset for one in answer}

    def _call(self, doing: str, call: Callable[[], T]) -> T:
        return guarded(call, lambda error: self._error(error, doing))

    def _error(self, error: object, doing: str, **about: object) -> TailraceError:
        # Delivers pending events. A message that this call consumes is not missed: the failing read is over.
        attempt(lambda: self._consumer.poll(0))
        return translate(error, doing=doing, uncertain=False, events=self._events, servers=self._servers, **about)
