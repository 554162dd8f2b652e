"""Selects the decoder for the records of each topic, by `encode.format` and the schema records."""

from __future__ import annotations

from typing import Final

from cdc.config.settings import Config
from cdc.kafka.log_reader import LogReader
from cdc.kafka.schema_registry import ConfluentRegistry
from cdc.model.topic_names import schema_topic
from cdc.progress.record_format import decode_schema
from cdc.verify.avro_events import AvroFormat
from cdc.verify.log_events import FLAT, JSON, Format

_PLAIN: Final = {"json": JSON, "flat": FLAT}


class TopicFormats:
    """The formats of a pipeline's topics. Call `close`."""

    def __init__(self, config: Config, reader: LogReader) -> None:
        """Raises ConfigError when the client of the schema registry is not installed."""
        self._config = config
        self._reader = reader
        self._registry = ConfluentRegistry(config.registry) if config.encode.format == "avro" else None
        self._encodings: dict[str, dict[str, str]] = {}

    def close(self) -> None:
        """End the connections."""
        if self._registry is not None:
            self._registry.close()

    def of(self, topic: str) -> Format:
        """Return the format of a topic. Raises errors of Kafka."""
        if self._registry is None:
            return _PLAIN[self._config.encode.format]
        if not self._encodings:
            self._encodings = self._read()
        return AvroFormat(self._registry.schema, self._encodings.get(topic, {})).format

    def _read(self) -> dict[str, dict[str, str]]:
        """Return the encodings of the key columns of each topic, from its newest schema."""
        found: dict[str, tuple[int, int, dict[str, str]]] = {}
        schemas = schema_topic(self._config.name)
        for _, value in self._reader.last_records(schemas).values():
            record = decode_schema(value, schemas)
            encodings = {column.name: column.encoding for column in record.columns if column.key}
            place = (record.epoch, record.lsn, encodings)
            if record.topic not in found or found[record.topic][:2] <= place[:2]:
                found[record.topic] = place
        return {topic: encodings for topic, (_, _, encodings) in found.items()}
