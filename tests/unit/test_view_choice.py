"""Which plan a view is kept by: by size at first, by what plans took from then on, and never without a second look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from sinks.warehouse.planner.choose import PLANS, RUNS_KEPT, PlanName, choose, measured

BOTH: Final[tuple[PlanName, ...]] = ("recompute", "affected")
ALL: Final = PLANS
LARGE, SMALL = 5_000_000, 1_000


@pytest.mark.parametrize(
    ("possible", "rows", "plan"),
    [
        (BOTH, SMALL, "recompute"),
        (BOTH, LARGE, "affected"),
        (ALL, LARGE, "delta"),
        (("recompute",), LARGE, "recompute"),
    ],
)
def test_what_was_never_measured_is_chosen_by_size(possible: Sequence[PlanName], rows: int, plan: str) -> None:
    assert choose(possible, {}, base_rows=rows, since=0)[0] == plan


@pytest.mark.parametrize(
    ("costs", "plan"),
    [
        ({"recompute": (2.0, 2.1, 2.0), "affected": (0.5, 0.6, 9.0)}, "affected"),  # one slow run says nothing
        ({"recompute": (0.2, 0.3), "affected": (0.5,)}, "recompute"),
    ],
)
def test_the_plan_with_the_lowest_median_is_chosen(costs: Mapping[str, Sequence[float]], plan: str) -> None:
    assert choose(BOTH, costs, base_rows=LARGE, since=0)[0] == plan


def test_another_plan_is_tried_now_and_then_and_a_dear_one_rarely() -> None:
    near = {"recompute": (1.0,), "affected": (0.5,)}
    dear = {"recompute": (100.0,), "affected": (0.5,)}

    assert first_try(near) == 24
    assert first_try(dear) == 240


def first_try(costs: Mapping[str, Sequence[float]]) -> int:
    """After how many cuts recompute is tried."""
    choices = (choose(BOTH, costs, base_rows=LARGE, since=since)[0] for since in range(600))
    return list(choices).index("recompute")


def test_a_plan_that_was_never_run_is_tried_soon_where_tables_are_large() -> None:
    known = {"affected": (0.5,)}

    assert choose(BOTH, known, base_rows=LARGE, since=6) == ("recompute", "tried again: affected takes 0.50 s")
    assert choose(BOTH, known, base_rows=SMALL, since=6)[0] == "affected"


def test_only_the_last_runs_are_remembered() -> None:
    costs: Mapping[str, Sequence[float]] = {}
    for run in range(10):
        costs = measured(costs, "affected", float(run))

    assert costs == {"affected": (5.0, 6.0, 7.0, 8.0, 9.0)}
    assert len(costs["affected"]) == RUNS_KEPT
