"""Finds, creates, describes and swaps indices and their generations. I/O, on `Client`.

Readers search an alias with one index behind it; the ``_meta`` of its mapping identifies the index. Workers write to
an alias of that one index (`index_names.writable`): through the readers' alias, a worker of an earlier topic could
write to the new index, whose offsets are lower than its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from cdc.errors import SinkStale, SinkUnfit
from sinks.contract import Topic
from sinks.search import index_names
from sinks.search.mapping import Field
from sinks.search.opensearch_client import Answer, Client

META_VERSION: Final = 1
FIELDS_MAX: Final = 5_000
"""Fields per index, including those inside JSON objects. OpenSearch's default is 1,000; a table has up to 1,600
columns."""
_MISSING: Final = frozenset({404})
_REFUSED: Final = frozenset({400})


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of an index, stored in its mapping.

    Attributes:
        schema: epoch and LSN of the newest schema that its fields come from.
        retired_ms: when it was replaced; 0: it is in use.
        swap_until_ms: when the block of a running swap expires; 0: no swap.
    """

    version: int = META_VERSION
    pipeline: str
    sink: str
    topic: str
    topic_id: str
    generation: int
    schema: tuple[int, int] = (0, 0)
    retired_ms: int = 0
    swap_until_ms: int = 0


class Index(NamedTuple):
    """An index with its `_meta` and its fields."""

    name: str
    meta: Meta
    fields: Mapping[str, Field]


class _Mappings(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)
    properties: dict[str, Any] = {}


class _Described(msgspec.Struct):
    mappings: _Mappings


_DESCRIBED: Final = msgspec.json.Decoder(dict[str, _Described])
_OURS: Final = "tailrace"


class Indices:
    """The indices of one sink. Thread-safe."""

    def __init__(self, client: Client, pipeline: str, sink: str, settings: Mapping[str, Any]) -> None:
        """`settings` are the settings of new indices, by OpenSearch's names without ``index.``."""
        self.client = client
        self.pipeline = pipeline
        self.sink = sink
        self._settings = settings
        self._marking = threading.Lock()

    def alias(self, table: str) -> str:
        """Return the alias that readers search."""
        return index_names.alias_of(self.pipeline, self.sink, table)

    def name(self, topic: Topic, generation: int) -> str:
        """Return the name of a generation of a topic's index."""
        return index_names.index_of(self.alias(topic.table), generation, topic.topic_id)

    def live(self, topic: Topic) -> Index | None:
        """Return the index behind the alias of a topic; None without such an alias.

        Raises SinkUnfit when the alias belongs to something else, SinkStale when the index is of an earlier topic of
        the same name.
        """
        found = self.behind(topic)
        if found is not None:
            self._check(found, topic)
        return found

    def behind(self, topic: Topic) -> Index | None:
        """As `live`, for an index of any topic."""
        alias = self.alias(topic.table)
        found = self._described(alias)
        if not found:
            return None
        if len(found) > 1 or index_names.parse_index(found[0].name) is None:
            raise SinkUnfit(
                f"{alias} is not an alias of exactly one index of this sink",
                hint="delete the index or alias of that name, or rename the sink",
                sink=self.sink,
                table=topic.table,
            )
        return found[0]

    def is_behind(self, topic: Topic, index: str) -> bool:
        """Whether the alias points to that index."""
        found = self.behind(topic)
        return found is not None and found.name == index

    def generations(self, topic: Topic) -> list[Index]:
        """Return all indices of the sink for a table, oldest first, including those of a deleted topic."""
        alias = self.alias(topic.table)
        found = self._described(f"{alias}-g*")
        return sorted((index for index in found if _alias(index) == alias), key=lambda index: index.meta.generation)

    def create(self, topic: Topic, generation: int, *, live: bool, settings: Mapping[str, Any] | None = None) -> None:
        """Create an index without fields; with `live` the same request adds the alias. May be repeated."""
        meta = Meta(
            pipeline=self.pipeline, sink=self.sink, topic=topic.topic, topic_id=topic.topic_id, generation=generation
        )
        name = self.name(topic, generation)
        aliases: dict[str, Any] = {index_names.writable(name): {}}
        if live:
            aliases[self.alias(topic.table)] = {"is_write_index": True}
        body: dict[str, Any] = {
            "settings": {"index": {**self._settings, **(settings or {})}},
            "mappings": {"dynamic": "strict", "_meta": {_OURS: meta}},
            "aliases": aliases,
        }
        answer = self.client.ask("PUT", f"/{name}", body, expected=_REFUSED)
        if isinstance(answer, Answer) and answer.kind != "resource_already_exists_exception":
            raise SinkUnfit(
                f"OpenSearch refuses to create the index {name} ({answer.kind})",
                hint=f"check [sinks.{self.sink}.index]; no index may have the name of the alias",
                sink=self.sink,
                table=topic.table,
            )

    def put_fields(self, index: str, fields: Mapping[str, Field], meta: Meta, table: str) -> None:
        """Add fields and record their schema. Raises SinkUnfit for an existing field with another definition."""
        body = {"_meta": {_OURS: meta}, "properties": fields}
        answer = self.client.ask("PUT", f"/{index}/_mapping", body, expected=_REFUSED | _MISSING)
        if not isinstance(answer, Answer):
            return
        if answer.status == 404:
            raise gone(self.sink, index)
        raise SinkUnfit(
            f"the index of {table} cannot take the fields that its columns need now ({answer.kind})",
            hint="a column type or the sink's `fields` changed; OpenSearch never changes a field, so rebuild the index",
            command=f"cdc sink rebuild {self.sink} --table {table}",
            sink=self.sink,
            table=table,
        )

    def mark(self, topic: Topic, index: str, **changes: int) -> None:
        """Update `retired_ms` or `swap_until_ms` in an index's `_meta`."""
        with self._marking:  # read and written in two steps, while a lease is renewed in its own thread
            for found in self.generations(topic):
                if found.name == index:
                    meta = structs.replace(found.meta, **changes)
                    self.client.ask("PUT", f"/{index}/_mapping", {"_meta": {_OURS: meta}})

    def put_settings(self, index: str, settings: Mapping[str, Any]) -> None:
        """Change settings that can be changed while the index is open."""
        self.client.ask("PUT", f"/{index}/_settings", {"index": dict(settings)})

    def setting(self, index: str, name: str) -> str | None:
        """Return a setting of an index, as OpenSearch has it."""
        answer = self.client.ask("GET", f"/{index}/_settings/index.{name}", params={"flat_settings": "true"})
        found = msgspec.json.decode(str(answer), type=dict[str, dict[str, dict[str, Any]]])
        return next((str(each["settings"][f"index.{name}"]) for each in found.values() if each["settings"]), None)

    def refresh(self, indices: Iterable[str]) -> None:
        """Make everything written before visible to new searches."""
        names = ",".join(indices)
        if names and isinstance(self.client.ask("POST", f"/{names}/_refresh", expected=_MISSING), Answer):
            raise gone(self.sink, names)

    def refresh_all(self) -> None:
        """As `refresh`, for all existing indices of the sink."""
        self.client.ask("POST", f"/{index_names.every_of(self.pipeline, self.sink)}/_refresh")

    def block(self, index: str, *, closed: bool) -> None:
        """Block writes to an index, or allow them again; on return no write is under way."""
        if closed:
            self.client.ask("PUT", f"/{index}/_block/write")
        else:
            self.put_settings(index, {"blocks.write": None})

    def swap(self, topic: Topic, old: str | None, new: str) -> None:
        """Move the alias from the old index, if there is one, to the new one in one step."""
        alias = self.alias(topic.table)
        actions: list[dict[str, Any]] = [{"remove": {"index": old, "alias": alias}}] if old else []
        actions.append({"add": {"index": new, "alias": alias, "is_write_index": True}})
        self.client.ask("POST", "/_aliases", {"actions": actions})

    def delete(self, index: str) -> None:
        """Delete an index; does nothing if it does not exist."""
        self.client.ask("DELETE", f"/{index}", expected=_MISSING)

    def _described(self, pattern: str) -> list[Index]:
        answer = self.client.ask("GET", f"/{pattern}/_mapping", expected=_MISSING)
        if isinstance(answer, Answer):
            return []
        found = []
        for name, described in _DESCRIBED.decode(answer).items():
            ours = described.mappings.meta.get(_OURS)
            try:
                meta = msgspec.convert(ours, Meta)
            except msgspec.ValidationError:
                version = ours.get("version") if isinstance(ours, dict) else None
                version = version if isinstance(version, int) else META_VERSION
                meta = Meta(version=version, pipeline="", sink="", topic="", topic_id="", generation=0)
            found.append(Index(name, meta, described.mappings.properties))
        return found

    def _check(self, index: Index, topic: Topic) -> None:
        meta = index.meta
        if meta.version != META_VERSION:
            raise SinkUnfit.of_newer_release(f"the index {index.name}", meta.version, META_VERSION, sink=self.sink)
        if (meta.pipeline, meta.sink) != (self.pipeline, self.sink):
            raise SinkUnfit(
                f"the index {index.name} was not created by sink {self.sink!r} of pipeline {self.pipeline!r}",
                hint="rename the sink, or delete the index",
                sink=self.sink,
                table=topic.table,
            )
        if (meta.topic, meta.topic_id) != (topic.topic, topic.topic_id):
            raise SinkStale(
                f"the index of {topic.table} belongs to an earlier topic {topic.topic}, which was recreated since",
                hint="the offsets restarted at 0, so versions cannot be compared: rebuild the index",
                command=f"cdc sink rebuild {self.sink} --table {topic.table}",
                sink=self.sink,
                table=topic.table,
                topic=topic.topic,
            )


def gone(sink: str, index: str) -> SinkStale:
    """Return the error for an index that no longer exists."""
    return SinkStale(
        f"sink {sink!r}: the index {index} no longer exists",
        hint="it was deleted with its documents; a restart creates a new one and fills it from the topic",
        command=f"cdc sink run {sink}",
        sink=sink,
    )


def _alias(index: Index) -> str | None:
    parsed = index_names.parse_index(index.name)
    return parsed.alias if parsed else None
