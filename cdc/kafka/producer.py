"""The transactional producer: records in, an outcome that is known or an error that says it is not.

Owns one librdkafka producer. After any error it is finished: `close` it and make another with the same
transactional id, whose `init` makes the broker refuse whatever this one still has on the way (DESIGN section 5).
Knows no LSN, no row and no format.
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
from cdc.kafka.client_errors import T, attempt, construct, guarded, of, translate, unreachable
from cdc.kafka.client_events import ClientEvents
from cdc.model.change_records import Record

ROOM_WAIT_S: Final = 0.05  # one wait for room in the queue; a batch of 1 MB leaves in about 10 ms
RETRY_WAIT_S: Final = 0.1  # between attempts to resume a commit that failed at once
CAUSE_WAIT_S: Final = 5.0  # for the reason of a failure: known already, but told by a thread that may be busy
ROOM_TIMEOUT_S: Final = (
    client_options.TRANSACTION_TIMEOUT_MS / 1000
)  # nothing left for so long: the transaction is dead

_PURGED: Final = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})

DeliveryCallback: TypeAlias = Callable[[KafkaError | None, Message], None]
_Produce: TypeAlias = Callable[..., None]


class TransactionalProducer:
    """One producer instance, from `init` to the first error. Calls come from one thread.

    The cycle is `begin`, any number of `produce_all`, `flush`, `commit` (or `abort`). Callbacks run inside these
    calls. Every method raises errors of our tree only: ProducerFenced when a newer instance took over,
    BrokerRefused, TopicMismatch and RowRefused when a person must act, BrokerUnreachable while nothing was
    committed, OutcomeUnknown when nobody can say.
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
        """Raises ConfigError for options librdkafka does not take. No connection is made yet.

        Args:
            kafka: the section of the configuration.
            transactional_id: the broker lets only its newest user live.
            message_bytes_max: `max.message.bytes` of the topics; see `options.record_bytes_max`.
            transaction_s: how long a transaction may last at least; 0: as long as the configuration says.
            clock: of the machine unless a test says otherwise.
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
            "error_cb": self._events.on_error,
            "logger": self._events,
        }
        self._kafka = kafka
        self._groups: dict[str, object] = {}
        self._socket_timeout_s = int(str(config["socket.timeout.ms"])) / 1000
        self._producer = construct(lambda: Producer(config), kafka.options)

    def init(self, timeout_s: float) -> None:
        """Take the transactional id: older instances are fenced and their open transaction is aborted.

        Blocks until older transactions are finished, `timeout_s` at most.
        """
        doing = "get the transactional id"
        self._call(doing, lambda: self._producer.init_transactions(timeout_s), uncertain=False)
        self._serve(doing)
        self._events.clear()

    def begin(self) -> None:
        """Open a transaction. Purely local: the broker hears of it with the first record.

        Raises OutcomeUnknown when `suspicious`: a delayed request of an earlier transaction could end this one.
        """
        doing = "begin a transaction"
        self._serve(doing)
        if self.suspicious is not None:
            raise OutcomeUnknown(
                f"cannot {doing}: the producer must be replaced first: {self.suspicious}", transactional_id=self._id
            )
        self._call(doing, self._producer.begin_transaction)

    def produce_all(
        self, topic: str, partition: int, records: Sequence[Record], on_last: Callable[[int], None] | None = None
    ) -> None:
        """Hand records to librdkafka, in order. The list may be cleared afterwards: the bytes are copied.

        `on_last` is told the offset of the last record when the broker has it, from within `flush` or a later call;
        never for a record that failed (then `flush` raises). Waits while librdkafka's queue is full.
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
        """Wait until the broker has every record, and every `on_last` was called.

        Raises what the first failed record says; BrokerUnreachable when records are left after `timeout_s`.
        """
        doing = "deliver records"
        left = self._call(doing, lambda: self._producer.flush(timeout_s))
        if self._failed is not None:
            topic, error = self._failed
            raise self._error(error, doing, uncertain=False, topic=topic)
        if left:
            raise unreachable(f"deliver {left} records in {timeout_s:g} s", None, self._events, servers=self._servers)

    def commit(self, timeout_s: float) -> None:
        """End the transaction. Returns only when the broker has said that it is committed.

        A commit whose answer is late is resumed until `timeout_s` is over; then OutcomeUnknown.
        """
        doing = "commit the transaction"
        start_s = self._clock.monotonic_s()
        left_s = timeout_s
        while True:
            _, error = attempt(lambda: self._producer.commit_transaction(left_s))  # noqa: B023 - called at once
            if error is None:
                break
            kafka_error = of(error)
            left_s = start_s + timeout_s - self._clock.monotonic_s()
            if left_s <= 0 or kafka_error is None or not kafka_error.retriable():
                raise self._error(error, doing, uncertain=True)
            self._serve(doing, wait_s=RETRY_WAIT_S)
        self._serve(doing)
        took_s = self._clock.monotonic_s() - start_s
        if took_s > self._socket_timeout_s / 2:
            self._slow = f"a commit took {took_s:.1f} s"

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group: str, timeout_s: float) -> None:
        """Commit offsets of a consumer group with the transaction; nobody needs to be a member of it.

        A producer that another one has fenced gets ProducerFenced, so it also tells whether we are still the one.
        """
        doing = "commit offsets"
        metadata = self._groups.get(group) or self._group_metadata(group)
        positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self._call(doing, lambda: self._producer.send_offsets_to_transaction(positions, metadata, timeout_s))

    def abort(self, timeout_s: float) -> bool:
        """Throw the open transaction away. Returns whether the broker said so; if not, the next `init` does it."""
        _, error = attempt(lambda: self._producer.abort_transaction(timeout_s))
        return error is None

    def close(self) -> None:
        """Destroy the instance: nothing it still has is delivered. The transaction is not ended, and nobody waited for.

        May be called twice. `Producer.close` is not used: it aborts and flushes for as long as the broker is silent
        (seen with a stopped broker). librdkafka's instance dies with the last reference to the `Producer`, which is
        the one taken here; a bound method or a traceback that outlived a call would keep it alive, and alive it could
        still finish `init` and fence its successor.
        """
        producer = self.__dict__.pop("_producer", None)
        if producer is not None:
            attempt(producer.purge)
            attempt(lambda: producer.flush(0))

    @property
    def suspicious(self) -> str | None:
        """Why this instance must be replaced before its next transaction, if it must.

        A request timed out, a connection broke or a commit was slow: a copy of a request may still be on its way,
        and librdkafka has no KIP-890, which would make the broker refuse it (RELIABILITY part 6). Complete after
        `commit`; what happens later is seen by `begin`.
        """
        return self._slow or self._events.lost

    def _group_metadata(self, group: str) -> object:
        """What names a group without a member; only a consumer gives it out, and it stays the same."""
        own = {
            **client_options.consumer_options(self._kafka, client_id=self._id),
            "group.id": group,
            "logger": self._events,
        }
        member = construct(lambda: Consumer(own), self._kafka.options)
        try:
            self._groups[group] = member.consumer_group_metadata()
        finally:
            member.close()
        return self._groups[group]

    def _hand_over(self, topic: str, partition: int, records: Iterator[Record]) -> bool:
        """The hot path: False when the queue was full for the record `records` stands behind."""
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
        """One record, with its callback; waits for room, and fails when there is none for `ROOM_TIMEOUT_S`."""
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
            # With an error nothing may be called here: librdkafka may be raising a fatal one at this moment, and a
            # call into C would turn it into a SystemError.
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
        """Let librdkafka call back; a fatal error comes out here."""
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
        """What the client raised, in our tree; a mere "fatal" or a SystemError is replaced by its cause."""
        attempt(lambda: self._producer.poll(0))  # so that the error events are here
        kafka_error = of(error)
        if not isinstance(error, TailraceError) and (kafka_error is None or kafka_error.name() == "_FATAL"):
            # Every transactional call answers a fatal state with its first cause, and does nothing else then.
            _, answer = attempt(lambda: self._producer.abort_transaction(CAUSE_WAIT_S))
            cause = of(answer)
            error = cause if cause is not None and cause.fatal() else error
        elif kafka_error is not None and kafka_error.name() in _PURGED:
            # Thrown away because the transaction failed: the commit, which cannot be after that, says why.
            _, answer = attempt(lambda: self._producer.commit_transaction(CAUSE_WAIT_S))
            error = of(answer) or error
        return translate(
            error,
            doing=doing,
            uncertain=uncertain,
            events=self._events,
            servers=self._servers,
            transactional_id=self._id,
            **facts,
        )
