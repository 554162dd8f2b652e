"""Kafka as a `Source`: a member of a consumer group that reads committed records of event topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cdc.config.secret import Secret
from cdc.config.settings import Kafka
from cdc.kafka.group_member import GroupConsumer, PartitionStart
from cdc.model.log_record import LogRecord
from outbox.delivery import Delivery, TopicPartition


class _Ours:
    """See `cdc.kafka.group_member.Membership`: which partitions are ours.

    What was polled of one is dealt with by the time it goes, since all of it is one thread.
    """

    def __init__(self) -> None:
        self.places: set[TopicPartition] = set()

    def assigned(self, places: Mapping[TopicPartition, PartitionStart]) -> Mapping[TopicPartition, int]:
        """Read on from what is committed, or from the first record there is."""
        self.places.update(places)
        return {at: found.low if found.committed is None else found.committed.offset for at, found in places.items()}

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        """They go to somebody else."""
        self.places.difference_update(places)

    def lost(self, places: Sequence[TopicPartition]) -> None:
        """They are somebody else's already."""
        self.places.difference_update(places)


class KafkaSource:
    """See `outbox.delivery.Source`. A group that never was begins at the first record there is."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str],
        *,
        instance: str = "",
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`options`: librdkafka's. Raises ConfigError for options nobody takes."""
        given = {name: Secret(value) for name, value in (options or {}).items()}
        self._ours = _Ours()
        self._group = GroupConsumer(Kafka(bootstrap=bootstrap, options=given), group, self._ours, instance=instance)
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
        self._group.commit({at: (offset, "") for at, offset in positions.items() if at in self._ours.places})

    def assigned(self) -> frozenset[TopicPartition]:
        """See `Source.assigned`."""
        return frozenset(self._ours.places)

    def level(self) -> bool:
        """Whether every partition that is ours was read to its end; False while none is."""
        return bool(self._ours.places) and self._ours.places <= self._ended

    def close(self) -> None:
        """See `Source.close`."""
        self._group.close()


def delivery(record: LogRecord) -> Delivery:
    """A record of the log as consumers get it."""
    topic, partition, offset, _, key, value, headers = record
    told = {name: (text or b"").decode(errors="replace") for name, text in headers or ()}
    return Delivery(topic, partition, offset, key or b"", value, told)
