"""Allows one driver at a time, by a Kafka transactional id under which every cut is committed.

Each cut's offsets are committed to the consumer group ``<name>.sink.<sink>``, in a transaction of the id of the same
name, right before the manifest. A driver that was replaced is refused there, so it publishes nothing. The offsets also
show the lake's progress to every lag monitor. What the lake holds is decided by its manifest alone. Published views go
to their topics in transactions of the same id (`sinks.warehouse.topics.view_topics`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from cdc.clock import Clock
from cdc.config.settings import Kafka
from cdc.kafka.producer import TransactionalProducer
from cdc.model.change_records import Record

Partition: TypeAlias = tuple[str, int]

_INIT_TIMEOUT_S: Final = 30.0
_TIMEOUT_S: Final = 50.0
_MESSAGE_BYTES: Final = 1 << 20  # the default limit, for a fence that sends no records


class Fence:
    """The fence of one sink. `take` it once, and `hold` it before every manifest."""

    def __init__(self, kafka: Kafka, name: str, clock: Clock, *, message_bytes_max: int = _MESSAGE_BYTES) -> None:
        self.name = name
        self._producer = TransactionalProducer(kafka, name, message_bytes_max=message_bytes_max, clock=clock)

    def take(self) -> None:
        """Take the fence from any previous driver. Raises BrokerUnreachable or BrokerRefused."""
        self._producer.init(_INIT_TIMEOUT_S)

    def hold(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Verify that the fence is still ours. Raises ProducerFenced if another driver took it."""
        self._producer.begin()
        self._producer.send_offsets(offsets, self.name, _TIMEOUT_S)
        self._producer.commit(_TIMEOUT_S)

    def send(
        self,
        records: Mapping[Partition, Sequence[Record]],
        closing: Callable[[Mapping[Partition, int]], tuple[str, Record]],
    ) -> None:
        """Commit records in one transaction, with one more record that is made once their offsets are known.

        Args:
            records: topic and partition -> records in order, at least one each.
            closing: receives the last offset of each partition; returns topic and record, for partition 0.

        Raises ProducerFenced if another driver took the fence; then nothing is committed.
        """
        ends: dict[Partition, int] = {}
        self._producer.begin()
        for (topic, partition), some in records.items():
            self._producer.produce_all(topic, partition, some, partial(ends.__setitem__, (topic, partition)))
        if records:
            self._producer.flush(_TIMEOUT_S)
        topic, record = closing(ends)
        self._producer.produce_all(topic, 0, [record])
        self._producer.flush(_TIMEOUT_S)
        self._producer.commit(_TIMEOUT_S)

    def close(self) -> None:
        """Close the client. The fence keeps its holder."""
        self._producer.close()
