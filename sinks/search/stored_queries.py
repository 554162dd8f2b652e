"""Stores queries, and finds those that match a document. I/O, on `Client`.

The queries of a table are a percolator index in OpenSearch, with the fields of the table's own index. An applied
document is matched before the sink reports it as applied, and its matches are durable by then. After a crash in
between, the document is matched again, and the matches have the same keys.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from cdc.clock import Clock
from cdc.errors import SinkUnfit, SinkUnreachable, UsageError
from sinks.contract import Change, Topic
from sinks.search.indices import Indices
from sinks.search.opensearch_client import Answer, Client

QUERIES_MAX: Final = 10_000
"""Per table: OpenSearch's limit for the results of one search (`index.max_result_window`)."""
LOOK_S: Final = 2.0
"""Between checks for queries; a new query is noticed within this time."""
DOCUMENTS: Final = 200
"""Documents per request; their bytes are bounded by the sink's `request_bytes`."""
_QUERY: Final = "__query"
_VERSION: Final = "__version"
_MISSING: Final = frozenset({404})
_REFUSED: Final = frozenset({400})


class Query(NamedTuple):
    """A stored query; `version` grows each time it is stored again."""

    name: str
    version: int
    query: Mapping[str, Any]


class Match(NamedTuple):
    """A document that matches a query. A repeated match has the same `key`."""

    change: Change
    key: bytes
    value: bytes


class Publisher(Protocol):
    """Receives matches. Thread-safe."""

    def publish(self, matches: Sequence[Match]) -> None:
        """Write matches; they are durable when this returns. Raises SinkUnreachable when that is unknown."""

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
    """The stored queries of one sink."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices
        self._client: Client = indices.client

    def add(self, topic: Topic, name: str, query: Mapping[str, Any], settings: Mapping[str, Any]) -> Query:
        """Store a query, or replace the one of that name. Raises UsageError when OpenSearch rejects it."""
        live = self._indices.live(topic)
        if live is None:
            raise SinkUnfit(
                f"there is no index of {topic.table} yet",
                hint="run the sink first: queries use the fields of its index",
                command=f"cdc sink run {self._indices.sink}",
                table=topic.table,
            )
        index = self._index(topic)
        fields = {**live.fields, _QUERY: {"type": "percolator"}, _VERSION: {"type": "long"}}
        body = {"settings": {"index": dict(settings)}, "mappings": {"dynamic": False, "properties": fields}}
        answer = self._client.ask("PUT", f"/{index}", body, expected=_REFUSED)
        if isinstance(answer, Answer):  # the index exists: columns may have been added since
            answer = self._client.ask("PUT", f"/{index}/_mapping", {"properties": fields}, expected=_REFUSED)
        if isinstance(answer, Answer):
            raise SinkUnfit(
                f"the queries of {topic.table} use fields of other types than its index has now ({answer.kind})",
                hint="remove all queries of the table, and add them again",
                command=f"cdc sink query list {self._indices.sink}",
                table=topic.table,
            )
        there = {each.name: each for each in self.all(topic)}
        if name not in there and len(there) >= QUERIES_MAX:
            raise UsageError(f"{topic.table} already has {QUERIES_MAX} queries, the maximum")
        version = there[name].version + 1 if name in there else 1
        document = {_QUERY: dict(query), _VERSION: version}
        path = f"/{index}/_doc/{name}"
        answer = self._client.ask("PUT", path, document, params={"refresh": "true"}, expected=_REFUSED)
        if isinstance(answer, Answer):
            raise UsageError(
                f"OpenSearch rejects the query ({answer.kind})",
                hint='expected the "query" of a search over existing fields, e.g. {"match": {"name": "apple"}}',
            )
        return Query(name, version, query)

    def remove(self, topic: Topic, name: str) -> bool:
        """Remove a query; False when there is none of that name.

        Removing the last query also removes the fields of the queries; later queries use the current fields of the
        index.
        """
        index = self._index(topic)
        path = f"/{index}/_doc/{name}"
        gone = self._client.ask("DELETE", path, params={"refresh": "true"}, expected=_MISSING)
        if not isinstance(gone, Answer) and not self.any(topic):
            self._client.ask("DELETE", f"/{index}", expected=_MISSING)
        return not isinstance(gone, Answer)

    def all(self, topic: Topic) -> list[Query]:
        """Return all queries of a table, by name."""
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
        """Yield the matches of these documents; with `only`, those of one query."""
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
                hint="a column type changed since they were stored: remove all queries of the table and add them again",
                command=f"cdc sink query list {self._indices.sink}",
                table=topic.table,
            )
        try:
            return _FOUND.decode(answer).hits.hits
        except msgspec.MsgspecError:
            raise SinkUnreachable("OpenSearch returned an incomplete response about stored queries") from None

    def _index(self, topic: Topic) -> str:
        return f"{self._indices.alias(topic.table)}-queries"  # no escape has a q


class Matcher:
    """See `sinks.search.target.DocumentObserver`: publishes the matches of tables with stored queries."""

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
    """Return a match as it is published. The key is the same when a record matches the same query again."""
    key = {"query": query, "version": version, "table": topic.table, "key": msgspec.Raw(change.key)}
    placed = {**key, "partition": change.partition, "offset": change.offset}
    position = {"topic": topic.topic, "epoch": change.epoch, "commit_lsn": change.commit_lsn, "ts_ms": change.ts_ms}
    return Match(change, msgspec.json.encode(placed), msgspec.json.encode({**placed, **position}))
