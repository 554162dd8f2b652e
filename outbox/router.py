"""Turns rows inserted into an outbox, and logical messages, into records of event topics. Pure.

The router is a stage of capture (`cdc.contracts.Stage`). Its records go into the same Kafka transaction as the rows of
the same time, so events are exactly once and in the order of their commits. A record has:

    topic    of the aggregate type (`outbox.event_topics`)
    key      the ordering key, or the aggregate id
    value    the payload as it was written
    headers  id, type, version, content-type; then the event's own, which cannot use these names

An event that cannot be published goes to ``<name>.__refused`` with the reason, in order, so it never delays others.
`[outbox] on_update` decides what an UPDATE of a row does; deletes are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cdc.config.outbox_settings import Outbox
from cdc.model.change_records import Headers, Stamp
from cdc.model.relation import Relation
from outbox.copied_rows import CopiedOutbox
from outbox.errors import MessageInvalid
from outbox.event import Event, read_message
from outbox.event_routes import EventRoutes, RefusedEvent, size_of
from outbox.event_topics import EventTopics
from outbox.routed_rows import RoutedRows
from outbox.row_form import row_form


class Router(EventRoutes):
    """See `cdc.contracts.Stage`. Created once per start of capture."""

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
        """Create a router; see `EventRoutes` for the other arguments.

        `unknown` is called with the pg_class.oid of the outbox in the stream. It raises if capture must start over for
        this table, because its existing rows are in no stream. `copies` says, by pg_class.oid, which rows were
        published before the stream.
        """
        super().__init__(
            settings, topics, refused_topic, row_bytes_max=row_bytes_max, open_topic=open_topic, known=known
        )
        self._unknown = unknown
        self._copies = copies or {}

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
        refused = self._put_message(event, transactional=transactional)
        if refused is not None:
            self.refuse(refused, stamp, ordinal)
        else:
            self.counts.events += 1
        return len(content) + 1

    def _put_message(self, event: Event, *, transactional: bool) -> RefusedEvent | None:
        """Put the event of a message into the buffer of its topic, or return why it is refused."""
        key = event.key.encode()
        value = event.payload.encode() if event.payload is not None else event.payload_bytes
        headers: Headers = [
            ("id", str(event.id).encode()),
            ("type", event.type.encode()),
            ("version", b"%d" % event.version),
            ("content-type", event.content_type.encode()),
        ]
        headers += [(name, text.encode()) for name, text in event.headers.items()]
        reported: list[tuple[str, bytes | None]] = [("aggregate-type", event.aggregate_type.encode()), *headers]
        if not transactional:
            return RefusedEvent("not_transactional", key, value, reported)
        kind = event.aggregate_type.encode()
        route = self.routes.get(kind) or self.new_route(kind)
        if isinstance(route, str):
            return RefusedEvent(route, key, value, reported)
        if value is None and self.settings.null_payload == "refuse":
            return RefusedEvent("no_payload", key, value, reported)
        if size_of(key, value, headers) > self.row_bytes_max:
            return RefusedEvent("too_large", key, None, reported)
        route.put(key, (key, value, headers))
        if self.traced is not None:
            self.traced(headers)
        return None
