"""Routes events to the buffers of their topics, and collects refused events with their reasons. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from murmurhash2 import murmurhash2

from cdc.config.outbox_settings import Outbox
from cdc.encode.partitioner import SEED
from cdc.model.change_records import Headers, Record, Stamp, TopicBuffer
from outbox.event_topics import EventTopics

REASON: Final = "refused-reason"
NO_KEY: Final = "no_key"
REASONS: Final = {
    "no_id": "it has no id",
    "no_type": "it has no type",
    "no_aggregate_type": "it has no aggregate type",
    "topic_name": "Kafka does not accept the topic name of its aggregate type",
    "types_max": "`[outbox] types_max` event topics exist already",
    NO_KEY: "it has neither an ordering key nor an aggregate id",
    "no_payload": 'it has no payload, and `[outbox] null_payload` is "refuse"',
    "headers": "its headers are not a JSON object",
    "envelope": "its payload is bytes, but `[outbox] extra` needs an envelope in JSON",
    "too_large": "it is larger than `capture.row_bytes_max`; its record has no value",
    "message": "the logical message is not one event in JSON",
    "not_transactional": "the logical message was emitted outside the transaction, which may have been rolled back",
}
"""Why an event is refused, by the value of the header and of the metric's label."""

_KEY_BYTES: Final = 4096  # of a refused event, so that its record always fits


@dataclass(slots=True)
class RefusedEvent:
    """An event that cannot be published, with the fields that it has."""

    reason: str
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(slots=True)
class Counts:
    """Numbers of routed, ignored and refused events."""

    events: int = 0
    ignored: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.events or self.ignored or self.refused)


class Route:
    """Buffered records of one topic; a single list until the topic is opened and its partition count is known."""

    __slots__ = ("opened", "partitions", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.opened = False
        self.partitions: list[list[Record]] = [[]]

    def put(self, key: bytes, record: Record) -> None:
        """Append a record to the partition of a key."""
        self.partitions[(murmurhash2(key, SEED) & 0x7FFFFFFF) % len(self.partitions)].append(record)

    def open(self, partition_count: int) -> TopicBuffer:
        """Move the waiting records to their partitions, in order; return the buffer of the topic."""
        buffer = TopicBuffer(self.topic, partition_count, compacted=False)
        waiting, self.partitions, self.opened = self.partitions[0], buffer.partitions, True
        for record in waiting:
            self.put(record[0] or b"", record)
        return buffer


class EventRoutes:
    """The routes of one pipeline's event topics and of its topic of refused events.

    A new topic is not created here: its records wait in one list until `gather` opens the topic, right before the batch
    is handed over. So the topic id and the records are in the same Kafka transaction.

    Attributes:
        traced: called with the headers of every event that is published; None: not traced.
        counts: of the events since the caller last replaced this object.
        routes: by aggregate type.
    """

    def __init__(
        self,
        settings: Outbox,
        topics: EventTopics,
        refused_topic: str,
        *,
        row_bytes_max: int,
        open_topic: Callable[[str], int | None],
        known: Sequence[str] = (),
    ) -> None:
        """Create the routes.

        Args:
            settings: the section `[outbox]`.
            topics: names of event topics.
            refused_topic: topic of refused events.
            row_bytes_max: maximum size of a record.
            open_topic: creates or checks a topic and returns its partition count; None if Kafka does not accept the
                name beside the existing topics.
            known: existing event topics.
        """
        self.settings = settings
        self.row_bytes_max = row_bytes_max
        self.counts = Counts()
        self.traced: Callable[[Headers], None] | None = None
        self._topics = topics
        self._open_topic = open_topic
        self._refused = Route(refused_topic)
        self._known = set(known)
        self.routes: dict[bytes, Route] = {}
        self._impossible: set[bytes] = set()
        self._unopened: list[Route] = []

    def gather(self) -> Sequence[TopicBuffer]:
        """See `cdc.contracts.Stage.gather`."""
        opened: list[TopicBuffer] = []
        for route in self._unopened:
            partition_count = self._open_topic(route.topic)
            if partition_count is None:
                self._refuse_waiting(route)
            else:
                opened.append(route.open(partition_count))
        self._unopened = []
        if self._refused.partitions[0] and not self._refused.opened:
            count = self._open_topic(self._refused.topic)
            assert count is not None, "the topic of refused events always has a valid name"
            opened.append(self._refused.open(count))
        return opened

    def refuse(self, refused: RefusedEvent, stamp: Stamp, ordinal: int) -> None:
        """Write an event with its reason to the topic of refused events."""
        self.counts.refused[refused.reason] += 1
        headers: Headers = [
            (REASON, refused.reason.encode()),
            ("refused-commit-lsn", b"%d" % stamp.commit_lsn),
            ("refused-ordinal", b"%d" % ordinal),
        ]
        headers += [(name, value) for name, value in refused.headers if value is not None]
        value = refused.value
        if value is not None and size_of(refused.key, value, headers) > self.row_bytes_max:
            value = None
        key = (refused.key or b"")[:_KEY_BYTES]
        self._refused.put(key, (key, value, headers))

    def new_route(self, aggregate_type: bytes) -> Route | str:
        """Add a route for an aggregate type and return it, or the reason why its events are refused.

        Reasons are not cached, because the number of such types is not bounded.
        """
        if not aggregate_type:
            return "no_aggregate_type"
        topic = None if aggregate_type in self._impossible else self._topics.topic(aggregate_type)
        if topic is None:
            return "topic_name"
        if topic not in self._known:
            if len(self._known) >= self.settings.types_max:
                return "types_max"
            self._known.add(topic)
        route = self.routes[aggregate_type] = Route(topic)
        self._unopened.append(route)
        return route

    def _refuse_waiting(self, route: Route) -> None:
        """Refuse the waiting and all later events of a topic whose name Kafka does not accept."""
        self._known.discard(route.topic)
        for kind in [kind for kind, found in self.routes.items() if found is route]:
            self._impossible.add(kind)
            del self.routes[kind]
        waiting = route.partitions[0]
        self.counts.events -= len(waiting)
        self.counts.refused["topic_name"] += len(waiting)
        for key, value, headers in waiting:
            self._refused.put(key or b"", (key, value, [(REASON, b"topic_name"), *(headers or [])]))


def size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the bytes of key, value and headers."""
    return len(key or b"") + len(value or b"") + sum(len(name) + len(text) for name, text in headers)
