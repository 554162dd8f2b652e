"""Whether a store has of a key what the topic says, and if not, in which way. Pure.

A store is right when what it holds is what the topic says of the key as of the version the store gives, and that
version is not below the last record that the sink has accounted for (its committed offset).
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
    """None when it agrees.

    Args:
        accepted: what the key may be, oldest first: as of the committed offset (None: nothing is known of it), and
            behind each record of it after that.
        held: what the store has.
        end: offset behind the partition's last record: no version may be as high.
        content_of: what the store would have of a change.
    """
    live = [change for change in accepted if change is not None and change.row is not None]
    gone = len(live) < len(accepted)
    if held is None or held.content is None:
        if held is not None and held.version >= end:
            return DifferenceKind.DIFFERENT  # a mark that would keep every later row out
        return None if gone else DifferenceKind.MISSING
    if not live:
        return DifferenceKind.EXTRA
    same = [change for change in live if change.offset == held.version]
    if same:
        return None if _equal(held.content, content_of(same[0]), same[0].kept) else DifferenceKind.DIFFERENT
    return DifferenceKind.STALE if held.version < live[0].offset else DifferenceKind.DIFFERENT


def _equal(found: Content, wanted: Content | None, kept: Sequence[str]) -> bool:
    """Column by column; those that a store keeps as it has them are not known here."""
    if wanted is None:
        return False
    without = set(kept)
    return {c: v for c, v in found.items() if c not in without} == {c: v for c, v in wanted.items() if c not in without}
