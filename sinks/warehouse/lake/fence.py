"""One driver at a time: a Kafka transactional id that every cut is committed under.

Each cut's offsets are committed to the consumer group ``<name>.sink.<sink>`` in a transaction of the id of the same
name, right before the manifest. A driver that another one has replaced is refused there, so it publishes nothing; and
every lag monitor sees how far the lake is. What the lake holds is said by its manifest alone. Published views go to
their topics in transactions of the same id (`sinks.warehouse.topics.view_topics`).
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
_MESSAGE_BYTES: Final = 1 << 20  # of what is sent when nobody says more: no records


class Fence:
    """See the top of the file. `take` it once, `hold` it before every manifest."""

    def __init__(self, kafka: Kafka, name: str, clock: Clock, *, message_bytes_max: int = _MESSAGE_BYTES) -> None:
        self.name = name
        self._producer = TransactionalProducer(kafka, name, message_bytes_max=message_bytes_max, clock=clock)

    def take(self) -> None:
        """Replace whoever had it. Raises BrokerUnreachable or BrokerRefused."""
        self._producer.init(_INIT_TIMEOUT_S)

    def hold(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Make sure that we still have it. Raises ProducerFenced when another driver took it."""
        self._producer.begin()
        self._producer.send_offsets(offsets, self.name, _TIMEOUT_S)
        self._producer.commit(_TIMEOUT_S)

    def send(
        self,
        records: Mapping[Partition, Sequence[Record]],
        closing: Callable[[Mapping[Partition, int]], tuple[str, Record]],
    ) -> None:
        """Commit records in one transaction, with one that is made when they have their offsets.

        Args:
            records: topic and partition -> records in order; at least one each.
            closing: last offset of each partition -> topic and record, for partition 0.

        Raises ProducerFenced when another driver took the fence; then nothing is committed.
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
        """Let go of the client; the fence stays where it is."""
        self._producer.close()
