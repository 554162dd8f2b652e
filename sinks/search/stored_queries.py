"""Stored queries: which there are, and which of them documents match. Edge, on `Client`.

The queries of a table are an index of OpenSearch's percolator, with the fields of the table's own index. A document
that was applied is matched before anybody learns that it was, and the matches are durable by then: what dies in
between matches again, with the same key.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from cdc.errors import SinkUnfit, SinkUnreachable, UsageError
from sinks.contract import Change, Topic
from sinks.search.indices import Indices
from sinks.search.opensearch_client import Answer, Client

if TYPE_CHECKING:
    from cdc.clock import Clock

QUERIES_MAX: Final = 10_000
"""Of a table: OpenSearch's limit of what one search returns (`index.max_result_window`)."""
LOOK_S: Final = 2.0
"""Between looks whether there are queries. One that is added is heard of by then."""
DOCUMENTS: Final = 200
"""Matched in one request; bytes are bounded by the sink's `request_bytes`."""
_QUERY: Final = "__query"
_VERSION: Final = "__version"
_MISSING: Final = frozenset({404})
_REFUSED: Final = frozenset({400})


class Query(NamedTuple):
    """A stored query; `version` grows each time that it is stored again."""

    name: str
    version: int
    query: Mapping[str, Any]


class Match(NamedTuple):
    """A document that a query matches. `key` tells a repetition from another match."""

    change: Change
    key: bytes
    value: bytes


class Publisher(Protocol):
    """Where matches go. Thread-safe."""

    def publish(self, matches: Sequence[Match]) -> None:
        """They are durable when this returns. Raises SinkUnreachable when that is not known."""

    def close(self) -> None:
        """End the connections. May be called twice."""


class _Hit(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    source: dict[str, Any] = msgspec.field(name="_source", default_factory=dict)
    fields: dict[str, Any] = {}


class _Hits(msgspec.Struct):
    hits: list[_Hit]


class _Found(msgspec.Struct):
    hits: _Hits


_FOUND: Final = msgspec.json.Decoder(_Found)


class StoredQueries:
    """The queries of one sink."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices
        self._client: Client = indices.client

    def add(self, topic: Topic, name: str, query: Mapping[str, Any], settings: Mapping[str, Any]) -> Query:
        """Store a query, or another one under its name. Raises UsageError for one that OpenSearch does not take."""
        live = self._indices.live(topic)
        if live is None:
            raise SinkUnfit(
                f"there is no index of {topic.table} yet",
                hint="run the sink first: queries are over the fields of its index",
                command=f"cdc sink run {self._indices.sink}",
                table=topic.table,
            )
        index = self._index(topic)
        fields = {**live.fields, _QUERY: {"type": "percolator"}, _VERSION: {"type": "long"}}
        body = {"settings": {"index": dict(settings)}, "mappings": {"dynamic": False, "properties": fields}}
        answer = self._client.ask("PUT", f"/{index}", body, expected=_REFUSED)
        if isinstance(answer, Answer):  # it is there: columns may have come since
            answer = self._client.ask("PUT", f"/{index}/_mapping", {"properties": fields}, expected=_REFUSED)
        if isinstance(answer, Answer):
            raise SinkUnfit(
                f"the queries of {topic.table} are over fields of other types than its index has now ({answer.kind})",
                hint="remove them all, and add them again",
                command=f"cdc sink query list {self._indices.sink}",
                table=topic.table,
            )
        there = {each.name: each for each in self.all(topic)}
        if name not in there and len(there) >= QUERIES_MAX:
            raise UsageError(f"{topic.table} has {QUERIES_MAX} queries, which is all it can have")
        version = there[name].version + 1 if name in there else 1
        document = {_QUERY: dict(query), _VERSION: version}
        path = f"/{index}/_doc/{name}"
        answer = self._client.ask("PUT", path, document, params={"refresh": "true"}, expected=_REFUSED)
        if isinstance(answer, Answer):
            raise UsageError(
                f"OpenSearch takes no such query ({answer.kind})",
                hint='it is what stands under "query" in a search, as {"match": {"name": "apple"}}, of fields that are',
            )
        return Query(name, version, query)

    def remove(self, topic: Topic, name: str) -> bool:
        """Forget a query; False when there is none of that name.

        With the last one go the fields that they were over: those that come then are over the index' own of that time.
        """
        index = self._index(topic)
        path = f"/{index}/_doc/{name}"
        gone = self._client.ask("DELETE", path, params={"refresh": "true"}, expected=_MISSING)
        if not isinstance(gone, Answer) and not self.any(topic):
            self._client.ask("DELETE", f"/{index}", expected=_MISSING)
        return not isinstance(gone, Answer)

    def all(self, topic: Topic) -> list[Query]:
        """Every query of a table, by name."""
        body = {"size": QUERIES_MAX, "query": {"match_all": {}}}
        answer = self._client.ask("POST", f"/{self._index(topic)}/_search", body, expected=_MISSING)
        if isinstance(answer, Answer):
            return []
        hits = _FOUND.decode(answer).hits.hits
        return sorted(Query(hit.id, int(hit.source[_VERSION]), hit.source[_QUERY]) for hit in hits)

    def any(self, topic: Topic) -> bool:
        """Whether a table has queries."""
        answer = self._client.ask("GET", f"/{self._index(topic)}/_count", expected=_MISSING)
        return not isinstance(answer, Answer) and msgspec.json.decode(answer, type=dict[str, Any])["count"] > 0

    def matches(
        self, topic: Topic, documents: Sequence[tuple[Change, bytes]], *, only: str | None = None
    ) -> Iterator[Match]:
        """What matches these documents; with `only` of that query alone."""
        for first in range(0, len(documents), DOCUMENTS):
            part = documents[first : first + DOCUMENTS]
            for hit in self._percolated(topic, part, only):
                version = int(hit.source[_VERSION])
                for slot in hit.fields["_percolator_document_slot"]:
                    yield match_of(topic, part[int(slot)][0], hit.id, version)

    def _percolated(self, topic: Topic, documents: Sequence[tuple[Change, bytes]], only: str | None) -> list[_Hit]:
        listed = b",".join(source for _, source in documents)
        query = b'{"percolate":{"field":"%b","documents":[%b]}}' % (_QUERY.encode(), listed)
        if only is not None:
            names = msgspec.json.encode({"ids": {"values": [only]}})
            query = b'{"bool":{"must":%b,"filter":%b}}' % (query, names)
        body = b'{"size":%d,"_source":["%b"],"query":%b}' % (QUERIES_MAX, _VERSION.encode(), query)
        answer = self._client.ask("POST", f"/{self._index(topic)}/_search", body, expected=_MISSING | _REFUSED)
        if isinstance(answer, Answer):
            if answer.status == 404:
                return []
            raise SinkUnfit(
                f"stored queries of {topic.table} cannot be matched with its documents ({answer.kind})",
                hint="after a column's type changed they are over its former type: remove them all, and add them again",
                command=f"cdc sink query list {self._indices.sink}",
                table=topic.table,
            )
        try:
            return _FOUND.decode(answer).hits.hits
        except msgspec.MsgspecError:
            raise SinkUnreachable("OpenSearch gave no whole answer about stored queries") from None

    def _index(self, topic: Topic) -> str:
        return f"{self._indices.alias(topic.table)}-queries"  # no escape has a q


class Matcher:
    """See `sinks.search.target.DocumentObserver`: publishes what documents match, where a table has queries."""

    def __init__(self, book: StoredQueries, publisher: Publisher, clock: Clock) -> None:
        self._book = book
        self._publisher = publisher
        self._clock = clock
        self._lock = threading.Lock()
        self._looked: dict[str, tuple[float, bool]] = {}

    def applied(self, topic: Topic, documents: Sequence[tuple[Change, bytes]]) -> None:
        """See `Watcher`."""
        if self._has_queries(topic):
            matches = list(self._book.matches(topic, documents))
            if matches:
                self._publisher.publish(matches)

    def close(self) -> None:
        """See `Watcher`."""
        self._publisher.close()

    def _has_queries(self, topic: Topic) -> bool:
        with self._lock:
            now_s = self._clock.monotonic_s()
            looked_s, found = self._looked.get(topic.topic, (float("-inf"), False))
            if now_s - looked_s < LOOK_S:
                return found
            found = self._book.any(topic)
            self._looked[topic.topic] = (now_s, found)
            return found


def match_of(topic: Topic, change: Change, query: str, version: int) -> Match:
    """A match as it is published. Its key is the same whenever the same record matches the same query again."""
    key = {"query": query, "version": version, "table": topic.table, "key": msgspec.Raw(change.key)}
    placed = {**key, "partition": change.partition, "offset": change.offset}
    position = {"topic": topic.topic, "epoch": change.epoch, "commit_lsn": change.commit_lsn, "ts_ms": change.ts_ms}
    return Match(change, msgspec.json.encode(placed), msgspec.json.encode({**placed, **position}))
