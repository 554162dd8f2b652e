"""Follows the schema topic ``<name>.__schema``, and knows which tables a sink keeps.

A sink that keeps published views also follows ``<name>.__schema.<lake>``, which exists from the first cut that the lake
publishes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.errors import SinkGap, TopicMismatch
from cdc.model.progress_record import SchemaRecord
from cdc.model.topic_names import schema_topic, view_schema_topic
from cdc.patterns import matches
from cdc.progress.record_format import decode_schema
from cdc.progress.restore import TopicReader
from sinks.state.topic_format import check_encodings

DEADLINE_S: Final = 30.0
"""To wait for the schema of a row: it is in the same Kafka transaction or an earlier one, so it arrives at once."""

_POLL_S: Final = 0.1


class SchemaSource(Protocol):
    """What the runner needs; `SchemaFollower` is one."""

    def look(self) -> None:
        """Read new schema records."""

    def tables(self) -> dict[str, SchemaRecord]:
        """Return the newest schema of each kept table with a key, by topic. Raises SinkUnfit."""

    def find(self, topic: str, schema_id: str) -> SchemaRecord:
        """Return the schema that a row names. Waits for it; raises SinkGap when it does not arrive, SinkUnfit."""


class SchemaFollower:
    """See `SchemaSource`. One thread."""

    def __init__(
        self, reader: TopicReader, name: str, patterns: Sequence[str], clock: Clock, *, lakes: Sequence[str] = ()
    ) -> None:
        self._reader = reader
        self._topic = schema_topic(name)
        self._of_views = [view_schema_topic(name, lake) for lake in lakes]
        self._patterns = patterns
        self._clock = clock
        self._next: dict[str, int] = {}
        self._known: dict[tuple[str, str], SchemaRecord] = {}
        self._newest: dict[str, SchemaRecord] = {}

    def look(self) -> None:
        """See `SchemaSource`. Raises TopicMismatch when capture never ran, ProgressDamaged, BrokerUnreachable."""
        self._look(self._topic)
        for topic in self._of_views:
            with contextlib.suppress(TopicMismatch):  # the lake has not published yet
                self._look(topic)

    def tables(self) -> dict[str, SchemaRecord]:
        """See `SchemaSource`."""
        found = {
            topic: record
            for topic, record in self._newest.items()
            if record.key and matches(record.table, self._patterns)
        }
        for record in found.values():
            check_encodings(record)
        return found

    def captured(self) -> dict[str, bool]:
        """Return for every captured table whether it has a key."""
        return {record.table: bool(record.key) for record in self._newest.values()}

    def find(self, topic: str, schema_id: str) -> SchemaRecord:
        """See `SchemaSource`."""
        ends_s = self._clock.monotonic_s() + DEADLINE_S
        while (found := self._known.get((topic, schema_id))) is None:
            self.look()
            if (topic, schema_id) in self._known:
                continue
            if self._clock.monotonic_s() > ends_s:
                raise SinkGap(
                    f"a row of {topic} refers to schema {schema_id}, which is not in {self._topic}",
                    hint="capture writes the schema before the row: its record was deleted, or the topic was recreated",
                    topic=topic,
                    schema_id=schema_id,
                )
            self._clock.wait(threading.Event(), _POLL_S)
        check_encodings(found)
        return found

    def _look(self, topic: str) -> None:
        place = (topic, 0)
        low, high = self._reader.end_offsets([topic])[place]
        for batch in self._reader.read({place: max(low, self._next.get(topic, 0))}, {place: high}):
            for record in batch:
                if record.value is not None:
                    self._add(record.value)
        self._next[topic] = high

    def _add(self, value: bytes) -> None:
        record = decode_schema(value, self._topic)
        self._known[record.topic, record.schema_id] = record
        self._newest[record.topic] = record
