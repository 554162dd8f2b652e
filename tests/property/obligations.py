"""Named obligations of the models of snapshots and views: a mutant is found only by the obligation that it breaks.

A failed `assert` elsewhere, in the model or in the product, is a crash. It never counts as a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NO_STALE_ROW: Final = "no stale row joins"
LOG_IS_TABLE: Final = "the log folds to the table"
NEWEST_IS_ROW: Final = "the newest record of a key is its row"
SNAPSHOT_ENDS: Final = "a snapshot ends"
ONLY_GONE_DELETED: Final = "only keys that the table lacks are deleted"
VIEW_IS_QUERY: Final = "a view equals its query"
ONLY_CANDIDATES: Final = "a plan gives rows of candidate keys only"
ONCE: Final = "each change is copied or published, and only once"


class Violation(AssertionError):
    """A history broke `obligation`."""

    def __init__(self, obligation: str, found: str) -> None:
        super().__init__(f"broken obligation {obligation!r}: {found}")
        self.obligation = obligation


def demand(obligation: str, kept: bool, found: str = "") -> None:
    """Raise `Violation` unless the obligation was kept."""
    if not kept:
        raise Violation(obligation, found)


def assert_found(obligation: str, history: Callable[[int], object], count: int) -> None:
    """Run `history` with the seeds below `count` until one breaks `obligation`.

    A history that breaks another obligation does not count. Any other exception is a crash and propagates.

    Raises:
        AssertionError: no history broke the obligation.
    """
    others: set[str] = set()
    for seed in range(count):
        try:
            history(seed)
        except Violation as broken:
            if broken.obligation == obligation:
                return
            others.add(broken.obligation)
    raise AssertionError(f"{count} histories, and none broke {obligation!r}; broken were {sorted(others) or 'none'}")
