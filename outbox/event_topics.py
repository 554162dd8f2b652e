"""Maps each aggregate type to the name of its event topic, and back. Pure.

The mapping must never change, and no two types may share a topic. So the pattern of `[outbox] topic` contains the
escaped type once. A type whose topic name would be too long has no topic; truncated names could collide.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.config.outbox_settings import AGGREGATE, PIPELINE, Outbox
from cdc.model.topic_names import TOPIC_LENGTH_MAX, escape, unescape


@dataclass(frozen=True, slots=True)
class EventTopics:
    """The parts of the topic name before and after the escaped aggregate type."""

    head: str
    tail: str

    @classmethod
    def of(cls, name: str, settings: Outbox) -> EventTopics:
        """Return the names for a pipeline; the configuration has validated the pattern."""
        head, _, tail = settings.topic.replace(PIPELINE, name).partition(AGGREGATE)
        return cls(head, tail)

    def topic(self, aggregate_type: bytes) -> str | None:
        """Return the topic of a type; None if the type is empty or not UTF-8, or the name too long."""
        try:
            topic = f"{self.head}{escape(aggregate_type.decode())}{self.tail}"
        except UnicodeDecodeError:
            return None
        return topic if aggregate_type and len(topic) <= TOPIC_LENGTH_MAX else None

    def type_of(self, topic: str) -> str | None:
        """Return the aggregate type of an event topic; None for any other topic."""
        if not topic.startswith(self.head) or not topic.endswith(self.tail):
            return None
        inner = topic[len(self.head) : len(topic) - len(self.tail)]
        found = unescape(inner)
        return found if inner and self.topic(found.encode()) == topic else None
