"""The cost of a view's first build does not prevent that its plan is used in the next cut."""

from __future__ import annotations

import pytest

from sinks.warehouse.lake.plan_run import Run
from sinks.warehouse.planner.choose import choose

BUILT = {"recompute": (Run(61.8, 0),)}


@pytest.mark.parametrize(("rows", "plan"), [(5_000_000, "affected"), (200_000, "affected"), (50_000, "recompute")])
def test_first_cut_after_the_build_is_chosen_by_size(rows: int, plan: str) -> None:
    assert choose(BUILT, base_rows=rows, changes=10, since=1)[0] == plan


def test_first_run_settles_it_only_if_it_was_far_behind() -> None:
    """The first run includes compilation: a plan that took half as long again may be the faster one."""
    near, far = ({**BUILT, "affected": (Run(seconds, 10),)} for seconds in (90.0, 200.0))

    assert choose(near, base_rows=5_000_000, changes=10, since=1)[0] == "affected"
    assert choose(far, base_rows=5_000_000, changes=10, since=1)[0] == "recompute"
