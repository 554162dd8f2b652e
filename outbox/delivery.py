"""What a consumer gets, and where from: the contract between `outbox.consumer` and a log. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from outbox.errors import EventMissing

TopicPartition: TypeAlias = tuple[str, int]
"""Topic and partition."""

_NAMESPACE = uuid.UUID("6d3c1b0e-5c0a-5b5e-9d43-7f0f6f5b7a10")  # ids that are no UUID become one, always the same


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record of an event topic.

    Attributes:
        topic, partition, offset: where it lies.
        key: what orders it; empty where it has none.
        value: the payload as it was written; None where it has none.
        headers: text by name; of a name that comes twice the last.
    """

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None
    headers: Mapping[str, str]

    @property
    def place(self) -> TopicPartition:
        """The partition it lies in."""
        return self.topic, self.partition

    @property
    def id(self) -> uuid.UUID:
        """The event's id, by which a repetition is known. Raises EventMissing for a record without one."""
        text = self.headers.get("id", "")
        if not text:
            raise EventMissing("a record has no header `id`, so it is no event", topic=self.topic, offset=self.offset)
        try:
            return uuid.UUID(text)
        except ValueError:
            return uuid.uuid5(_NAMESPACE, text)

    @property
    def type(self) -> str:
        """What happened; empty for a record that does not say."""
        return self.headers.get("type", "")

    @property
    def version(self) -> int:
        """Of the payload's contract; 1 for a record that does not say."""
        text = self.headers.get("version", "1")
        return int(text) if text.isdecimal() and len(text) < 10 else 1


class Source(Protocol):
    """A log as one member of a group reads it. Called from one thread.

    Only committed records come, in the order of their partition; what is not committed by `commit` comes again to
    whoever has the partition next.
    """

    def poll(self, wait_s: float) -> Sequence[Delivery]:
        """What there is, after waiting up to `wait_s`."""

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """The offsets to read on from. Passed over where a partition is somebody else's by now."""

    def assigned(self) -> frozenset[TopicPartition]:
        """Partitions that are ours now."""

    def close(self) -> None:
        """Leave the group."""
