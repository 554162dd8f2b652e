"""How far each index is, noted beside the indices: below these offsets everything was applied to it. Edge.

One small index a sink, a document for each index and partition. An index that is made anew has no notes, so its topic
is read from its beginning, whatever the consumer group says; one that was replaced keeps its own for a rollback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from cdc.errors import SinkUnfit
from sinks.search.bulk_answers import IndexFailure, parse_bulk
from sinks.search.index_names import alias_of
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
    """The notes of one sink. Not thread-safe."""

    def __init__(self, client: Client, pipeline: str, sink: str) -> None:
        self._client = client
        self._sink = sink
        alias = alias_of(pipeline, sink, ".")
        self._index = f"{alias.rstrip('.')}-positions"  # no escape has a p

    def open(self) -> None:
        """Have the index of the notes. Raises SinkUnfit when OpenSearch makes none."""
        answer = self._client.ask("PUT", f"/{self._index}", _BODY, expected=_REFUSED)
        if isinstance(answer, Answer) and answer.kind != "resource_already_exists_exception":
            raise SinkUnfit(f"OpenSearch refuses to make the index {self._index} ({answer.kind})", sink=self._sink)

    def note(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Note offsets by index and partition; a lower one than was noted is passed over."""
        if not positions:
            return
        lines = []
        for (index, partition), offset in positions.items():
            action = {"_index": self._index, "_id": _id(index, partition), "version": offset}
            lines += [{"index": {**action, "version_type": "external_gte"}}, {"offset": offset}]
        body = b"\n".join(msgspec.json.encode(line) for line in lines) + b"\n"
        answer = self._client.ask("POST", "/_bulk", body, ndjson=True)
        outcomes = parse_bulk(str(answer), len(positions)) or []
        if IndexFailure.GONE in outcomes:
            self.open()  # the notes are lost; the next ones are complete again

    def noted(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Offsets by index and partition, as far as there are any."""
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
        """An index was removed; so are its notes."""
        lines = [
            {"delete": {"_index": self._index, "_id": _id(index, partition)}} for partition in range(partition_count)
        ]
        self._client.ask("POST", "/_bulk", b"".join(msgspec.json.encode(line) + b"\n" for line in lines), ndjson=True)


def _id(index: str, partition: int) -> str:
    return f"{index}/{partition}"
