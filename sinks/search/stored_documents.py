"""Reads documents by id, or all of an index; the sources are the bytes that OpenSearch stores. I/O."""

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
"""Documents per scroll page, and ids per request."""
_KEEP: Final = "5m"
_MISSING: Final = frozenset({404})


# Source of a missing document; msgspec has no Raw | None.
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
    """Return the existing documents of these ids."""
    return {document.id: bytes(document.source) for document in _gotten(client, index, names) if bytes(document.source)}


def read_keys(client: Client, index: str, key: Sequence[str], names: Sequence[str]) -> dict[str, StoredKey | None]:
    """Return what an index has under these ids."""
    found: dict[str, StoredKey | None] = dict.fromkeys(names)
    for document in _gotten(client, index, names):
        if bytes(document.source):
            found[document.id] = _held(document, key)
    return found


def stored_keys(client: Client, index: str, key: Sequence[str]) -> Iterator[StoredKey]:
    """Yield every document of an index, as of the start of the call."""
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
    return SinkUnreachable(f"{client.url} returned an incomplete response", hint="a proxy may truncate responses")
