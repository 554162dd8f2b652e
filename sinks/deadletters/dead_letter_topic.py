"""Reads and writes the dead-letter topic ``<name>.__dlq.<sink>``: one partition, kept for 90 days."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cdc.config.settings import Config
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.durable_writer import RecordWriter
from cdc.kafka.log_reader import LogReader
from cdc.model.change_records import Record
from cdc.model.topic_names import dead_letters_topic, sink_group
from cdc.publish.topic_rules import DEAD_LETTER_BYTES, dead_letters_want, message_bytes_max
from cdc.publish.topic_setup import ensure_topics
from sinks.deadletters.dead_letter_record import DeadLetter, parse_dead_letter

_PARTITION: Final = 0


class DeadLetterTopic:
    """Reads and writes dead letters. One thread.

    Creates the topic when opened. Every method raises TopicMismatch, BrokerRefused, BrokerUnreachable, RowRefused.
    """

    def __init__(self, config: Config, sink: str) -> None:
        self.topic = dead_letters_topic(config.name, sink)
        row_bytes_max = config.capture.row_bytes_max
        ensure_topics(
            TopicAdmin(config.kafka),
            [dead_letters_want(self.topic, config.kafka, row_bytes_max=row_bytes_max)],
            kafka=config.kafka,
            create=config.kafka.create_topics,
            recorded_partitions={},
            recorded_topic_ids={},
        )
        client_id = f"{sink_group(config.name, sink)}.dlq"
        self._reader = LogReader(config.kafka, client_id=client_id)
        size = message_bytes_max(row_bytes_max) + DEAD_LETTER_BYTES
        self._writer = RecordWriter(config.kafka, client_id=client_id, message_bytes_max=size)

    def append(self, letters: Sequence[Record]) -> list[int]:
        """See `sinks.deadletters.dead_letter_queue.DeadLetterLog`."""
        return self._writer.write(
            [(self.topic, _PARTITION, key or b"", value, headers) for key, value, headers in letters]
        )

    def read(self, start: int = 0) -> Iterator[DeadLetter]:
        """See `sinks.deadletters.dead_letter_queue.DeadLetterLog`; starts at the first available offset."""
        place = (self.topic, _PARTITION)
        low, high = self._reader.end_offsets([self.topic])[place]
        for batch in self._reader.read({place: max(low, start)}, {place: high}):
            yield from map(parse_dead_letter, batch)

    def close(self) -> None:
        """End the connections. May be called twice."""
        self._writer.close()
        self._reader.close()
