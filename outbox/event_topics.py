"""Names of event topics, one for each type of aggregate: injective, legal, the same for ever. Pure.

The pattern of `[outbox] topic` has the escaped type in one place, so two types never share a topic, and a type whose
topic's name would be too long has none: it is not cut, for then two might.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.config.outbox_settings import AGGREGATE, PIPELINE, Outbox
from cdc.model.topic_names import TOPIC_LENGTH_MAX, escape, unescape


@dataclass(frozen=True, slots=True)
class EventTopics:
    """What stands before and behind the escaped type of an aggregate."""

    head: str
    tail: str

    @classmethod
    def of(cls, name: str, settings: Outbox) -> EventTopics:
        """Those of a pipeline, whose pattern was checked when it was loaded."""
        head, _, tail = settings.topic.replace(PIPELINE, name).partition(AGGREGATE)
        return cls(head, tail)

    def topic(self, aggregate_type: bytes) -> str | None:
        """The topic of a type; None when there can be none: it is empty or no UTF-8, or the name too long."""
        try:
            topic = f"{self.head}{escape(aggregate_type.decode())}{self.tail}"
        except UnicodeDecodeError:
            return None
        return topic if aggregate_type and len(topic) <= TOPIC_LENGTH_MAX else None

    def type_of(self, topic: str) -> str | None:
        """The type of aggregate whose topic it is; None for another topic."""
        if not topic.startswith(self.head) or not topic.endswith(self.tail):
            return None
        inner = topic[len(self.head) : len(topic) - len(self.tail)]
        found = unescape(inner)
        return found if inner and self.topic(found.encode()) == topic else None
