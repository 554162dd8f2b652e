"""For any changes in a cut, a view updated by its plan equals its query: in DuckDB, against recompute."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.warehouse.planner.plan import plan_view
from tests.property.obligations import VIEW_IS_QUERY, Violation
from tests.property.view_mutants import MUTANTS
from tests.property.viewqueries import Query
from tests.property.viewshapes import BY_KEYS, CONSTANTS, FIRST_ROWS, OVER_VIEWS, RECOMPUTED
from tests.property.viewworld import Kept, relations

_PARTS = 5
SHAPES = {**BY_KEYS, **FIRST_ROWS, **CONSTANTS}
seeds = st.integers(0, 1 << 30)


def follow(kept: Kept, cuts: int) -> Kept:
    """So many cuts, compared after each."""
    kept.check()
    for _ in range(cuts):
        kept.step()
        kept.check()
    return kept


# Many views over one shop cost what one does; some sets of them, so that workers share the time.
@pytest.mark.parametrize("part", range(_PARTS))
@settings(max_examples=2)
@given(seed=seeds)
def test_a_view_kept_by_keys_is_what_its_query_gives(part: int, seed: int) -> None:
    views = dict(list(BY_KEYS.items())[part::_PARTS])

    kept = follow(Kept(seed, views), cuts=8)

    assert {name: plan.reason for name, plan in kept.plans.items() if plan.reason} == {}
    assert not kept.recomputed


@settings(max_examples=60)
@given(seed=seeds)
def test_any_query_is_kept_or_recomputed_and_never_wrong(seed: int) -> None:
    follow(Kept(seed, {"v": Query(seed).sql}), cuts=4)


@settings(max_examples=2)
@given(seed=seeds)
def test_views_over_views_are_kept_by_the_rows_that_changed_in_those(seed: int) -> None:
    kept = follow(Kept(seed, OVER_VIEWS), cuts=8)

    assert set(kept.recomputed) <= {"v_total"}


@settings(max_examples=4)
@given(seed=seeds)
def test_first_rows_are_kept_by_keys_and_are_what_their_query_gives(seed: int) -> None:
    kept = follow(Kept(seed, FIRST_ROWS), cuts=16)

    assert {name: plan.reason for name, plan in kept.plans.items() if plan.reason} == {}
    assert not kept.recomputed["first_of_many"]
    assert sum(kept.kept.values()) > sum(kept.recomputed.values())


@settings(max_examples=4)
@given(seed=seeds)
def test_view_is_kept_by_keys_while_a_value_for_every_row_stays_the_same(seed: int) -> None:
    kept = follow(Kept(seed, CONSTANTS), cuts=16)

    assert {name: plan.reason for name, plan in kept.plans.items() if plan.reason} == {}
    assert kept.kept.keys() | kept.recomputed.keys() == CONSTANTS.keys()


@pytest.mark.parametrize("shape", RECOMPUTED)
def test_what_no_plan_covers_is_recomputed_with_its_reason(shape: str) -> None:
    sql, reason = RECOMPUTED[shape]

    assert reason in plan_view(shape, sql, relations()).reason


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_clause_of_the_rule_is_needed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, shapes = MUTANTS[mutant]
    views = {shape: SHAPES[shape] for shape in shapes}
    break_it(monkeypatch)

    assert found_wrong(views)


def test_old_images_are_needed() -> None:
    shapes = ("filtered", "grouped", "friends", "left", "exists")

    assert found_wrong({shape: BY_KEYS[shape] for shape in shapes}, without_old_images=True)
    assert not found_wrong({shape: BY_KEYS[shape] for shape in shapes})


def found_wrong(views: dict[str, str], *, without_old_images: bool = False) -> bool:
    """Whether some shop shows a view that is not what its query gives."""
    for seed in range(6):
        try:
            follow(Kept(seed, views, without_old_images=without_old_images), cuts=12)
        except Violation as broken:
            if broken.obligation == VIEW_IS_QUERY:
                return True
    return False
