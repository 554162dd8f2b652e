"""Where a consumer group is, asked without being a member of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from cdc.config.settings import Kafka
from cdc.errors import TailraceError
from cdc.kafka import facts, options
from cdc.kafka.errors import construct, guarded, translate
from cdc.kafka.events import ClientEvents

ASK_S: Final = 30.0


class GroupOffsets:
    """Asks for the committed offsets of one group. Thread-safe."""

    def __init__(self, kafka: Kafka, group: str) -> None:
        """No connection is made yet. Raises ConfigError for options nobody takes."""
        self._group = group
        self._servers = kafka.bootstrap
        self._events = ClientEvents()
        config: dict[str, Any] = {
            **options.admin_options(kafka, client_id="tailrace-group"),
            "error_cb": self._events.on_error,
            "logger": self._events,
        }
        self._client = construct(lambda: AdminClient(config), kafka.options)

    def committed(self, partitions: Iterable[facts.TopicPartition]) -> dict[facts.TopicPartition, int]:
        """The next offset of each partition; those for which the group has committed nothing are left out.

        Raises BrokerUnreachable, BrokerRefused.
        """
        wanted = ConsumerGroupTopicPartitions(self._group, [TopicPartition(*at) for at in partitions])
        asked = guarded(lambda: self._client.list_consumer_group_offsets([wanted], request_timeout=ASK_S), self._error)
        answer = guarded(lambda: asked[self._group].result(ASK_S), self._error)
        for one in answer.topic_partitions:
            if one.error is not None:
                raise self._error(one.error)
        return {(one.topic, one.partition): one.offset for one in answer.topic_partitions if one.offset >= 0}

    def _error(self, error: object) -> TailraceError:
        return translate(
            error,
            doing=f"read the offsets of group {self._group}",
            uncertain=False,
            events=self._events,
            servers=self._servers,
        )
