"""The plan that a view is kept by: chosen by size at first, later by measured costs, and always measured twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from sinks.warehouse.lake.cut_position import START
from sinks.warehouse.lake.plan_run import Run
from sinks.warehouse.planner.choose import RUNS_KEPT, Runs, budget_s, choose, measured, usual, without_cancelled
from sinks.warehouse.views.keeper import records_of

LARGE, SMALL = 5_000_000, 1_000
CHANGES: Final = (1, 700, 6_000, 2_000_000)


@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_what_was_never_measured_is_recomputed(rows: int) -> None:
    """Otherwise the first run by keys would have no budget."""
    assert choose({}, base_rows=rows, changes=10, since=0)[0] == "recompute"


def runs(*seconds: float, changes: int = 10) -> tuple[Run, ...]:
    return tuple(Run(one, changes) for one in seconds)


@pytest.mark.parametrize(
    ("known", "plan"),
    [
        ({"recompute": runs(2.0, 2.1, 2.0), "affected": runs(0.5, 0.6, 9.0)}, "affected"),  # one slow run says nothing
        ({"recompute": runs(0.2, 0.3), "affected": runs(0.5)}, "recompute"),
    ],
)
def test_the_plan_with_the_lowest_median_is_chosen(known: Runs, plan: str) -> None:
    assert choose(known, base_rows=LARGE, changes=10, since=0)[0] == plan
    assert usual(known, 10) == plan


def test_what_a_plan_took_counts_for_cuts_that_change_about_as_much() -> None:
    keys = (*runs(0.3, 0.3, 0.4, changes=200), *runs(8.0, changes=20_000))
    known = {"recompute": (*runs(2.0, changes=200), *runs(2.0, changes=20_000)), "affected": keys}

    chosen = {changes: choose(known, base_rows=LARGE, changes=changes, since=0)[0] for changes in CHANGES}

    assert chosen == {1: "affected", 700: "affected", 6_000: "recompute", 2_000_000: "recompute"}
    assert {changes: usual(known, changes) for changes in CHANGES} == chosen


def test_another_plan_is_tried_now_and_then_and_a_dear_one_rarely() -> None:
    near = {"recompute": runs(1.0, 1.0), "affected": runs(0.5, 0.5)}
    dear = {"recompute": runs(100.0), "affected": runs(0.5)}

    assert first_try(near) == 48
    assert first_try(dear) == 4800


def first_try(known: Runs) -> int:
    """Return the number of cuts after which recompute is tried."""
    choices = (choose(known, base_rows=LARGE, changes=10, since=since)[0] for since in range(6000))
    return list(choices).index("recompute")


def test_a_plan_that_was_never_run_is_looked_at_at_once_where_tables_are_large() -> None:
    known = {"affected": runs(0.5, 0.5)}

    assert choose(known, base_rows=LARGE, changes=10, since=1) == (
        "recompute",
        "not measured well yet: affected takes 0.50 s",
    )
    assert choose(known, base_rows=SMALL, changes=10, since=1)[0] == "affected"


def test_learning_ends_with_two_runs_of_each_plan() -> None:
    """However similar the costs are, a plan that ran twice is not run again."""
    known: Runs = {"recompute": runs(1.0)}
    ran = []
    for _ in range(5):
        plan = choose(known, base_rows=200_000, changes=10, since=0)[0]
        known = measured(known, plan, Run({"recompute": 1.0, "affected": 1.1}[plan], 10))
        ran.append(plan)

    assert sorted(ran[:3]) == ["affected", "affected", "recompute"]
    assert ran[3:] == ["recompute", "recompute"]


SLOW_BY_KEYS: Final = {"recompute": runs(8.0, 8.0, 8.0)}
CANCELLED: Final = {"affected": runs(24.0, changes=1_000)}


def test_budget_is_twice_the_time_of_recompute_and_never_a_moment() -> None:
    assert budget_s(SLOW_BY_KEYS) == 16.0
    assert budget_s({"recompute": runs(0.01)}) == 2.0
    assert budget_s({"affected": runs(0.5)}) is None


def test_cancelled_plan_is_not_tried_again_for_many_cuts_and_then_rarely() -> None:
    once = first_affected(CANCELLED, changes=1_000)
    twice = first_affected(measured(CANCELLED, "affected", CANCELLED["affected"][0]), changes=1_000)

    assert once == 24 * 3 * 2
    assert twice == 2 * once


def first_affected(cancelled: Runs, *, changes: int) -> int:
    """Return the number of cuts after which keys are tried."""
    choices = (
        choose(SLOW_BY_KEYS, base_rows=LARGE, changes=changes, since=since, cancelled=cancelled)[0]
        for since in range(6000)
    )
    return list(choices).index("affected")


def test_cancelled_run_says_nothing_about_much_smaller_cuts() -> None:
    large = {"affected": runs(25.8, changes=20_000)}

    assert first_affected(large, changes=6_000) > 0
    assert first_affected(large, changes=50) == 0
    assert usual(SLOW_BY_KEYS, 6_000, large) == "recompute"


def test_a_plan_that_was_cheap_and_then_cancelled_is_not_the_cheapest() -> None:
    known = {**SLOW_BY_KEYS, "affected": runs(0.5, 0.5, 0.5, changes=1_000)}

    assert choose(known, base_rows=LARGE, changes=1_000, since=1)[0] == "affected"
    assert choose(known, base_rows=LARGE, changes=1_000, since=1, cancelled=CANCELLED)[0] == "recompute"


def test_completed_run_disproves_cancelled_runs_of_such_cuts() -> None:
    cancelled = {"affected": (*runs(9.0, changes=200), *runs(25.8, changes=20_000))}

    assert without_cancelled(cancelled, "affected", 100) == {"affected": runs(25.8, changes=20_000)}
    assert without_cancelled(cancelled, "affected", 10_000) == {}
    assert without_cancelled(cancelled, "recompute", 10_000) == cancelled


def test_only_the_last_runs_are_remembered() -> None:
    known: Runs = {}
    for run in range(10):
        known = measured(known, "affected", Run(float(run), run))

    assert known == {"affected": tuple(Run(float(run), run) for run in range(5, 10))}
    assert len(known["affected"]) == RUNS_KEPT


def test_records_are_counted_for_every_table_that_takes_them() -> None:
    orders, other = "shop.public.orders", ("shop.a-2db.t", 0)
    before = replace(START, accounts={(orders, 0): (5, 5), other: (9, 3)})
    now = replace(START, accounts={(orders, 0): (9, 8), (orders, 1): (2, 2), other: (9, 3)})

    assert records_of(before, now) == {
        "archive/shop.public.orders": 5,
        "mirror/public.orders": 5,
        "history/public.orders": 5,
    }
