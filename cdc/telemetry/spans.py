"""Spans of traces, and which source transactions are traced. Pure; `cdc.telemetry.otel` exports spans.

The ids of a traced transaction are a hash of its position. So capture and every sink choose the same transactions and
agree on the ids of trace and span, and nothing has to be added to the records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol

from cdc.clock import Clock

_FIELD: Final = b'"txId":'
_TRANSACTION: Final = re.compile(rb'"txId":(\d+),"epoch":\d+,"commit_lsn":(\d+)')
"""Fields of `source` as `cdc.encode.envelope.stamp` writes them; a string in a row would have its quotes escaped."""

_PARENT: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf]")
"""A sampled `traceparent`. https://www.w3.org/TR/trace-context/#traceparent-header"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One finished step of a trace.

    Times are nanoseconds since 1970. `parent_id` 0: it is the first one. `links` are trace and span ids of others.
    `internal`: it neither publishes nor consumes messages.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    links: tuple[tuple[int, int], ...] = ()
    internal: bool = False


class SpanOutlet(Protocol):
    """Takes spans. Never blocks; it drops spans that it has no room for, and counts them."""

    def emit(self, span: Span) -> None:
        """Take a span."""


@dataclass(frozen=True, slots=True)
class TracedTransaction:
    """The ids of a transaction that is traced: of its trace, and of capture's span in it."""

    trace_id: int
    span_id: int


class Sampler:
    """Chooses the transactions of one pipeline that are traced."""

    def __init__(self, pipeline: str, ratio: float) -> None:
        self._pipeline = pipeline.encode()
        self._below = int(ratio * (1 << 64))

    def chosen(self, xid: int, commit_lsn: int) -> TracedTransaction | None:
        """Return the ids of a transaction; None if it is not traced."""
        digest = blake2b(b"%b/%d/%d" % (self._pipeline, xid, commit_lsn), digest_size=24).digest()
        if int.from_bytes(digest[:8], "big") >= self._below:
            return None
        trace_id, span_id = int.from_bytes(digest[8:], "big"), int.from_bytes(digest[:8], "big")
        return TracedTransaction(trace_id or 1, span_id or 1)


@dataclass(frozen=True, slots=True)
class SinkTracing:
    """What the spans of one sink are made with."""

    pipeline: str
    sink: str
    sampler: Sampler
    outlet: SpanOutlet
    clock: Clock

    def transaction_of(self, value: bytes | None) -> tuple[tuple[int, int], TracedTransaction] | None:
        """Return xid and commit LSN of a record, and the ids of its transaction; None if that is not traced."""
        found = None if value is None else source_transaction(value)
        traced = None if found is None else self.sampler.chosen(*found)
        return None if found is None or traced is None else (found, traced)


def own_span_id(*parts: object) -> int:
    """Return the id of a span from what identifies it."""
    digest = blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


def own_trace_id(*parts: object) -> int:
    """Return the id of a trace from what identifies it."""
    digest = blake2b("/".join(map(str, parts)).encode(), digest_size=16).digest()
    return int.from_bytes(digest, "big") or 1


def source_transaction(value: bytes) -> tuple[int, int] | None:
    """Return xid and commit LSN of a record in JSON; None for a row that was read from a table.

    `source` comes after the row.
    """
    match = _TRANSACTION.match(value, max(0, value.rfind(_FIELD)))
    return None if match is None else (int(match[1]), int(match[2]))


def sampled_parent(traceparent: bytes) -> tuple[int, int] | None:
    """Return trace id and span id of a caller whose trace is sampled; None for any other text."""
    match = _PARENT.fullmatch(traceparent)
    if match is None:
        return None
    found = int(match[1], 16), int(match[2], 16)
    return found if all(found) else None
