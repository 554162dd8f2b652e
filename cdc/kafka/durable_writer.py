"""Writes records durably outside of transactions, one batch at a time: the state that sinks keep in Kafka.

Never used for data. When `RecordWriter.write` returns, every in-sync replica has the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from confluent_kafka import KafkaError, Message, Producer

from cdc.config.settings import Kafka
from cdc.errors import InvariantError, TailraceError
from cdc.kafka import client_options
from cdc.kafka.callbacks import callbacks
from cdc.kafka.client_errors import attempt, guarded, translate, unreachable
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.sasl_rotation import create
from cdc.model.change_records import Headers

WRITE_TIMEOUT_S: Final = 15.0
MESSAGE_BYTES_MAX: Final = 4 << 20
QUEUED_MAX: Final = 10_000  # handed to librdkafka before waiting for delivery; its queue holds 100,000

OutRecord: TypeAlias = tuple[str, int, bytes, bytes | None, Headers | None]
"""(topic, partition, key, value or None for a tombstone, headers)."""


class RecordWriter:
    """One idempotent producer, created when first needed and again after an error. Used by one thread."""

    def __init__(
        self,
        kafka: Kafka,
        *,
        client_id: str,
        timeout_s: float = WRITE_TIMEOUT_S,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        """Makes no connection yet. `timeout_s` limits one `write`. Topics must exist; this class never creates them."""
        self._kafka = kafka
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._message_bytes_max = message_bytes_max
        self._events = ClientEvents()
        self._producer: Producer | None = None

    def write(self, records: Sequence[OutRecord]) -> list[int]:
        """Write records in order and return their offsets, in the same order.

        After an error some of the records may have been written: write all of them again. Raises TopicMismatch,
        BrokerRefused, BrokerUnreachable, RowRefused.
        """
        offsets: list[int] = []
        for start in range(0, len(records), QUEUED_MAX):
            offsets += self._write(records[start : start + QUEUED_MAX])
        return offsets

    def close(self) -> None:
        """Drop the producer; records that were not written yet are lost. May be called twice."""
        producer, self._producer = self._producer, None
        if producer is not None:
            attempt(producer.purge)
            attempt(lambda: producer.flush(0))

    def _write(self, records: Sequence[OutRecord]) -> list[int]:
        try:
            return self._delivered(records)
        except TailraceError:
            self.close()
            raise

    def _delivered(self, records: Sequence[OutRecord]) -> list[int]:
        producer = self._open()
        offsets: dict[int, int] = {}
        errors: list[tuple[KafkaError, str]] = []

        def reported(index: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append((error, records[index][0]))
            elif (offset := message.offset()) is not None:
                offsets[index] = offset

        for index, (topic, partition, key, value, headers) in enumerate(records):

            def hand_over(
                index: int = index,
                topic: str = topic,
                partition: int = partition,
                key: bytes = key,
                value: bytes | None = value,
                headers: Headers | None = headers,
            ) -> None:
                producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=lambda error, message: reported(index, error, message),
                    headers=list(headers or ()),
                )

            guarded(hand_over, lambda error, topic=topic: self._error(error, topic))  # type: ignore[misc]
        left = guarded(lambda: producer.flush(self._timeout_s), lambda error: self._error(error, ""))
        if errors:
            raise self._error(*errors[0])
        if left:
            what = f"write {left} records in {self._timeout_s:g} s"
            raise unreachable(what, None, self._events, servers=self._kafka.bootstrap)
        if len(offsets) < len(records):
            raise InvariantError("records were delivered without an offset")
        return [offsets[index] for index in range(len(records))]

    def _open(self) -> Producer:
        if self._producer is None:
            self._events = ClientEvents()
            config: dict[str, object] = {
                **client_options.sender_options(
                    self._kafka, timeout_s=self._timeout_s, message_bytes_max=self._message_bytes_max
                ),
                "client.id": self._client_id,
                **callbacks(self._kafka, self._events),
            }
            self._producer = create(Producer, config, self._kafka, self._events)
        return self._producer

    def _error(self, error: object, topic: str) -> TailraceError:
        facts = {"topic": topic} if topic else {}
        return translate(
            error,
            doing="write records",
            uncertain=False,
            events=self._events,
            servers=self._kafka.bootstrap,
            **facts,
        )
