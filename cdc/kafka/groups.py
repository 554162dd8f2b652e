"""Asks how far a consumer group has committed, from outside of the group: nothing joins it, nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from cdc.config.settings import Kafka
from cdc.errors import TailraceError
from cdc.kafka import facts, options
from cdc.kafka.errors import attempt, construct, guarded, translate
from cdc.kafka.events import ClientEvents

TIMEOUT_S: Final = 10.0


class GroupOffsets:
    """The committed offsets of one group. Calls come from one thread at a time."""

    def __init__(self, kafka: Kafka, group: str) -> None:
        """No connection is made yet. Raises ConfigError for options nobody takes."""
        self._events = ClientEvents()
        self._servers = kafka.bootstrap
        config: dict[str, object] = {
            **options.consumer_options(kafka, client_id=f"tailrace-offsets-{group}"),
            "group.id": group,
            "error_cb": self._events.on_error,
            "logger": self._events,
        }
        self._consumer = construct(lambda: Consumer(config), kafka.options)

    def committed(self, partitions: Iterable[facts.TopicPartition]) -> dict[facts.TopicPartition, int]:
        """The offset each partition is to be read on from; none for one that was never committed.

        Raises BrokerUnreachable, BrokerRefused.
        """
        wanted = [TopicPartition(topic, partition) for topic, partition in partitions]
        if not wanted:
            return {}
        found = guarded(lambda: self._consumer.committed(wanted, timeout=TIMEOUT_S), self._error)
        for one in found:
            if one.error is not None:
                raise self._error(one.error)
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    def close(self) -> None:
        """End the connections. May be called twice."""
        attempt(self._consumer.close)

    def _error(self, error: object) -> TailraceError:
        attempt(lambda: self._consumer.poll(0))
        doing = "read the group's offsets"
        return translate(error, doing=doing, uncertain=False, events=self._events, servers=self._servers)
