"""Chooses the plan that a view is kept by in the next cut, from measured costs. Pure.

After its first build, a view of a million rows or more is kept by keys: recomputing it may be very expensive
(2026-11-23, `docs/performance.md`). Then both plans are tried, in smaller views at once. A plan is
tried twice if the first run is not decisive: that run finds nothing compiled. From then on the plan with the lowest
expected cost is used: recompute costs what it did, the others what they did in cuts with about as many changes. Tables
grow, so another plan is tried now and then, more rarely the more it would cost.

Keys have a budget, twice the known time of recompute. A run beyond it is cancelled, and the view is recomputed. So a
cut costs at most three times the time of recompute. A cancelled run is a lower bound of the plan's cost in cuts with
about as many changes or more, and doubles the number of cuts until the plan is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from statistics import median_low
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from sinks.warehouse.lake.plan_run import Run

PlanName: TypeAlias = Literal["recompute", "affected"]
PLANS: Final[tuple[PlanName, ...]] = ("recompute", "affected")
RUNS_KEPT: Final = 5  # a median of five is not moved by two slow ones
SMALL_ROWS: Final = 1_000_000
_TINY_ROWS: Final = SMALL_ROWS // 10  # of the inputs; smaller views are recomputed without trying other plans
_ONCE_RATIO_MAX: Final = 2.0  # a first run that took this many times the best plan's time is decisive
_COLD_S: Final = 10.0  # the first build may take so much longer than the next one, while the JVM starts (2026-11-26)
_TRY_EVERY: Final = 24  # computed cuts, multiplied by the plan's time relative to the best plan
_NO_TIME_S: Final = 0.001
_ALIKE: Final = 4.0  # cuts whose number of changes differs by up to this factor cost about the same
_FEW_CHANGES: Final = 100  # fewer changes cost the same
_BUDGET: Final = 2.0  # times the time of recompute
_BUDGET_MIN_S: Final = 2.0  # a slow moment of the machine must not cancel a plan of a small view

Runs: TypeAlias = Mapping[str, Sequence[Run]]
"""Plan -> its last runs, the newest last."""


def choose(
    runs: Runs, *, base_rows: int, changes: int, since: int, cancelled: Runs = MappingProxyType({})
) -> tuple[PlanName, str]:
    """Return the plan and the reason, for a view that can be kept by keys.

    Args:
        runs: of the plans.
        base_rows: rows of the tables it reads.
        changes: records that the cut brings to them.
        since: computed cuts since a plan other than the best was tried.
        cancelled: its runs that exceeded their budget, as `with_cancelled` returns them.
    """
    known = _expected(runs, changes, cancelled)
    if not known:
        # Without a known time of recompute, a run by keys would have no budget.
        return "recompute", f"not measured yet, and it reads {base_rows:,} rows"
    # The first build counts as a run of recompute; it says nothing about the others.
    if known.keys() == {"recompute"} and base_rows >= SMALL_ROWS:
        return "affected", f"not measured yet, and it reads {base_rows:,} rows"
    cheapest = min(known, key=known.__getitem__)
    cost = f"{cheapest} takes {known[cheapest]:.2f} s"
    if base_rows >= _TINY_ROWS:
        candidate = _to_measure(runs, known, cheapest)
        if candidate is not None:
            return candidate, f"not measured well yet: {cost}"
    tried = _to_try(known, cheapest, since, cancelled)
    return (cheapest, f"takes {known[cheapest]:.2f} s") if tried is None else (tried, f"tried again: {cost}")


def budget_s(runs: Runs) -> float | None:
    """Return how many seconds a run by keys may take; None if no time of recompute is known."""
    known = runs.get("recompute")
    return max(_BUDGET * _cost(known, None), _BUDGET_MIN_S) if known else None


def measured(runs: Runs, plan: str, run: Run) -> dict[str, tuple[Run, ...]]:
    """Return the runs with one more."""
    kept = (*runs.get(plan, ()), Run(round(run.seconds, 4), run.changes))[-RUNS_KEPT:]
    return {**{name: tuple(before) for name, before in runs.items()}, plan: kept}


def without_cancelled(cancelled: Runs, plan: str, changes: int) -> dict[str, tuple[Run, ...]]:
    """Return the cancelled runs that a completed run with so many changes does not disprove."""
    kept = {
        name: tuple(run for run in runs if name != plan or _is_more(run, changes)) for name, runs in cancelled.items()
    }
    return {name: runs for name, runs in kept.items() if runs}


def usual(runs: Runs, changes: int, cancelled: Runs = MappingProxyType({})) -> PlanName | None:
    """Return the plan with the lowest expected cost; None before the first run."""
    expected = _expected(runs, changes, cancelled)
    return min(expected, key=expected.__getitem__, default=None)


def _expected(runs: Runs, changes: int, cancelled: Runs) -> dict[PlanName, float]:
    """Return plan -> expected seconds, for plans that ran, or were cancelled in a cut with at most as many changes."""
    found: dict[PlanName, float] = {}
    for plan in PLANS:
        known = [run.seconds for run in cancelled.get(plan, ()) if not _is_more(run, changes)]
        if runs.get(plan):
            known.append(_cost(runs[plan], None if plan == "recompute" else changes))
        if known:
            found[plan] = max(known)
    return found


def _is_more(run: Run, changes: int) -> bool:
    """Whether a run had clearly more changes."""
    return max(run.changes, _FEW_CHANGES) > _ALIKE * max(changes, _FEW_CHANGES)


def _cost(runs: Sequence[Run], changes: int | None) -> float:
    """Return the lower median of the runs most like this cut. `changes` is None if they do not matter."""
    if changes is None:
        return median_low(run.seconds for run in runs)
    far = [max(_distance(run.changes, changes), log(_ALIKE)) for run in runs]
    return median_low(run.seconds for run, away in zip(runs, far, strict=True) if away == min(far))


def _distance(one: int, other: int) -> float:
    """Return the ratio of the changes, as a logarithm."""
    return abs(log(max(one, _FEW_CHANGES) / max(other, _FEW_CHANGES)))


def _to_measure(runs: Runs, known: Mapping[PlanName, float], cheapest: PlanName) -> PlanName | None:
    """Return a plan that never ran, or ran once and was not far behind: the first run includes compilation."""
    for plan in PLANS:
        if plan not in known:
            return plan
    enough = known[cheapest] * _ONCE_RATIO_MAX
    cold_s: dict[PlanName, float] = {"recompute": _COLD_S}
    once = [
        plan
        for plan in known
        if plan != cheapest and len(runs.get(plan, ())) == 1 and known[plan] - cold_s.get(plan, 0.0) <= enough
    ]
    return min(once, key=known.__getitem__, default=None)


def _to_try(known: Mapping[PlanName, float], cheapest: PlanName, since: int, cancelled: Runs) -> PlanName | None:
    """Return a plan other than the best to try once, so seldom that trials take only a share of the time."""
    others: list[PlanName] = [plan for plan in known if plan != cheapest]
    nearest = min(others, key=known.__getitem__, default=None)
    if nearest is None:
        return None
    every = _TRY_EVERY * 2 ** (len(cancelled.get(nearest, ())))
    return None if since < every * known[nearest] / max(known[cheapest], _NO_TIME_S) else nearest
