"""Publishes records in Kafka transactions, each with a known outcome or an error that says it is unknown.

Owns one librdkafka producer. Never reuse it after an error: `close` it and create another one with the same
transactional id. Its `init` makes the broker refuse requests of the old one that are still in flight. librdkafka has no
KIP-890 client, so a late EndTxn could otherwise end the next transaction of the same producer.
Knows nothing about LSNs, rows or formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import length_hint
from typing import Final, TypeAlias, cast

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Kafka
from cdc.errors import OutcomeUnknown, TailraceError
from cdc.kafka import client_options
from cdc.kafka.callbacks import callbacks
from cdc.kafka.client_errors import T, attempt, guarded, kafka_error_in, translate, unreachable
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.sasl_rotation import create
from cdc.model.change_records import Record

ROOM_WAIT_S: Final = 0.05  # one wait for room in the queue; a batch of 1 MB leaves in about 10 ms
RETRY_WAIT_S: Final = 0.1  # between attempts to resume a commit that failed immediately
CAUSE_WAIT_S: Final = 5.0  # for the cause of a failure: known already, but reported by a thread that may be busy
ROOM_TIMEOUT_S: Final = (
    client_options.TRANSACTION_TIMEOUT_MS / 1000
)  # if nothing left the queue for this long, the broker has aborted the transaction

_PURGED: Final = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})

DeliveryCallback: TypeAlias = Callable[[KafkaError | None, Message], None]
_Produce: TypeAlias = Callable[..., None]


class TransactionalProducer:
    """One producer instance, from `init` to the first error. Used by one thread at a time.

    The cycle is `begin`, any number of `produce_all`, `flush`, `commit` (or `abort`). Callbacks run inside these
    calls. Methods raise only errors of our tree: ProducerFenced when a newer instance took over; BrokerRefused,
    TopicMismatch and RowRefused when an operator must act; BrokerUnreachable when nothing was committed;
    OutcomeUnknown when the transaction may be committed.
    """

    def __init__(
        self,
        kafka: Kafka,
        transactional_id: str,
        *,
        message_bytes_max: int,
        transaction_s: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """Makes no connection yet. Raises ConfigError for options that librdkafka does not accept.

        Args:
            kafka: the section of the configuration.
            transactional_id: the broker accepts only its newest user.
            message_bytes_max: `max.message.bytes` of the topics; see `client_options.record_bytes_max`.
            transaction_s: the minimum duration of a transaction; 0 for that of the configuration.
            clock: the system clock by default.
        """
        self._clock = clock or SystemClock()
        self._events = ClientEvents()
        self._servers = kafka.bootstrap
        self._id = transactional_id
        self._failed: tuple[str, KafkaError] | None = None
        self._slow: str | None = None
        config: dict[str, object] = {
            **client_options.producer_options(
                kafka, transactional_id, message_bytes_max=message_bytes_max, transaction_s=transaction_s
            ),
            **callbacks(kafka, self._events),
        }
        self._kafka = kafka
        self._groups: dict[str, object] = {}
        self._socket_timeout_s = int(str(config["socket.timeout.ms"])) / 1000
        self._producer = create(Producer, config, kafka, self._events)

    def init(self, timeout_s: float) -> None:
        """Take over the transactional id: fences older instances and aborts their open transaction.

        Blocks until older transactions are finished, at most `timeout_s`.
        """
        doing = "get the transactional id"
        self._call(doing, lambda: self._producer.init_transactions(timeout_s), uncertain=False)
        self._serve(doing)
        self._events.clear()

    def begin(self) -> None:
        """Open a transaction, locally: the broker learns of it with the first record.

        Raises OutcomeUnknown when `suspicious`: a delayed request of an earlier transaction could end this one.
        """
        doing = "begin a transaction"
        self._serve(doing)
        if self.suspicious is not None:
            raise OutcomeUnknown(
                f"cannot {doing}: Kafka failed to answer, so a new producer must take over: {self.suspicious}",
                hint="no action is required: that happens by itself when Kafka answers",
                transactional_id=self._id,
            )
        self._call(doing, self._producer.begin_transaction)

    def produce_all(
        self, topic: str, partition: int, records: Sequence[Record], on_last: Callable[[int], None] | None = None
    ) -> None:
        """Hand records to librdkafka, in order. The list may be cleared afterwards: the bytes are copied.

        `on_last` receives the offset of the last record once the broker has it, inside `flush` or a later call; it is
        not called for a failed record (then `flush` raises). Waits while the queue of librdkafka is full.
        """
        if not records:
            return
        remaining = iter(records[:-1])

        def at() -> Record:
            return records[len(records) - 2 - length_hint(remaining)]

        while not guarded(
            lambda: self._hand_over(topic, partition, remaining),
            lambda error: self._produce_error(error, topic, partition, at()),
        ):
            self._hand_over_one(topic, partition, at(), None)
        self._hand_over_one(topic, partition, records[-1], self._delivery(topic, on_last))

    def flush(self, timeout_s: float) -> None:
        """Wait until the broker has every record and every `on_last` was called.

        Raises the error of the first failed record; BrokerUnreachable when records are left after `timeout_s`.
        """
        doing = "deliver records"
        left = self._call(doing, lambda: self._producer.flush(timeout_s))
        if self._failed is not None:
            topic, error = self._failed
            raise self._error(error, doing, uncertain=False, topic=topic)
        if left:
            raise unreachable(f"deliver {left} records in {timeout_s:g} s", None, self._events, servers=self._servers)

    def commit(self, timeout_s: float) -> None:
        """Commit the transaction. Returns only when the broker has confirmed the commit.

        Resumes a commit whose answer is late until `timeout_s`; then raises OutcomeUnknown.
        """
        doing = "commit the transaction"
        start_s = self._clock.monotonic_s()
        left_s = timeout_s
        while True:
            _, error = attempt(lambda: self._producer.commit_transaction(left_s))  # noqa: B023 - called at once
            if error is None:
                break
            kafka_error = kafka_error_in(error)
            left_s = start_s + timeout_s - self._clock.monotonic_s()
            if left_s <= 0 or kafka_error is None or not kafka_error.retriable():
                raise self._error(error, doing, uncertain=True)
            self._serve(doing, wait_s=RETRY_WAIT_S)
        self._serve(doing)
        took_s = self._clock.monotonic_s() - start_s
        if took_s > self._socket_timeout_s / 2:
            self._slow = f"a commit took {took_s:.1f} s"

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group: str, timeout_s: float) -> None:
        """Commit offsets of a consumer group with the transaction; the group needs no members.

        Raises ProducerFenced for a fenced producer, so callers also use it to check that they are still the writer.
        """
        doing = "commit offsets"
        metadata = self._groups.get(group) or self._group_metadata(group)
        positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self._call(doing, lambda: self._producer.send_offsets_to_transaction(positions, metadata, timeout_s))

    def abort(self, timeout_s: float) -> bool:
        """Abort the open transaction. Returns whether the broker confirmed it; if not, the next `init` aborts it."""
        _, error = attempt(lambda: self._producer.abort_transaction(timeout_s))
        return error is None

    def check(self, topic: str, timeout_s: float) -> None:
        """Ask a broker for the metadata of a topic. Raises BrokerUnreachable: an idle client notices no outage."""
        self._call("reach Kafka", lambda: self._producer.list_topics(topic, timeout_s), uncertain=False)

    def close(self) -> None:
        """Destroy the instance and its queued records, without waiting and without ending the transaction.

        May be called twice. `Producer.close` is not used: it aborts and flushes, and blocks while the broker does not
        answer (seen with a stopped broker). librdkafka's instance ends with the last reference to the `Producer`, which
        is dropped here. A bound method or a traceback that outlives a call would keep it alive; it could then still
        finish `init` and fence its successor.
        """
        producer = self.__dict__.pop("_producer", None)
        if producer is not None:
            attempt(producer.purge)
            attempt(lambda: producer.flush(0))

    @property
    def suspicious(self) -> str | None:
        """Why this instance must be replaced before its next transaction; None if it can be kept.

        After a request timeout, a broken connection or a slow commit, a copy of a request may still be in flight. The
        broker would accept it in the next transaction, because librdkafka does not implement KIP-890. The value is
        complete after `commit`; `begin` detects later events.
        """
        return self._slow or self._events.lost

    def _group_metadata(self, group: str) -> object:
        """Return the metadata of a group without members; only a consumer can create it, and it never changes."""
        own = {
            **client_options.consumer_options(self._kafka, client_id=self._id),
            "group.id": group,
            **callbacks(self._kafka, self._events),
        }
        member = create(Consumer, own, self._kafka, self._events)
        try:
            self._groups[group] = member.consumer_group_metadata()
        finally:
            member.close()
        return self._groups[group]

    def _hand_over(self, topic: str, partition: int, records: Iterator[Record]) -> bool:
        """Produce records on the hot path; returns False when the queue was full for the last record taken."""
        produce = cast("_Produce", self._producer.produce)  # the stub's list of headers is invariant
        try:
            for key, value, headers in records:
                if headers is None:
                    produce(topic, value, key, partition)
                else:
                    produce(topic, value, key, partition, None, None, 0, headers)
        except BufferError:
            return False
        return True

    def _hand_over_one(self, topic: str, partition: int, record: Record, delivery: DeliveryCallback | None) -> None:
        """Produce one record with its callback; waits for room in the queue, at most `ROOM_TIMEOUT_S`."""
        key, value, headers = record
        deadline_s = self._clock.monotonic_s() + ROOM_TIMEOUT_S

        def produce() -> bool:
            hand_over = cast("_Produce", self._producer.produce)  # as above
            try:
                hand_over(topic, value, key, partition, delivery, None, 0, headers)
            except BufferError:
                return False
            return True

        while not guarded(produce, lambda error: self._produce_error(error, topic, partition, record)):
            self._serve("deliver records", wait_s=ROOM_WAIT_S)
            if self._failed is not None:
                self.flush(0)
            if self._clock.monotonic_s() > deadline_s:
                raise unreachable(
                    f"deliver a record in {ROOM_TIMEOUT_S:g} s", None, self._events, servers=self._servers
                )

    def _delivery(self, topic: str, on_last: Callable[[int], None] | None) -> DeliveryCallback:
        def delivered(error: KafkaError | None, message: Message) -> None:
            # After an error this callback must not call into C: librdkafka may be raising a fatal error at this moment,
            # and such a call would turn it into a SystemError.
            if error is not None:
                self._failed = (topic, error)
            elif on_last is not None:
                offset = message.offset()
                assert offset is not None, "a delivered message has an offset"
                on_last(offset)

        return delivered

    def _call(self, doing: str, call: Callable[[], T], *, uncertain: bool = True) -> T:
        return guarded(call, lambda error: self._error(error, doing, uncertain=uncertain))

    def _serve(self, doing: str, *, wait_s: float = 0.0) -> None:
        """Run pending callbacks of librdkafka; raises a fatal error."""
        self._call(doing, lambda: self._producer.poll(wait_s))

    def _produce_error(self, error: object, topic: str, partition: int, record: Record) -> TailraceError:
        key, value, headers = record
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(text) for name, text in headers or ())
        return self._error(
            error,
            f"publish a record of {size} bytes",
            uncertain=True,
            topic=topic,
            partition=partition,
            size=size,
        )

    def _error(self, error: object, doing: str, *, uncertain: bool, **facts: object) -> TailraceError:
        """Translate an error of the client; a bare "fatal" error or a SystemError is replaced by its cause."""
        attempt(lambda: self._producer.poll(0))  # delivers pending error events
        kafka_error = kafka_error_in(error)
        if not isinstance(error, TailraceError) and (kafka_error is None or kafka_error.name() == "_FATAL"):
            # In a fatal state every transactional call only returns the first cause.
            _, answer = attempt(lambda: self._producer.abort_transaction(CAUSE_WAIT_S))
            cause = kafka_error_in(answer)
            error = cause if cause is not None and cause.fatal() else error
        elif kafka_error is not None and kafka_error.name() in _PURGED:
            # The record was purged because the transaction failed: a commit now fails, too, and returns the cause.
            _, answer = attempt(lambda: self._producer.commit_transaction(CAUSE_WAIT_S))
            error = kafka_error_in(answer) or error
        return translate(
            error,
            doing=doing,
            uncertain=uncertain,
            events=self._events,
            servers=self._servers,
            transactional_id=self._id,
            **facts,
        )
