"""A committed record of a Kafka topic, as readers return it."""

from __future__ import annotations

from typing import NamedTuple

from cdc.model.change_records import Headers


class LogRecord(NamedTuple):
    """A committed record. A named tuple, because readers create one for each record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None

    @property
    def topic_partition(self) -> tuple[str, int]:
        """(topic, partition)."""
        return self[:2]
