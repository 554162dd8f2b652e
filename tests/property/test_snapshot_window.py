"""Snapshots against a model of the server: no stale, missing or extra row under hidden commits, moves and kills."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot.merger import Merger
from snapshot.window import Window
from tests.property import snapshot_mutants as mutants
from tests.property.obligations import LOG_IS_TABLE, NO_STALE_ROW, assert_found
from tests.property.snapshot_history import History, Joined

_EXAMPLES = 10_000 if settings().derandomize else 100_000
_HISTORIES = 6000  # of a mutant, at most; most are found within some hundred
_NUMBERS = 200
_ORDINARY, _WRAPPING = 700, (1 << 32) - 6  # the first transaction id

Make = Callable[[Window], Merger]


def _merger(window: Window) -> Merger:
    return Merger(window, chunk_bytes=mutants.CHUNK_BYTES)


def _run(history: History, numbers: list[int]) -> Counter[str]:
    history.run(numbers)
    history.finish()
    return history.seen


def seeded(
    seed: int, window: type[Window] = Window, merger: type[Merger] = Merger, kind: type[History] = History
) -> None:
    """Run the history that a seed stands for."""
    chance = random.Random(seed)
    numbers = [chance.randrange(1 << 16) for _ in range(_NUMBERS)]
    first = _WRAPPING if seed % 2 else _ORDINARY
    history = kind(
        first, lambda: merger(window(), chunk_bytes=mutants.CHUNK_BYTES), numbers[:20], reselect=seed % 3 > 0
    )
    _run(history, numbers[20:])


def test_log_folds_to_the_table_and_no_stale_row_joins() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=_EXAMPLES)
    @given(
        steps=st.binary(min_size=2 * _NUMBERS, max_size=2 * _NUMBERS),
        first=st.sampled_from([_ORDINARY, _WRAPPING]),
        keys_max=st.sampled_from([2, 1000]),
        reselect=st.booleans(),
        kind=st.sampled_from([History, Joined]),
    )
    def histories(steps: bytes, first: int, keys_max: int, *, reselect: bool, kind: type[History]) -> None:
        numbers = [high << 8 | low for high, low in zip(steps[::2], steps[1::2], strict=True)]
        history = kind(first, lambda: _merger(Window(keys_max=keys_max)), numbers[:20], reselect=reselect)
        seen.update(name for name, count in _run(history, numbers[20:]).items() if count)

    histories()
    wanted = ["dropped", "refused", "planned_again", "emptied", "sliced", "repaired", "joined in a transaction"]
    rare = {what: seen[what] for what in [*wanted, "lost session", "id beyond 32 bits"] if seen[what] < 200}
    assert not rare, "each must have happened in 200 histories at least"


@pytest.mark.parametrize(
    ("window", "merger", "kind", "obligation"),
    [
        (mutants.NothingSuspected, Merger, History, NO_STALE_ROW),
        (mutants.SuspicionForgotten, Merger, Joined, LOG_IS_TABLE),
        (mutants.UnknownKeysJoin, Merger, History, NO_STALE_ROW),
        (mutants.KeysForgotten, Merger, History, NO_STALE_ROW),
        (mutants.LargeKeysForgotten, Merger, History, NO_STALE_ROW),
        (mutants.PendingNotKnown, Merger, History, NO_STALE_ROW),
        (mutants.NothingDropped, Merger, History, NO_STALE_ROW),
        (mutants.RegisteredLate, Merger, History, NO_STALE_ROW),
        (mutants.JoinedAtOnce, Merger, History, NO_STALE_ROW),
        (mutants.LsnWindow, Merger, History, NO_STALE_ROW),
        (mutants.TruncateForgotten, Merger, History, NO_STALE_ROW),
        (Window, mutants.PendingLost, History, NO_STALE_ROW),
        (Window, mutants.FilenodeNotCompared, History, LOG_IS_TABLE),
        (Window, mutants.NothingRepaired, History, LOG_IS_TABLE),
        (Window, Merger, mutants.RunningOnly, LOG_IS_TABLE),
        (Window, Merger, mutants.NotWidened, NO_STALE_ROW),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_rule_without_one_of_its_clauses_is_found_wrong(
    window: type[Window], merger: type[Merger], kind: type[History], obligation: str
) -> None:
    def history(seed: int) -> None:
        seeded(seed, window, merger, kind)

    assert_found(obligation, history, _HISTORIES)
