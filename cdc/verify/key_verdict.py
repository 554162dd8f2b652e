"""Decides whether the content of a key in a store agrees with the topic, and if not, how it differs. Pure.

A key agrees when the store has the row that the topic had at the version in the store, and this version is not older
than the key's last record below the committed offset of the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeAlias

from sinks.contract import Change, Content, StoredKey


class DifferenceKind(StrEnum):
    """How a key differs."""

    MISSING = "missing"
    EXTRA = "extra"
    STALE = "stale"
    DIFFERENT = "different"


ContentOf: TypeAlias = Callable[[Change], Content | None]


def judge(
    accepted: Sequence[Change | None], held: StoredKey | None, end: int, content_of: ContentOf
) -> DifferenceKind | None:
    """Return how the key differs; None when it agrees.

    Args:
        accepted: the allowed states of the key, oldest first: at the committed offset (None: unknown key), and after
            each of its later records.
        held: the content in the store.
        end: offset after the last record of the partition; every valid version is lower.
        content_of: returns the content that the store would have for a change.
    """
    live = [change for change in accepted if change is not None and change.row is not None]
    gone = len(live) < len(accepted)
    if held is None or held.content is None:
        if held is not None and held.version >= end:
            return DifferenceKind.DIFFERENT  # this mark would block every later row
        return None if gone else DifferenceKind.MISSING
    if not live:
        return DifferenceKind.EXTRA
    same = [change for change in live if change.offset == held.version]
    if same:
        return None if _equal(held.content, content_of(same[0]), same[0].kept) else DifferenceKind.DIFFERENT
    return DifferenceKind.STALE if held.version < live[0].offset else DifferenceKind.DIFFERENT


def _equal(found: Content, wanted: Content | None, kept: Sequence[str]) -> bool:
    """Compare all columns except `kept`, whose values the topic does not tell."""
    if wanted is None:
        return False
    without = set(kept)
    return {c: v for c, v in found.items() if c not in without} == {c: v for c, v in wanted.items() if c not in without}
