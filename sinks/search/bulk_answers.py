"""Turns the bulk response of OpenSearch into one verdict per document. Pure.

The reasons are generated here, because OpenSearch's own texts contain a preview of the value that it could not parse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from sinks.contract import Outcome, Verdict

_DONE: Final = Outcome(Verdict.DONE)
_OVERTAKEN: Final = Outcome(Verdict.OVERTAKEN)
_CONFLICT: Final = "version_conflict_engine_exception"
_BLOCK: Final = "cluster_block_exception"
_CLOSED: Final = "index_closed_exception"
_NO_INDEX: Final = "index_not_found_exception"
_SECURITY: Final = "security_exception"
_OK_MAX: Final = 299
_FIELD: Final = re.compile(r"(?:failed to parse field|object mapping for|mapper for|introduction of) \[([^\].]{1,128})")
_CLASS: Final = re.compile(r"[a-z_]{1,80}")


class IndexFailure(Enum):
    """A failure of the index, and not of the document."""

    BLOCKED = "the index is blocked for writes: it was replaced, or an operator blocked it"
    GONE = "the index does not exist"
    CLOSED = "the index is closed"
    FORBIDDEN = "the user may not write to the index"


class _Error(msgspec.Struct):
    type: str = ""
    reason: str | None = None


class _Item(msgspec.Struct):
    status: int
    error: _Error | None = None


class _Answer(msgspec.Struct):
    items: list[dict[str, _Item]]


_ANSWER: Final = msgspec.json.Decoder(_Answer)


def parse_bulk(text: str | bytes, count: int) -> list[Outcome | IndexFailure] | None:
    """Return an outcome for each of `count` documents, in order; None when the response is incomplete."""
    try:
        items = _ANSWER.decode(text).items
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if len(items) != count or any(len(item) != 1 for item in items):
        return None
    return [judge(action, item) for each in items for action, item in each.items()]


def judge(action: str, item: _Item) -> Outcome | IndexFailure:
    """Return the verdict on one document."""
    status, error = item.status, item.error
    if status <= _OK_MAX or (status == 404 and error is None and action == "delete"):
        return _DONE  # deleting a missing document also records its version
    kind = error.type if error else ""
    trouble = _trouble(status, kind)
    if trouble is not None:
        return trouble
    if status == 409 and kind == _CONFLICT:
        return _OVERTAKEN
    if status in {400, 413}:
        return Outcome(Verdict.REFUSED, _class(kind) or f"status_{status}", _reason(error))
    # 429 and 503: overload, or an unavailable shard. Others are unknown; retrying is harmless.
    return Outcome(Verdict.LATER, _class(kind) or f"status_{status}")


def blocked(outcomes: Sequence[Outcome | IndexFailure]) -> list[int]:
    """Return the positions of documents whose index is blocked."""
    return [index for index, outcome in enumerate(outcomes) if outcome is IndexFailure.BLOCKED]


def _trouble(status: int, kind: str) -> IndexFailure | None:
    if status == 404 and kind == _NO_INDEX:
        return IndexFailure.GONE
    if status == 400 and kind == _CLOSED:
        return IndexFailure.CLOSED
    if status == 403:
        return IndexFailure.BLOCKED if kind == _BLOCK else IndexFailure.FORBIDDEN
    return IndexFailure.FORBIDDEN if status == 401 or kind == _SECURITY else None


def _class(kind: str) -> str:
    return kind if _CLASS.fullmatch(kind) else ""


def _reason(error: _Error | None) -> str:
    """Return the column, if known. Names inside a JSON column are data, so only the column is named."""
    found = _FIELD.search(error.reason) if error is not None and error.reason else None
    return f"column {found[1]}" if found else ""
