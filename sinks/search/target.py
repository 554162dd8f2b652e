"""Writes rows to OpenSearch (`sinks.contract.Target`): an index per table, a document per key.

The version of a document is the offset of its record (an external version), and OpenSearch refuses lower or equal ones.
It remembers the version of a deleted document for `gc_deletes_s`. A worker that was frozen for longer than half of that
time during a request sends nothing more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import structs

from cdc.errors import DecodeError, InvariantError, SinkStale, SinkUnfit, SinkUnreachable
from sinks.contract import Change, Content, Outcome, StoredKey, Topic, TopicPartition, Verdict
from sinks.search import bulk_requests, stored_documents
from sinks.search.bulk_answers import IndexFailure
from sinks.search.bulk_requests import Write
from sinks.search.index_closing import reopen_abandoned
from sinks.search.index_names import document_id
from sinks.search.index_positions import IndexPositions
from sinks.search.indices import Index, Indices, gone
from sinks.search.mapping import PLAIN, Form, JsonForm, form_of, source_of, values_of, with_kept

if TYPE_CHECKING:
    from cdc.clock import Clock
    from cdc.model.progress_record import SchemaRecord
    from sinks.search.mapping import Field

NOTE_S: Final = 1.0
"""Between writes of positions; changes applied since the last one may be applied again after a crash."""
FORGET_S: Final = 0.25
"""Time until OpenSearch forgets the version of a deleted document with `gc_deletes` 0: its clock has steps of
200 ms (`thread_pool.estimated_time_interval`)."""
FORGET_TRIES: Final = 8
_UNREADABLE: Final = Outcome(Verdict.REFUSED, "unreadable_row", "the row is not valid JSON for its schema")


class DocumentObserver(Protocol):
    """Receives applied documents before the sink reports them as applied; called by several threads."""

    def applied(self, topic: Topic, documents: Sequence[tuple[Change, bytes]]) -> None:
        """Handle documents of a topic. An error keeps the changes from being DONE."""

    def close(self) -> None:
        """End the connections. May be called twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """The settings of a sink for its indices.

    Attributes:
        json: the form of JSON columns.
        fields: table -> column -> field instead of the generated one.
        refresh_interval_s, gc_deletes_s: as `cdc.config.settings.Search` has them.
    """

    json: JsonForm = "string"
    fields: Mapping[str, Mapping[str, Field]] = field(default_factory=dict)
    refresh_interval_s: float = 1.0
    gc_deletes_s: int = 3600


class SearchTarget:
    """See `Target`."""

    def __init__(
        self,
        indices: Indices,
        book: IndexPositions,
        shape: IndexOptions,
        clock: Clock,
        *,
        watcher: DocumentObserver | None = None,
    ) -> None:
        self._indices = indices
        self._book = book
        self._shape = shape
        self._clock = clock
        self._watcher = watcher
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._live: dict[str, str] = {}
        self._forms: dict[str, Form] = {}
        self._schemas: dict[str, list[SchemaRecord]] = {}
        self._kept: dict[TopicPartition, int] = {}
        self._noted_s = float("-inf")

    def open(self, topics: Sequence[Topic]) -> None:
        """See `Target`."""
        self._book.open()
        for topic in topics:
            found = self._indices.live(topic)
            if found is None:
                # Positions first: after a crash in between, an empty index with old positions would count as complete.
                self._book.forget(self._indices.name(topic, 1), topic.partition_count)
                self._indices.create(topic, 1, live=True, settings=self._settings())
                found = self._indices.live(topic)
            if found is None:
                raise SinkUnfit(
                    f"the index of {topic.table} exists, but it lacks the alias {self._indices.alias(topic.table)}",
                    hint="add the alias again, or delete the index",
                    table=topic.table,
                )
            self.attach(topic, found.name)

    def attach(self, topic: Topic, index: str) -> None:
        """Write this topic to an existing index, and apply the settings of the sink to it."""
        self._topics[topic.topic] = topic
        for name, value in self._settings().items():
            if self._indices.setting(index, name) != value:
                self._indices.put_settings(index, {name: value})
        bulk_requests.admit(self._indices.client, index)
        self._live[topic.topic] = index

    def prepare(self, schema: SchemaRecord) -> None:
        """See `Target`."""
        form = form_of(schema, self._shape.fields.get(schema.table, {}), self._shape.json)
        with self._lock:
            known = self._schemas.setdefault(schema.topic, [])
            if any(record.schema_id == schema.schema_id for record in known):
                return
            self._put_fields(self._topic(schema.topic), schema, form)
            known.append(schema)
            self._forms[schema.schema_id] = form

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        """See `Target`."""
        began_s = self._clock.monotonic_s()
        outcomes: dict[int, Outcome] = {}
        writes: list[Write] = []
        for place, change in enumerate(changes):
            index = self._live.get(change.topic)
            if index is None:
                raise InvariantError(f"a change of topic {change.topic}, which was not opened")
            try:
                source = None if change.row is None else source_of(change.row, self._forms.get(change.schema_id, PLAIN))
                writes.append(Write(place, change.topic, index, document_id(change.key), change.offset, source))
            except DecodeError:
                outcomes[place] = _UNREADABLE
        writes = self._completed(writes, changes)
        outcomes |= self._written(writes, began_s)
        if self._watcher is not None:
            self._notify(self._watcher, writes, changes, outcomes)
        return [outcomes[place] for place in range(len(changes))]

    def save_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `Target`."""
        self._kept.update(positions)
        if self._clock.monotonic_s() - self._noted_s >= NOTE_S:
            self._note()

    def saved_positions(self) -> Mapping[TopicPartition, int] | None:
        """See `Target`."""
        self._kept.clear()
        places = {
            (self._live[topic.topic], partition): (topic.topic, partition)
            for topic in self._topics.values()
            for partition in range(topic.partition_count)
        }
        return {places[place]: offset for place, offset in self._book.noted(places).items()}

    def refresh(self, topics: Iterable[str]) -> None:
        """See `Target`."""
        self._indices.refresh(sorted({self._live[topic] for topic in topics}))

    def content(self, change: Change) -> Content | None:
        """See `Target`."""
        if change.row is None:
            return None
        return values_of(source_of(change.row, self._forms.get(change.schema_id, PLAIN)))

    def stored_keys(self, topic: str) -> Iterator[StoredKey]:
        """See `Target`."""
        return stored_documents.stored_keys(self._indices.client, self._live[topic], self._topic(topic).key)

    def read_keys(self, topic: str, keys: Sequence[bytes]) -> Sequence[StoredKey | None]:
        """See `Target`."""
        names = [document_id(key) for key in keys]
        found = stored_documents.read_keys(self._indices.client, self._live[topic], self._topic(topic).key, names)
        held = [found[name] for name in names]
        return [None if each is None else each._replace(key=key) for each, key in zip(held, keys, strict=True)]

    def remove(self, topic: str, held: Sequence[StoredKey]) -> None:
        """See `Target`."""
        writes = [
            Write(place, topic, self._live[topic], each.name, each.version, None) for place, each in enumerate(held)
        ]
        bulk_requests.send(self._indices.client, writes, again=True)

    def repair_keys(self, changes: Sequence[Change], seen: Sequence[StoredKey | None]) -> None:
        """See `Target`. A document with a later version was written by another program, which increased the version."""
        writes = [self._write_of(place, change) for place, change in enumerate(changes)]
        pairs = list(zip(writes, seen, strict=True))
        ahead = [pair for pair in pairs if pair[1] is not None and pair[1].version > pair[0].version]
        plain = [write for write, one in pairs if one is None or one.version <= write.version]
        outcomes = bulk_requests.send(self._indices.client, plain, again=True)
        # A missing document may have left a higher version: a delete by another program increased it too.
        refused = {place for place, outcome in outcomes.items() if outcome == Outcome(Verdict.OVERTAKEN)}
        ahead += [(write, None) for write, one in pairs if one is None and write.place in refused]
        for index in sorted({write.into for write, _ in ahead}):
            self._lower(index, [(write, one) for write, one in ahead if write.into == index])

    def _write_of(self, place: int, change: Change) -> Write:
        source = None if change.row is None else source_of(change.row, self._forms.get(change.schema_id, PLAIN))
        name, index = document_id(change.key), self._live[change.topic]
        return Write(place, change.topic, index, name, change.offset, source)

    def _lower(self, index: str, pairs: Sequence[tuple[Write, StoredKey | None]]) -> None:
        """Write documents with a lower version than they have: delete them, let OpenSearch forget them, write them.

        OpenSearch forgets versions of deleted documents at a refresh, once they are older than `gc_deletes`. Until
        then a worker that was frozen could restore a deleted row; running workers only send a key's newest record.
        """
        client = self._indices.client
        there = [write._replace(version=one.version, source=None) for write, one in pairs if one is not None]
        bulk_requests.send(client, there, again=True)
        left = [write for write, _ in pairs]
        try:
            self._indices.put_settings(index, {"gc_deletes": "0ms"})
            for _ in range(FORGET_TRIES):
                self._clock.wait(threading.Event(), FORGET_S)
                self._indices.refresh([index])
                outcomes = bulk_requests.send(client, left)
                left = [write for write in left if outcomes[write.place] == Outcome(Verdict.OVERTAKEN)]
                if not left:
                    break
        finally:
            self._indices.put_settings(index, {"gc_deletes": self._settings()["gc_deletes"]})

    def close(self) -> None:
        """See `Target`."""
        # If this fails, the stored positions are lower, and some changes are applied twice.
        with suppress(SinkUnreachable, SinkStale, SinkUnfit):
            self._note()
        if self._watcher is not None:
            self._watcher.close()
        self._indices.client.close()

    def _settings(self) -> dict[str, str]:
        return {
            "gc_deletes": f"{self._shape.gc_deletes_s}s",
            "refresh_interval": f"{round(self._shape.refresh_interval_s * 1000)}ms",
        }

    def _topic(self, topic: str) -> Topic:
        if topic not in self._topics:
            raise InvariantError(f"topic {topic} was not opened")
        return self._topics[topic]

    def _put_fields(self, topic: Topic, schema: SchemaRecord, form: Form) -> None:
        """Add the fields of a schema; of a schema older than the index has seen, only missing fields."""
        found = self._described(topic)
        place = (schema.epoch, schema.lsn)
        fields = dict(form.fields)
        if place < found.meta.schema:
            fields = {name: field for name, field in fields.items() if name not in found.fields}
        meta = structs.replace(found.meta, schema=max(place, found.meta.schema))
        if fields or meta != found.meta:
            self._indices.put_fields(found.name, fields, meta, topic.table)

    def _described(self, topic: Topic) -> Index:
        name = self._live[topic.topic]
        found = next((index for index in self._indices.generations(topic) if index.name == name), None)
        if found is None:
            raise gone(self._indices.sink, name)
        return found

    def _completed(self, writes: Sequence[Write], changes: Sequence[Change]) -> list[Write]:
        """Complete the documents of incomplete rows with the values in the index."""
        lacking = [write for write in writes if write.source is not None and changes[write.place].kept]
        held: dict[tuple[str, str], bytes | None] = {}
        for index in {write.into for write in lacking}:
            names = [write.name for write in lacking if write.into == index]
            sources = stored_documents.sources(self._indices.client, index, names)
            held |= {(index, name): sources.get(name) for name in names}
        return [
            write._replace(source=with_kept(write.source, before, changes[write.place].kept))
            if write.source is not None and (before := held.get((write.into, write.name))) is not None
            else write
            for write in writes
        ]

    def _written(self, writes: Sequence[Write], began_s: float) -> dict[int, Outcome]:
        """Write, and repeat writes whose index was replaced in the meantime."""
        found = self._send(writes, began_s)
        moved = [write for write in writes if found[write.place] is IndexFailure.BLOCKED and self._moved(write)]
        if moved:
            moved = [write._replace(into=self._live[write.topic]) for write in moved]
            found |= self._send(moved, began_s)
        done: dict[int, Outcome] = {}
        for write in writes:
            answer = found[write.place]
            done[write.place] = self._judged(answer, write) if isinstance(answer, IndexFailure) else answer
        overtaken = {write.topic for write in writes if done[write.place].verdict is Verdict.OVERTAKEN}
        for topic in overtaken:
            self._check_owner(topic)
        return done

    def _send(self, writes: Sequence[Write], began_s: float) -> dict[int, Outcome | IndexFailure]:
        def check() -> None:
            if self._clock.monotonic_s() - began_s > self._shape.gc_deletes_s / 2:
                raise SinkUnreachable(
                    f"sink {self._indices.sink!r}: this process was frozen for so long that its writes may be outdated",
                    hint="it reads its records again",
                    sink=self._indices.sink,
                )

        return bulk_requests.send(self._indices.client, writes, check=check)

    def _moved(self, write: Write) -> bool:
        """Whether to repeat the write: the alias moved to another index, or an abandoned block was removed."""
        topic = self._topic(write.topic)
        with self._lock:
            if self._live[topic.topic] != write.into:
                return True
            found = self._indices.live(topic)
            if found is None:
                return False
            if found.name == write.into:
                return reopen_abandoned(self._indices, topic, found, self._clock)
            bulk_requests.admit(self._indices.client, found.name)
            self._live[topic.topic] = found.name
            for record in self._schemas.get(topic.topic, ()):
                self._put_fields(topic, record, self._forms[record.schema_id])
            return True

    def _judged(self, trouble: IndexFailure, write: Write) -> Outcome:
        sink = self._indices.sink
        if trouble is IndexFailure.BLOCKED:
            return Outcome(Verdict.LATER, "cluster_block_exception", "the index is blocked for writes")
        if trouble is IndexFailure.GONE:
            raise gone(sink, write.into)
        raise SinkUnfit(
            f"sink {sink!r}: {trouble.value}: {write.into}",
            hint="open the index, or grant the sink's user the right to write",
            sink=sink,
            index=write.into,
        )

    def _check_owner(self, topic: str) -> None:
        """Check that the index belongs to this topic: otherwise its versions cannot be compared."""
        if self._indices.live(self._topic(topic)) is None:
            raise gone(self._indices.sink, self._live[topic])

    def _note(self) -> None:
        positions = {(self._live[topic], partition): at for (topic, partition), at in self._kept.items()}
        self._book.note(positions)
        self._kept.clear()
        self._noted_s = self._clock.monotonic_s()

    def _notify(
        self,
        watcher: DocumentObserver,
        writes: Sequence[Write],
        changes: Sequence[Change],
        outcomes: Mapping[int, Outcome],
    ) -> None:
        # OVERTAKEN too: a crash between the document and its matches would otherwise lose the matches.
        final = {Verdict.DONE, Verdict.OVERTAKEN}
        applied: dict[str, list[tuple[Change, bytes]]] = {}
        for write in writes:
            if write.source is not None and outcomes[write.place].verdict in final:
                applied.setdefault(write.topic, []).append((changes[write.place], write.source))
        for topic, documents in applied.items():
            watcher.applied(self._topic(topic), documents)
