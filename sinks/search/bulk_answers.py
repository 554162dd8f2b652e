"""What OpenSearch says of each document of a bulk request, as verdicts. Pure.

Reasons are made here and not taken over: OpenSearch shows a preview of the value that it could not read.
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
    """What a document's answer says of its index rather than of the document."""

    BLOCKED = "the index takes no writes: it was replaced by another one, or somebody forbade them"
    GONE = "there is no such index"
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
    """An outcome for each of `count` documents, in their order; None when this is no whole answer to them."""
    try:
        items = _ANSWER.decode(text).items
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if len(items) != count or any(len(item) != 1 for item in items):
        return None
    return [judge(action, item) for each in items for action, item in each.items()]


def judge(action: str, item: _Item) -> Outcome | IndexFailure:
    """The verdict on one document."""
    status, error = item.status, item.error
    if status <= _OK_MAX or (status == 404 and error is None and action == "delete"):
        return _DONE  # a delete of nothing leaves its version behind all the same
    kind = error.type if error else ""
    trouble = _trouble(status, kind)
    if trouble is not None:
        return trouble
    if status == 409 and kind == _CONFLICT:
        return _OVERTAKEN
    if status in {400, 413}:
        return Outcome(Verdict.REFUSED, _class(kind) or f"status_{status}", _reason(error))
    # 429 and 503: no room, or a shard that is not there now; others: nobody knows, and asking again harms nothing.
    return Outcome(Verdict.LATER, _class(kind) or f"status_{status}")


def blocked(outcomes: Sequence[Outcome | IndexFailure]) -> list[int]:
    """Which of them their index did not take because of a block."""
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
    """Which column it was, as far as that can be told. Of a name inside of JSON only the column is a name of ours."""
    found = _FIELD.search(error.reason) if error is not None and error.reason else None
    return f"column {found[1]}" if found else ""
