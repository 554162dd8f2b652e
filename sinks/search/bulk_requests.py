"""Sends bulk requests, built from the bytes of the rows; splits a request that is too large. I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from cdc.errors import SinkUnreachable
from sinks.contract import Outcome, Verdict
from sinks.search.bulk_answers import IndexFailure, parse_bulk
from sinks.search.index_names import NO_DOCUMENT, REQUIRED, writable
from sinks.search.opensearch_client import Answer, Client

_TOO_LARGE: Final = 413
_NO_ROOM: Final = 429
_EXPECTED: Final = frozenset({_TOO_LARGE, _NO_ROOM})


class Write(NamedTuple):
    """A document to write, or to delete (no source); `place` is its position among the changes."""

    place: int
    topic: str
    into: str
    name: str
    version: int
    source: bytes | None


def send(
    client: Client, writes: Sequence[Write], *, check: Callable[[], None] = lambda: None, again: bool = False
) -> dict[int, Outcome | IndexFailure]:
    """Return the outcome of each write, by place. `check` runs before each request; `again` also writes equal versions.

    Raises SinkUnreachable when the outcome of all is unknown, SinkUnfit.
    """
    found: dict[int, Outcome | IndexFailure] = {}
    open_: list[Sequence[Write]] = [writes] if writes else []
    while open_:
        part = open_.pop()
        check()
        # Without `filter_path`: with it OpenSearch takes twice as long for the whole request (2026-11-22).
        guarded = _only_deleted_from(part)
        body = b"".join(map(_guard, guarded)) + lines(part, again=again)
        answer = client.ask("POST", "/_bulk", body, params=REQUIRED, expected=_EXPECTED, ndjson=True)
        if isinstance(answer, Answer):
            if answer.status == _TOO_LARGE and len(part) > 1:
                middle = len(part) // 2
                open_ += [part[middle:], part[:middle]]
                continue
            verdict = Verdict.REFUSED if answer.status == _TOO_LARGE else Verdict.LATER
            error = "request_entity_too_large" if answer.status == _TOO_LARGE else answer.kind or "too_many_requests"
            found |= {write.place: Outcome(verdict, error) for write in part}
            continue
        outcomes = parse_bulk(answer, len(guarded) + len(part))
        if outcomes is None:
            raise SinkUnreachable(
                f"{client.url} returned an incomplete response for {len(part)} documents",
                hint="a proxy may truncate responses; the documents are sent again",
            )
        found |= {write.place: outcome for write, outcome in zip(part, outcomes[len(guarded) :], strict=True)}
    return found


def _only_deleted_from(writes: Sequence[Write]) -> list[str]:
    """Return the indices that need a guard: OpenSearch ignores `require_alias` of deletes."""
    return sorted({write.into for write in writes} - {write.into for write in writes if write.source is not None})


def _guard(index: str) -> bytes:
    """Return the update of a document that never exists.

    A delete with a version creates a missing index, as a write does. One action in the request that requires the alias
    prevents that (OpenSearch 3.8, 2026-11-28).
    """
    return f'{{"update":{{"_index":"{writable(index)}","_id":"{NO_DOCUMENT}"}}}}\n{{"doc":{{}}}}\n'.encode()


def lines(writes: Sequence[Write], *, again: bool = False) -> bytes:
    """Return the request body: an action per write, followed by the document unless it is a delete.

    Names need no escaping (`index_names`).
    """
    kind = "external_gte" if again else "external"
    heads: Mapping[str, tuple[str, str]] = {
        index: (
            f'{{"index":{{"_index":"{writable(index)}","_id":"',
            f'{{"delete":{{"_index":"{writable(index)}","_id":"',
        )
        for index in {write.into for write in writes}
    }
    parts: list[bytes] = []
    for _, _, index, name, version, source in writes:
        head = heads[index][source is None]
        parts.append(f'{head}{name}","version":{version},"version_type":"{kind}"}}}}\n'.encode())
        if source is not None:
            parts += (source, b"\n")
    return b"".join(parts)


def admit(client: Client, index: str) -> None:
    """Give an existing index the alias that writes name; one that an earlier release created lacks it."""
    client.ask("PUT", f"/{index}/_alias/{writable(index)}")
