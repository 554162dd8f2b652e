"""Writes records outside of any transaction, durably, one batch at a time: what sinks keep about themselves.

Never used for data. What `RecordWriter.write` was given is on every replica in sync when it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from confluent_kafka import KafkaError, Message, Producer

from cdc.config.settings import Kafka
from cdc.errors import InvariantError, TailraceError
from cdc.kafka import client_options
from cdc.kafka.client_errors import attempt, construct, guarded, translate, unreachable
from cdc.kafka.client_events import ClientEvents
from cdc.model.change_records import Headers

WRITE_TIMEOUT_S: Final = 15.0
MESSAGE_BYTES_MAX: Final = 4 << 20
QUEUED_MAX: Final = 10_000  # handed to librdkafka before their delivery is waited for; it takes 100,000

OutRecord: TypeAlias = tuple[str, int, bytes, bytes | None, Headers | None]
"""(topic, partition, key, value or None for a tombstone, headers)."""


class RecordWriter:
    """One idempotent producer, made when it is first needed and again after an error. One thread."""

    def __init__(
        self,
        kafka: Kafka,
        *,
        client_id: str,
        timeout_s: float = WRITE_TIMEOUT_S,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        """No connection is made yet. `timeout_s` is for one `write`; topics must exist, they are never made by this."""
        self._kafka = kafka
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._message_bytes_max = message_bytes_max
        self._events = ClientEvents()
        self._producer: Producer | None = None

    def write(self, records: Sequence[OutRecord]) -> list[int]:
        """Their offsets, in the same order; order per partition is theirs.

        After an error some of them may be there: write all of them again. Raises TopicMismatch, BrokerRefused,
        BrokerUnreachable, RowRefused.
        """
        offsets: list[int] = []
        for start in range(0, len(records), QUEUED_MAX):
            offsets += self._write(records[start : start + QUEUED_MAX])
        return offsets

    def close(self) -> None:
        """Let go of the producer; what was not written is not written later either. May be called twice."""
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
                "error_cb": self._events.on_error,
                "logger": self._events,
            }
            self._producer = construct(lambda: Producer(config), self._kafka.options)
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
