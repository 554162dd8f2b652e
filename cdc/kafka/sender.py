"""Sends one record outside of transactions, for example a signal. Never used for data."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from cdc.config.settings import Kafka
from cdc.errors import InvariantError, TailraceError
from cdc.kafka import client_options
from cdc.kafka.callbacks import callbacks
from cdc.kafka.client_errors import attempt, guarded, translate, unreachable
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.log_reader import LogReader
from cdc.kafka.sasl_rotation import create

SEND_TIMEOUT_S: Final = 15.0


def send(kafka: Kafka, topic: str, key: bytes, value: bytes, *, timeout_s: float = SEND_TIMEOUT_S) -> int:
    """Write a record to partition 0 and return its offset once every in-sync replica has it.

    Raises TopicMismatch when the topic does not exist (this function never creates it), BrokerRefused,
    BrokerUnreachable.
    """
    with LogReader(kafka, client_id="tailrace-sender") as reader:
        reader.partitions([topic], timeout_s=timeout_s)
    events = ClientEvents()
    config: dict[str, object] = {
        **client_options.sender_options(kafka, timeout_s=timeout_s),
        **callbacks(kafka, events),
    }
    producer = create(Producer, config, kafka, events)
    doing = f"write to {topic}"

    def failed(error: object) -> TailraceError:
        return translate(error, doing=doing, uncertain=False, events=events, servers=kafka.bootstrap, topic=topic)

    offsets: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        elif (offset := message.offset()) is not None:
            offsets.append(offset)

    guarded(lambda: producer.produce(topic, value, key, 0, delivered), failed)
    left = guarded(lambda: producer.flush(timeout_s), failed)
    if left:
        attempt(producer.purge)
        raise unreachable(f"{doing} in {timeout_s:g} s", None, events, servers=kafka.bootstrap)
    if errors:
        raise failed(errors[0])
    if not offsets:
        raise InvariantError(f"a record of {topic} was delivered without an offset")
    return offsets[0]
