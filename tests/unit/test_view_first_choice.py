"""What a view's first build took does not keep it from being kept by its plan in the next cut."""

from __future__ import annotations

import pytest

from sinks.warehouse.planner.choose import PLANS, choose

BUILT = {"recompute": (61.8,)}


@pytest.mark.parametrize(("rows", "plan"), [(5_000_000, "delta"), (200_000, "recompute")])
def test_first_cut_after_the_build_is_chosen_by_size(rows: int, plan: str) -> None:
    assert choose(PLANS, BUILT, base_rows=rows, since=1)[0] == plan
    assert choose(PLANS, {}, base_rows=rows, since=0)[0] == plan


def test_a_plan_that_was_run_once_is_measured() -> None:
    assert choose(("recompute", "affected"), {**BUILT, "affected": (90.0,)}, base_rows=5_000_000, since=1)[0] == (
        "recompute"
    )
