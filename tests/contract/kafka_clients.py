"""Clients and topics for the contract tests of `cdc.kafka`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from cdc.config.secret import Secret
from cdc.config.settings import Kafka
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.cluster_facts import TopicSpec
from cdc.kafka.log_reader import LogReader
from cdc.kafka.producer import TransactionalProducer
from cdc.model.change_records import Record
from cdc.model.log_record import LogRecord

MESSAGE_BYTES_MAX: Final = 1 << 20
WAIT_S: Final = 90.0
T = TypeVar("T")
NOWHERE: Final = Kafka(bootstrap="127.0.0.1:1")
"""A port nobody listens on."""


class Broker(Protocol):
    """The part of a Kafka server these tests need."""

    @property
    def bootstrap(self) -> str: ...


def settings_of(kafka: Broker, **options: str) -> Kafka:
    """The section of cdc.toml for a broker; options with `__` for dots."""
    named = {name.replace("__", "."): Secret(value) for name, value in options.items()}
    return Kafka(bootstrap=kafka.bootstrap, replication_factor=1, allow_unreplicated=True, options=named)


def create_topic(kafka: Broker, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
    TopicAdmin(settings_of(kafka)).create(
        [TopicSpec(topic=topic, partition_count=partitions, replication_factor=1, configs=configs or {})]
    )
    return topic


@contextmanager
def producing(
    kafka: Broker, transactional_id: str, *, message_bytes_max: int = MESSAGE_BYTES_MAX, **options: str
) -> Iterator[TransactionalProducer]:
    """A producer that has its transactional id."""
    producer = TransactionalProducer(
        settings_of(kafka, **options), transactional_id, message_bytes_max=message_bytes_max
    )
    try:
        producer.init(WAIT_S)
        yield producer
    finally:
        producer.close()


def publish(producer: TransactionalProducer, topic: str, partition: int, records: Sequence[Record]) -> int:
    """One transaction; returns the offset of its last record."""
    offsets: list[int] = []
    producer.begin()
    producer.produce_all(topic, partition, records, offsets.append)
    producer.flush(WAIT_S)
    producer.commit(WAIT_S)
    (offset,) = offsets
    return offset


def read_all(kafka: Broker, *topics: str, count: int) -> list[LogRecord]:
    """Every committed record of the topics, once there are at least `count`.

    A commit is durable when it returns, and visible only when its markers are written, a few milliseconds later.
    """
    end_s = time.monotonic() + WAIT_S
    with LogReader(settings_of(kafka)) as reader:
        while True:
            ends = reader.end_offsets(topics)
            start = {at: low for at, (low, _) in ends.items()}
            until = {at: high for at, (_, high) in ends.items()}
            records = [record for batch in reader.read(start, until, timeout_s=WAIT_S) for record in batch]
            if len(records) >= count or time.monotonic() > end_s:
                return records


def eventually(look: Callable[[], T], wanted: T) -> None:
    """Fail unless `look()` is `wanted` soon; for what is only visible once markers are written."""
    end_s = time.monotonic() + WAIT_S
    while (found := look()) != wanted:
        assert time.monotonic() < end_s, found


def values(records: Sequence[LogRecord]) -> list[bytes | None]:
    return [value for *_, value, _ in records]


def rows(*texts: str) -> list[Record]:
    return [(f"k{text}".encode(), text.encode(), None) for text in texts]
