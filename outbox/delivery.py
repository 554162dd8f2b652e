"""The records that a consumer receives, and the interface of the log that they come from. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from outbox.errors import EventMissing

TopicPartition: TypeAlias = tuple[str, int]
"""Topic and partition number."""

_NAMESPACE = uuid.UUID("6d3c1b0e-5c0a-5b5e-9d43-7f0f6f5b7a10")  # for ids that are not UUIDs


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record of an event topic.

    Attributes:
        topic, partition, offset: its position in the log.
        key: records with the same key are in order; empty if it has none.
        value: the payload as it was written; None if it has none.
        headers: text by name; if a name is repeated, the last value.
    """

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None
    headers: Mapping[str, str]

    @property
    def place(self) -> TopicPartition:
        """Return its topic and partition."""
        return self.topic, self.partition

    @property
    def id(self) -> uuid.UUID:
        """Return the event's id, which identifies a repeated event. Raises EventMissing if the record has none."""
        text = self.headers.get("id", "")
        if not text:
            raise EventMissing("a record without the header `id` is not an event", topic=self.topic, offset=self.offset)
        try:
            return uuid.UUID(text)
        except ValueError:
            return uuid.uuid5(_NAMESPACE, text)

    @property
    def type(self) -> str:
        """Return the event type; empty if the record has none."""
        return self.headers.get("type", "")

    @property
    def version(self) -> int:
        """Return the version of the payload's contract; 1 if the record has none."""
        text = self.headers.get("version", "1")
        return int(text) if text.isdecimal() and len(text) < 10 else 1


class Source(Protocol):
    """A log as one member of a consumer group reads it. Called from one thread.

    It delivers only committed records, in the order of their partition. Records above the committed offset are
    delivered again to the next owner of the partition.
    """

    def poll(self, wait_s: float) -> Sequence[Delivery]:
        """Return new records; wait up to `wait_s` seconds for the first."""

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read. Ignore partitions that are no longer assigned."""

    def assigned(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned to this member."""

    def close(self) -> None:
        """Leave the group."""
