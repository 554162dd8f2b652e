"""Writes the topic ``<name>.__matches``: one record for each document that matches a stored query.

All records of a key are in one partition, in the order of its changes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from cdc.config.settings import Config
from cdc.errors import BrokerUnreachable, SinkUnfit, SinkUnreachable
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.cluster_facts import TopicSpec
from cdc.kafka.durable_writer import RecordWriter
from cdc.model.topic_names import matches_topic
from sinks.search.stored_queries import Match

_RETENTION_MS: Final = 7 * 86_400_000
"""As long as data topics keep deletes; a consumer that was down for longer must search the index."""


class MatchTopic:
    """Implements `sinks.search.stored_queries.Publisher`. Creates the topic when the first record is published."""

    def __init__(self, config: Config, sink: str) -> None:
        """No connection is made yet."""
        self._config = config
        self._topic = matches_topic(config.name)
        self._writer = RecordWriter(config.kafka, client_id=f"{config.name}.sink.{sink}.matches")
        self._partitions = 0
        self._lock = threading.Lock()

    def publish(self, matches: Sequence[Match]) -> None:
        """See `Publisher`. Also raises BrokerRefused."""
        with self._lock:
            try:
                count = self._count()
                self._writer.write(
                    [(self._topic, match.change.partition % count, match.key, match.value, None) for match in matches]
                )
            except BrokerUnreachable as error:
                raise SinkUnreachable(
                    f"cannot write matches of stored queries to {self._topic}",
                    hint="the documents are applied again when Kafka answers; repeated matches have equal keys",
                    topic=self._topic,
                ) from error

    def close(self) -> None:
        """End the connections. May be called twice."""
        self._writer.close()

    def _count(self) -> int:
        if not self._partitions:
            kafka, admin = self._config.kafka, TopicAdmin(self._config.kafka)
            facts = admin.describe([self._topic])[self._topic]
            if facts is None and not kafka.create_topics:
                raise SinkUnfit(
                    f"topic {self._topic} does not exist, and kafka.create_topics is false",
                    hint="stored queries need it: create it, with any number of partitions",
                    topic=self._topic,
                )
            if facts is None:
                configs = {"cleanup.policy": "delete", "retention.ms": str(_RETENTION_MS)}
                admin.create([TopicSpec(
                    topic=self._topic,
                    partition_count=kafka.partitions,
                    replication_factor=kafka.replication_factor,
                    configs=configs,
                )])  # fmt: skip
                facts = admin.describe([self._topic])[self._topic]
            self._partitions = facts.partition_count if facts else kafka.partitions
        return self._partitions
