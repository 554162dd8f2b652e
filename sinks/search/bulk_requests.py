"""Bulk requests: lines made of bytes that are there already, halves where a request is too large. Edge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from cdc.errors import SinkUnreachable
from sinks.contract import Outcome, Verdict
from sinks.search.bulk_answers import IndexFailure, parse_bulk
from sinks.search.opensearch_client import Answer, Client

_TOO_LARGE: Final = 413
_NO_ROOM: Final = 429
_EXPECTED: Final = frozenset({_TOO_LARGE, _NO_ROOM})


class Write(NamedTuple):
    """A document to be written, or deleted (no source): the index, the id, and its place among the changes."""

    place: int
    topic: str
    into: str
    name: str
    version: int
    source: bytes | None


def send(
    client: Client, writes: Sequence[Write], *, check: Callable[[], None] = lambda: None, again: bool = False
) -> dict[int, Outcome | IndexFailure]:
    """What became of each, by place. `check` is called before each request; with `again` an equal version is taken.

    Raises SinkUnreachable when nothing is known of any, SinkUnfit.
    """
    found: dict[int, Outcome | IndexFailure] = {}
    open_: list[Sequence[Write]] = [writes] if writes else []
    while open_:
        part = open_.pop()
        check()
        # Without `filter_path`: with it OpenSearch takes twice as long for the whole request (2026-11-22).
        answer = client.ask("POST", "/_bulk", lines(part, again=again), expected=_EXPECTED, ndjson=True)
        if isinstance(answer, Answer):
            if answer.status == _TOO_LARGE and len(part) > 1:
                middle = len(part) // 2
                open_ += [part[middle:], part[:middle]]
                continue
            verdict = Verdict.REFUSED if answer.status == _TOO_LARGE else Verdict.LATER
            error = "request_entity_too_large" if answer.status == _TOO_LARGE else answer.kind or "too_many_requests"
            found |= {write.place: Outcome(verdict, error) for write in part}
            continue
        outcomes = parse_bulk(answer, len(part))
        if outcomes is None:
            raise SinkUnreachable(
                f"{client.url} gave no whole answer to {len(part)} documents",
                hint="something between us and OpenSearch may cut answers off; they are sent again",
            )
        found |= {write.place: outcome for write, outcome in zip(part, outcomes, strict=True)}
    return found


def lines(writes: Sequence[Write], *, again: bool = False) -> bytes:
    """The body: an action, and a document behind it unless it is a delete. Names need no escape (`naming`)."""
    kind = "external_gte" if again else "external"
    heads: Mapping[str, tuple[str, str]] = {
        index: (f'{{"index":{{"_index":"{index}","_id":"', f'{{"delete":{{"_index":"{index}","_id":"')
        for index in {write.into for write in writes}
    }
    parts: list[bytes] = []
    for _, _, index, name, version, source in writes:
        head = heads[index][source is None]
        parts.append(f'{head}{name}","version":{version},"version_type":"{kind}"}}}}\n'.encode())
        if source is not None:
            parts += (source, b"\n")
    return b"".join(parts)
