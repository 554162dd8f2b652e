"""Stores the position of each index in OpenSearch: everything below these offsets was applied to it. I/O.

One small index per sink, with a document per index and partition. A new index has no positions, so its topic is read
from the beginning, whatever the consumer group has committed. A replaced index keeps its positions for a rollback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from cdc.errors import SinkUnfit
from sinks.search.bulk_answers import IndexFailure, parse_bulk
from sinks.search.bulk_requests import admit
from sinks.search.index_names import REQUIRED, alias_of, writable
from sinks.search.opensearch_client import Answer, Client

_MISSING: Final = frozenset({404})
_REFUSED: Final = frozenset({400})
_BODY: Final = {
    "settings": {"index": {"number_of_shards": 1}},
    "mappings": {"dynamic": "strict", "properties": {"offset": {"type": "long"}}},
}


class _Note(msgspec.Struct):
    offset: int


class _Found(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    source: _Note | None = msgspec.field(name="_source", default=None)


class _Answered(msgspec.Struct):
    docs: list[_Found]


_ANSWERED: Final = msgspec.json.Decoder(_Answered)


class IndexPositions:
    """The stored positions of one sink. Not thread-safe."""

    def __init__(self, client: Client, pipeline: str, sink: str) -> None:
        self._client = client
        self._sink = sink
        alias = alias_of(pipeline, sink, ".")
        self._index = f"{alias.rstrip('.')}-positions"  # no escape has a p

    def open(self) -> None:
        """Create the index of positions if it is missing. Raises SinkUnfit when OpenSearch refuses."""
        answer = self._client.ask("PUT", f"/{self._index}", _BODY, expected=_REFUSED)
        if isinstance(answer, Answer) and answer.kind != "resource_already_exists_exception":
            raise SinkUnfit(f"OpenSearch refuses to create the index {self._index} ({answer.kind})", sink=self._sink)
        admit(self._client, self._index)

    def note(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Store offsets by index and partition; an offset lower than the stored one is ignored."""
        if not positions:
            return
        lines = []
        for (index, partition), offset in positions.items():
            action = {"_index": writable(self._index), "_id": _id(index, partition), "version": offset}
            lines += [{"index": {**action, "version_type": "external_gte"}}, {"offset": offset}]
        body = b"\n".join(msgspec.json.encode(line) for line in lines) + b"\n"
        answer = self._client.ask("POST", "/_bulk", body, params=REQUIRED, ndjson=True)
        outcomes = parse_bulk(str(answer), len(positions)) or []
        if IndexFailure.GONE in outcomes:
            self.open()  # the positions are lost; the next call stores all of them again

    def noted(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the stored offsets by index and partition."""
        wanted = {_id(*place): place for place in places}
        if not wanted:
            return {}
        body = {"ids": list(wanted)}
        answer = self._client.ask("POST", f"/{self._index}/_mget", body, expected=_MISSING)
        if isinstance(answer, Answer):
            return {}
        found = _ANSWERED.decode(answer).docs
        return {wanted[each.id]: each.source.offset for each in found if each.source is not None}

    def forget(self, index: str, partition_count: int) -> None:
        """Delete the positions of an index."""
        lines = [
            {"delete": {"_index": writable(self._index), "_id": _id(index, partition)}}
            for partition in range(partition_count)
        ]
        body = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        self._client.ask("POST", "/_bulk", body, params=REQUIRED, ndjson=True)


def _id(index: str, partition: int) -> str:
    return f"{index}/{partition}"
