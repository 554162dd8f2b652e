"""Implements `outbox.delivery.Source` for Kafka: a group member that reads committed records of event topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cdc.config.secret import Secret
from cdc.config.settings import Kafka
from cdc.kafka.group_member import GroupConsumer, PartitionStart
from cdc.model.log_record import LogRecord
from outbox.delivery import Delivery, TopicPartition


class _Assignment:
    """Tracks the assigned partitions; implements `cdc.kafka.group_member.Membership`.

    Polling and processing run in one thread, so all polled records are processed when a partition is revoked.
    """

    def __init__(self) -> None:
        self.places: set[TopicPartition] = set()

    def assigned(self, places: Mapping[TopicPartition, PartitionStart]) -> Mapping[TopicPartition, int]:
        """Start at the committed offset, or at the first record without one."""
        self.places.update(places)
        return {at: found.low if found.committed is None else found.committed.offset for at, found in places.items()}

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        """Drop partitions that go to another member."""
        self.places.difference_update(places)

    def lost(self, places: Sequence[TopicPartition]) -> None:
        """Drop partitions that another member already has."""
        self.places.difference_update(places)


class KafkaSource:
    """A `Source` that reads Kafka. A new group starts at the first record of each partition."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str],
        *,
        instance: str = "",
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`options` are librdkafka's. Raises ConfigError for an unknown option."""
        given = {name: Secret(value) for name, value in (options or {}).items()}
        self._assignment = _Assignment()
        self._group = GroupConsumer(
            Kafka(bootstrap=bootstrap, options=given), group, self._assignment, instance=instance
        )
        self._ended: set[TopicPartition] = set()
        self._group.subscribe(topics)

    def poll(self, wait_s: float) -> Sequence[Delivery]:
        """See `Source.poll`. Raises BrokerError by cause."""
        polled = self._group.poll(wait_s)
        found = [delivery(record) for record in polled.records]
        self._ended.difference_update(one.place for one in found)
        self._ended.update(polled.ends)
        return found

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `Source.commit`."""
        self._group.commit({at: (offset, "") for at, offset in positions.items() if at in self._assignment.places})

    def assigned(self) -> frozenset[TopicPartition]:
        """See `Source.assigned`."""
        return frozenset(self._assignment.places)

    def level(self) -> bool:
        """Whether every assigned partition was read to its end; False if no partition is assigned."""
        return bool(self._assignment.places) and self._assignment.places <= self._ended

    def close(self) -> None:
        """See `Source.close`."""
        self._group.close()


def delivery(record: LogRecord) -> Delivery:
    """Convert a log record to a `Delivery`."""
    topic, partition, offset, _, key, value, headers = record
    texts = {name: (text or b"").decode(errors="replace") for name, text in headers or ()}
    return Delivery(topic, partition, offset, key or b"", value, texts)
