"""Reading documents back: by id, and all of an index; sources as the bytes that OpenSearch keeps. Edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cdc.errors import SinkUnreachable
from sinks.contract import StoredKey
from sinks.search.index_names import document_id, key_of
from sinks.search.indices import gone
from sinks.search.mapping import values_of
from sinks.search.opensearch_client import Answer, Client

PAGE: Final = 1_000
"""Documents of one page of a scroll, and ids of one request."""
_KEEP: Final = "5m"
_MISSING: Final = frozenset({404})


# Of a document that is not there; msgspec has no Raw | None.
_NONE: Final = msgspec.Raw()


class _Document(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    version: int = msgspec.field(name="_version", default=-1)
    source: msgspec.Raw = msgspec.field(name="_source", default=_NONE)


class _Gotten(msgspec.Struct):
    docs: list[_Document]


class _Hits(msgspec.Struct):
    hits: list[_Document]


class _Page(msgspec.Struct):
    scroll_id: str = msgspec.field(name="_scroll_id")
    hits: _Hits


_GOTTEN: Final = msgspec.json.Decoder(_Gotten)
_PAGE: Final = msgspec.json.Decoder(_Page)
_VALUES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def sources(client: Client, index: str, names: Sequence[str]) -> dict[str, bytes]:
    """The documents of these ids, of those that are there."""
    return {document.id: bytes(document.source) for document in _gotten(client, index, names) if bytes(document.source)}


def look(client: Client, index: str, key: Sequence[str], names: Sequence[str]) -> dict[str, StoredKey | None]:
    """What an index has under these ids."""
    found: dict[str, StoredKey | None] = dict.fromkeys(names)
    for document in _gotten(client, index, names):
        if bytes(document.source):
            found[document.id] = _held(document, key)
    return found


def held(client: Client, index: str, key: Sequence[str]) -> Iterator[StoredKey]:
    """Every document of an index as it was when this began."""
    body = {"size": PAGE, "sort": ["_doc"], "version": True, "query": {"match_all": {}}}
    answer = client.ask("POST", f"/{index}/_search", body, params={"scroll": _KEEP}, expected=_MISSING)
    if isinstance(answer, Answer):
        raise gone("", index)
    page = _page(client, answer)
    scrolls = {page.scroll_id}
    try:
        while page.hits.hits:
            yield from (_held(document, key) for document in page.hits.hits)
            page = _page(client, client.ask("POST", "/_search/scroll", {"scroll": _KEEP, "scroll_id": page.scroll_id}))
            scrolls.add(page.scroll_id)
    finally:
        client.ask("DELETE", "/_search/scroll", {"scroll_id": sorted(scrolls)}, expected=_MISSING)


def _gotten(client: Client, index: str, names: Sequence[str]) -> Iterator[_Document]:
    for first in range(0, len(names), PAGE):
        answer = client.ask("POST", f"/{index}/_mget", {"ids": list(names[first : first + PAGE])}, expected=_MISSING)
        if isinstance(answer, Answer):
            raise gone("", index)
        try:
            yield from _GOTTEN.decode(answer).docs
        except msgspec.MsgspecError:
            raise _torn(client) from None


def _page(client: Client, answer: str | Answer) -> _Page:
    try:
        return _PAGE.decode(str(answer))
    except msgspec.MsgspecError:
        raise _torn(client) from None


def _held(document: _Document, columns: Sequence[str]) -> StoredKey:
    source = bytes(document.source)
    key = key_of(_VALUES.decode(source), columns)
    if key is not None and document_id(key) != document.id:
        key = None
    return StoredKey(key, document.id, document.version, values_of(source))


def _torn(client: Client) -> SinkUnreachable:
    return SinkUnreachable(
        f"{client.url} gave no whole answer", hint="something between us and OpenSearch may cut answers off"
    )
