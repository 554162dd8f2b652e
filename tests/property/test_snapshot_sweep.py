"""Repair after a gap, against a model of the server: the log folds to the table, and only missing keys are deleted."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot.merger import Merger
from snapshot.window import Window
from tests.property import snapshot_gap as gap
from tests.property import snapshot_mutants as mutants
from tests.property.obligations import LOG_IS_TABLE, NO_STALE_ROW, ONLY_GONE_DELETED, assert_found

_EXAMPLES = 2500 if settings().derandomize else 60_000
_HISTORIES = 4000  # of a mutant, at most
_BEFORE, _GAP, _NUMBERS = 60, 70, 200


def _history(
    numbers: list[int],
    *,
    kind: type[gap.Repaired] = gap.Repaired,
    merger: type[Merger] = Merger,
    window: type[Window] = Window,
    keys_max: int = 1000,
    reselect: bool = True,
    page: int = 2,
) -> Counter[str]:
    history = kind(
        700,
        lambda: merger(window(keys_max=keys_max), chunk_bytes=mutants.CHUNK_BYTES),
        numbers[:_BEFORE],
        numbers[_BEFORE:_GAP],
        reselect=reselect,
        page=page,
    )
    history.go_on(numbers[0] % 25)
    history.run(numbers[_GAP:])
    history.finish()
    return history.seen


def seeded(
    seed: int,
    kind: type[gap.Repaired] = gap.Repaired,
    merger: type[Merger] = Merger,
    window: type[Window] = Window,
) -> None:
    """Run the history that a seed stands for."""
    chance = random.Random(seed)
    numbers = [chance.randrange(1 << 16) for _ in range(_NUMBERS)]
    _history(numbers, kind=kind, merger=merger, window=window, reselect=seed % 3 > 0, page=1 + seed % 3)


def test_log_of_an_earlier_epoch_folds_to_the_table_after_repair() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=_EXAMPLES)
    @given(
        steps=st.binary(min_size=2 * _NUMBERS, max_size=2 * _NUMBERS),
        keys_max=st.sampled_from([2, 1000]),
        reselect=st.booleans(),
        page=st.sampled_from([1, 2, 1000]),
    )
    def histories(steps: bytes, keys_max: int, *, reselect: bool, page: int) -> None:
        numbers = [high << 8 | low for high, low in zip(steps[::2], steps[1::2], strict=True)]
        found = _history(numbers, keys_max=keys_max, reselect=reselect, page=page)
        seen.update(name for name, count in found.items() if count)

    histories()
    wanted = ["swept", "offered", "streamed", "lost sweep", "lost session", "dropped", "planned_again"]
    rare = {what: seen[what] for what in wanted if seen[what] < 50}
    assert not rare, "each must have happened in 50 histories at least"


@pytest.mark.parametrize(
    ("kind", "merger", "window", "obligation"),
    [
        (gap.NotSwept, Merger, Window, LOG_IS_TABLE),
        (gap.OldRecordSwept, Merger, Window, ONLY_GONE_DELETED),
        (gap.Repaired, gap.StreamIgnored, Window, ONLY_GONE_DELETED),
        (gap.Repaired, gap.NeverLost, Window, ONLY_GONE_DELETED),
        (gap.Repaired, Merger, mutants.NothingSuspected, NO_STALE_ROW),
        (gap.Repaired, mutants.PendingLost, Window, NO_STALE_ROW),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_sweep_without_one_of_its_clauses_is_found_wrong(
    kind: type[gap.Repaired], merger: type[Merger], window: type[Window], obligation: str
) -> None:
    def history(seed: int) -> None:
        seeded(seed, kind, merger, window)

    assert_found(obligation, history, _HISTORIES)
