"""Whatever changes in a cut, a view that is kept by its plan is what its query gives: in DuckDB, against recompute."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.warehouse.planner.plan import plan_view
from tests.property.viewshapes import BY_KEYS, OVER_VIEWS, RECOMPUTED, SUMS
from tests.property.viewworld import Kept, relations

seeds = st.integers(0, 1 << 30)


def follow(kept: Kept, cuts: int) -> Kept:
    """So many cuts, compared after each."""
    kept.check()
    for _ in range(cuts):
        kept.step()
        kept.check()
    return kept


@pytest.mark.parametrize("shape", BY_KEYS)
@settings(max_examples=3)
@given(seed=seeds)
def test_a_view_kept_by_keys_is_what_its_query_gives(shape: str, seed: int) -> None:
    kept = follow(Kept(seed, {shape: BY_KEYS[shape]}), cuts=8)

    assert kept.plans[shape].reason == ""
    assert not kept.recomputed


@settings(max_examples=4)
@given(seed=seeds)
def test_views_over_views_are_kept_by_the_rows_that_changed_in_those(seed: int) -> None:
    kept = follow(Kept(seed, OVER_VIEWS), cuts=8)

    assert set(kept.recomputed) <= {"v_total"}


@pytest.mark.parametrize("shape", SUMS)
@settings(max_examples=4)
@given(seed=seeds)
def test_sums_and_counts_are_kept_by_what_a_cut_adds(shape: str, seed: int) -> None:
    kept = Kept(seed, {shape: SUMS[shape]})

    assert kept.plans[shape].delta is not None
    follow(kept, cuts=8)


@pytest.mark.parametrize("shape", RECOMPUTED)
def test_what_no_plan_covers_is_recomputed_with_its_reason(shape: str) -> None:
    sql, reason = RECOMPUTED[shape]

    assert reason in plan_view(shape, sql, relations()).reason
