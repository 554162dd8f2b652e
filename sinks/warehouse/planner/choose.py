"""Which plan a view is kept by in the next cut, from what its plans took before. Pure.

After its first build a view of a million rows or more is kept by deltas where it can be, else by keys: to recompute it
may be very dear (2026-11-23, `docs/performance.md`). Then, and of smaller ones at once, every plan is looked at, twice
where the first run does not settle it: that one finds nothing compiled. From then on the plan is taken that will cost
the least: recompute costs what it did, the others what they did in cuts that changed about as much. Now and then
another one is tried, because tables grow: rarely, and more rarely the more it would cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from statistics import median_low
from typing import Final, Literal, TypeAlias, TypeVar

from sinks.warehouse.lake.plan_run import Run

PlanName: TypeAlias = Literal["recompute", "affected", "delta"]
_Plan = TypeVar("_Plan", bound=str)
PLANS: Final[tuple[PlanName, ...]] = ("recompute", "affected", "delta")
RUNS_KEPT: Final = 5  # a median of five is not moved by two slow ones
SMALL_ROWS: Final = 1_000_000
_TINY_ROWS: Final = SMALL_ROWS // 10  # of what is read; below, views are recomputed without a look at other plans
_ONCE_RATIO_MAX: Final = 2.0  # a first run that took more of the best plan's time settles it
_TRY_EVERY: Final = 24  # computed cuts, for each time that it takes as long as the best plan
_NO_TIME_S: Final = 0.001
_ALIKE: Final = 4.0  # cuts with up to so many times the changes cost about the same
_FEW_CHANGES: Final = 100  # below it is all the same


Runs: TypeAlias = Mapping[str, Sequence[Run]]
"""Plan -> its last runs, the newest last."""


def choose(
    possible: Sequence[PlanName], runs: Runs, *, base_rows: int, changes: int, since: int
) -> tuple[PlanName, str]:
    """The plan, and why.

    Args:
        possible: the plans that give the view; recompute is always among them.
        runs: of the plans.
        base_rows: of the tables it reads.
        changes: records that the cut brings to them.
        since: computed cuts since another plan than the best was tried.
    """
    if len(possible) == 1:
        return possible[0], "the only plan"
    known = _expected([plan for plan in possible if runs.get(plan)], runs, changes)
    # The first build counts as a run of recompute: it says nothing of the others.
    if known.keys() <= {"recompute"} and base_rows >= SMALL_ROWS:
        best: PlanName = "delta" if "delta" in possible else "affected"
        return best if best in possible else "recompute", f"not measured yet, and it reads {base_rows:,} rows"
    if not known:
        return "recompute", f"not measured yet, and it reads {base_rows:,} rows"
    cheapest = min(known, key=known.__getitem__)
    said = f"{cheapest} takes {known[cheapest]:.2f} s"
    if base_rows >= _TINY_ROWS:
        looked = _to_look_at(possible, runs, known, cheapest)
        if looked is not None:
            return looked, f"not known well yet: {said}"
    tried = _to_try(known, cheapest, since)
    return (cheapest, f"takes {known[cheapest]:.2f} s") if tried is None else (tried, f"tried again: {said}")


def measured(runs: Runs, plan: str, run: Run) -> dict[str, tuple[Run, ...]]:
    """The runs with one more."""
    kept = (*runs.get(plan, ()), Run(round(run.seconds, 4), run.changes))[-RUNS_KEPT:]
    return {**{name: tuple(before) for name, before in runs.items()}, plan: kept}


def usual(runs: Runs, changes: int) -> str | None:
    """The plan that is expected to cost the least; None before the first run."""
    expected = _expected([plan for plan in runs if runs[plan]], runs, changes)
    return min(expected, key=expected.__getitem__, default=None)


def _expected(plans: Sequence[_Plan], runs: Runs, changes: int) -> dict[_Plan, float]:
    """Plan -> seconds that it will take."""
    return {plan: _cost(runs[plan], None if plan == "recompute" else changes) for plan in plans}


def _cost(runs: Sequence[Run], changes: int | None) -> float:
    """The lower median of the runs most like this cut. `changes` is None where they do not matter."""
    if changes is None:
        return median_low(run.seconds for run in runs)
    far = [max(_distance(run.changes, changes), log(_ALIKE)) for run in runs]
    return median_low(run.seconds for run, away in zip(runs, far, strict=True) if away == min(far))


def _distance(one: int, other: int) -> float:
    """How many times more changes, as a logarithm."""
    return abs(log(max(one, _FEW_CHANGES) / max(other, _FEW_CHANGES)))


def _to_look_at(
    possible: Sequence[PlanName], runs: Runs, known: Mapping[PlanName, float], cheapest: PlanName
) -> PlanName | None:
    """A plan that was never run, or once and was not far behind: the first run compiles what later ones find."""
    for plan in possible:
        if plan not in known:
            return plan
    enough = known[cheapest] * _ONCE_RATIO_MAX
    once = [plan for plan in known if plan != cheapest and len(runs[plan]) == 1 and known[plan] <= enough]
    return min(once, key=known.__getitem__, default=None)


def _to_try(known: Mapping[PlanName, float], cheapest: PlanName, since: int) -> PlanName | None:
    """A plan that is not the best one and should be run once: so seldom that trying takes a share of the time only."""
    others: list[PlanName] = [plan for plan in known if plan != cheapest]
    nearest = min(others, key=known.__getitem__, default=None)
    if nearest is None or since < _TRY_EVERY * known[nearest] / max(known[cheapest], _NO_TIME_S):
        return None
    return nearest
