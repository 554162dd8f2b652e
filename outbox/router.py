"""The router: rows that are inserted into an outbox, and logical messages, to records of event topics. Pure.

It is a stage of capture (`cdc.contracts.Stage`): its records go into the same Kafka transaction as everything else, so
events are exactly once, and in the order in which their transactions committed. A record has

    topic    of the aggregate's type (`outbox.event_topics`)
    key      the ordering key, or the aggregate's id
    value    the payload as it was written
    headers  id, type, version, content-type; then the event's own, of which none can take one of those names

An event that cannot be published as it is goes to ``<name>.__refused`` with the reason, in the place where it would
have been: it never holds up others. What an update or delete of a row means is `[outbox] on_update`.

A topic that was not written to before is made when the batch is handed over (`gather`): until then its records wait
here, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from murmurhash2 import murmurhash2

from cdc.config.outbox_settings import Outbox
from cdc.encode.partitioner import SEED
from cdc.model.change_records import Headers, Record, Stamp, TopicBuffer
from cdc.model.relation import Relation
from outbox.copied_rows import CopiedOutbox
from outbox.errors import MessageInvalid
from outbox.event import Event, read_message
from outbox.event_topics import EventTopics
from outbox.routed_rows import NO_KEY, RefusedEvent, RoutedRows
from outbox.row_form import row_form

REASON: Final = "refused-reason"
REASONS: Final = {
    "no_id": "it has no id",
    "no_type": "it has no type",
    "no_aggregate_type": "it has no aggregate type",
    "topic_name": "its aggregate type makes a topic's name that Kafka does not take",
    "types_max": "there are `[outbox] types_max` event topics already",
    NO_KEY: "it has neither an ordering key nor an aggregate id",
    "no_payload": 'it has no payload, and `[outbox] null_payload` is "refuse"',
    "headers": "its headers are no object of JSON",
    "envelope": "it has bytes as payload, and `[outbox] extra` puts columns into an envelope",
    "too_large": "it is larger than `capture.row_bytes_max`; the record has no value then",
    "message": "the logical message is not one event in JSON",
    "not_transactional": "the logical message was emitted outside of the transaction, which may have been rolled back",
}
"""Why an event is refused, by the word that header and metric have."""


_KEY_BYTES: Final = 4096  # of an event that is refused, so that its record fits whatever it has


@dataclass(slots=True)
class Counts:
    """What became of events since this was taken."""

    events: int = 0
    ignored: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.events or self.ignored or self.refused)


class Route:
    """Records of one topic that wait to be handed over; one list of them until the topic is known to be there."""

    __slots__ = ("opened", "partitions", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.opened = False
        self.partitions: list[list[Record]] = [[]]

    def put(self, key: bytes, record: Record) -> None:
        """Append a record to the partition of a key."""
        self.partitions[(murmurhash2(key, SEED) & 0x7FFFFFFF) % len(self.partitions)].append(record)

    def open(self, partition_count: int) -> TopicBuffer:
        """The topic is there: what waits moves to where it belongs, in order."""
        buffer = TopicBuffer(self.topic, partition_count, compacted=False)
        waiting, self.partitions, self.opened = self.partitions[0], buffer.partitions, True
        for record in waiting:
            self.put(record[0] or b"", record)
        return buffer


class Router:
    """See `cdc.contracts.Stage`. One per start.

    Attributes:
        counts: since somebody last put another one there.
        routes: aggregate type -> where its events go.
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
        unknown: Callable[[int], None] = lambda _: None,
        copies: Mapping[int, CopiedOutbox] | None = None,
    ) -> None:
        """One router.

        Args:
            settings: the section.
            topics: names of event topics.
            refused_topic: of what cannot be published.
            row_bytes_max: of a record.
            open_topic: makes or checks a topic and gets ready to write to it; returns its partition count, None for a
                name that Kafka does not take beside those that are there.
            known: the event topics there are.
            unknown: told of pg_class.oid of an outbox that the stream shows; raises when capture must start over for
                it.
            copies: of outboxes, by pg_class.oid, what of their rows was routed before the stream.
        """
        self.settings = settings
        self.row_bytes_max = row_bytes_max
        self.counts = Counts()
        self._topics = topics
        self._open_topic = open_topic
        self._unknown = unknown
        self._copies = copies or {}
        self._refused = Route(refused_topic)
        self._known = set(known)
        self.routes: dict[bytes, Route] = {}
        self._impossible: set[bytes] = set()
        self._unopened: list[Route] = []

    def take(self, relation: Relation) -> RoutedRows | None:
        """See `cdc.contracts.Stage.take`."""
        if relation.table != self.settings.table:
            return None
        self._unknown(relation.oid)
        form = row_form(relation, self.settings.columns, self.settings.extra)
        return RoutedRows(self, form, self._copies.get(relation.oid))

    def message(self, prefix: str, content: bytes, stamp: Stamp, ordinal: int, *, transactional: bool) -> int | None:
        """See `cdc.contracts.Stage.message`."""
        if not prefix or prefix != self.settings.prefix:
            return None
        try:
            event = read_message(content)
        except MessageInvalid:
            self.refuse(RefusedEvent("message", value=content), stamp, ordinal)
            return len(content) + 1
        refused = self._place_message(event, transactional=transactional)
        if refused is not None:
            self.refuse(refused, stamp, ordinal)
        else:
            self.counts.events += 1
        return len(content) + 1

    def gather(self) -> Sequence[TopicBuffer]:
        """See `cdc.contracts.Stage.gather`."""
        opened: list[TopicBuffer] = []
        for route in self._unopened:
            partition_count = self._open_topic(route.topic)
            if partition_count is None:
                self._give_up(route)
            else:
                opened.append(route.open(partition_count))
        self._unopened = []
        if self._refused.partitions[0] and not self._refused.opened:
            count = self._open_topic(self._refused.topic)
            assert count is not None, "its name is made by us"
            opened.append(self._refused.open(count))
        return opened

    def refuse(self, refused: RefusedEvent, stamp: Stamp, ordinal: int) -> None:
        """Put an event where it is kept with its reason."""
        self.counts.refused[refused.reason] += 1
        headers: Headers = [
            (REASON, refused.reason.encode()),
            ("refused-commit-lsn", b"%d" % stamp.commit_lsn),
            ("refused-ordinal", b"%d" % ordinal),
        ]
        headers += [(name, value) for name, value in refused.headers if value is not None]
        value = refused.value
        if value is not None and _size(refused.key, value, headers) > self.row_bytes_max:
            value = None
        key = (refused.key or b"")[:_KEY_BYTES]
        self._refused.put(key, (key, value, headers))

    def new_route(self, aggregate_type: bytes) -> Route | str:
        """Where events of a type go that has no route yet, or the reason why nowhere.

        Reasons are not kept: there may be any number of such types.
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

    def _give_up(self, route: Route) -> None:
        """Kafka does not take the name: what waits, and what comes, is refused."""
        self._known.discard(route.topic)
        for kind in [kind for kind, found in self.routes.items() if found is route]:
            self._impossible.add(kind)
            del self.routes[kind]
        waiting = route.partitions[0]
        self.counts.events -= len(waiting)
        self.counts.refused["topic_name"] += len(waiting)
        for key, value, headers in waiting:
            self._refused.put(key or b"", (key, value, [(REASON, b"topic_name"), *(headers or [])]))

    def _place_message(self, event: Event, *, transactional: bool) -> RefusedEvent | None:
        """Put the event of a message where it belongs, or say why not."""
        key = event.key.encode()
        value = event.payload.encode() if event.payload is not None else event.payload_bytes
        headers: Headers = [
            ("id", str(event.id).encode()),
            ("type", event.type.encode()),
            ("version", b"%d" % event.version),
            ("content-type", event.content_type.encode()),
        ]
        headers += [(name, text.encode()) for name, text in event.headers.items()]
        told: list[tuple[str, bytes | None]] = [("aggregate-type", event.aggregate_type.encode()), *headers]
        if not transactional:
            return RefusedEvent("not_transactional", key, value, told)
        kind = event.aggregate_type.encode()
        route = self.routes.get(kind) or self.new_route(kind)
        if isinstance(route, str):
            return RefusedEvent(route, key, value, told)
        if value is None and self.settings.null_payload == "refuse":
            return RefusedEvent("no_payload", key, value, told)
        if _size(key, value, headers) > self.row_bytes_max:
            return RefusedEvent("too_large", key, None, told)
        route.put(key, (key, value, headers))
        return None


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    return len(key or b"") + len(value or b"") + sum(len(name) + len(text) for name, text in headers)
