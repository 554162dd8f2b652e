"""Which plan a view is kept by in the next cut, from what its plans took before. Pure.

Without a measurement the size of what it reads decides: over less than a million rows recomputing is as fast as
anything (2026-11-21, `docs/performance.md`), above that keys or, for sums and counts, deltas are. From then on the plan
with the lowest median of its last runs is taken. Now and then another one is tried, because tables grow: rarely, and
more rarely the more it would cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, Literal, TypeAlias

PlanName: TypeAlias = Literal["recompute", "affected", "delta"]
PLANS: Final[tuple[PlanName, ...]] = ("recompute", "affected", "delta")
RUNS_KEPT: Final = 5  # a median of five is not moved by two slow ones
SMALL_ROWS: Final = 1_000_000
_TRY_EVERY: Final = 24  # computed cuts
_TRY_RATIO_MAX: Final = 8.0  # a plan that took so much more than the best one is not tried for a long time
_TRY_DEAR_EVERY: Final = 10


def choose(
    possible: Sequence[PlanName], costs: Mapping[str, Sequence[float]], *, base_rows: int, since: int
) -> tuple[PlanName, str]:
    """The plan, and why.

    Args:
        possible: the plans that give the view; recompute is always among them.
        costs: plan -> seconds of its last runs.
        base_rows: of the tables it reads.
        since: computed cuts since another plan than the best was tried.
    """
    if len(possible) == 1:
        return possible[0], "the only plan"
    known = _medians(possible, costs)
    # The first build counts as a run of recompute: it says nothing of the others.
    if known.keys() <= {"recompute"} and base_rows >= SMALL_ROWS:
        best: PlanName = "delta" if "delta" in possible else "affected"
        return best if best in possible else "recompute", f"not measured yet, and it reads {base_rows:,} rows"
    if not known:
        return "recompute", f"not measured yet, and it reads {base_rows:,} rows"
    cheapest: PlanName = min(known, key=known.__getitem__)
    tried = _to_try(possible, known, cheapest, base_rows, since)
    if tried is not None:
        return tried, f"tried again: {cheapest} takes {known[cheapest]:.2f} s"
    return cheapest, f"takes {known[cheapest]:.2f} s"


def _medians(possible: Sequence[PlanName], costs: Mapping[str, Sequence[float]]) -> dict[PlanName, float]:
    return {plan: median(costs[plan]) for plan in possible if costs.get(plan)}


def measured(costs: Mapping[str, Sequence[float]], plan: str, seconds: float) -> dict[str, tuple[float, ...]]:
    """The costs with one more run."""
    kept = (*costs.get(plan, ()), round(seconds, 4))[-RUNS_KEPT:]
    return {**{name: tuple(runs) for name, runs in costs.items()}, plan: kept}


def _to_try(
    possible: Sequence[PlanName], known: Mapping[PlanName, float], cheapest: PlanName, base_rows: int, since: int
) -> PlanName | None:
    """A plan that is not the best one and should be run once."""
    unknown = [plan for plan in possible if plan not in known]
    if unknown and since >= _TRY_EVERY // 4 and not (base_rows < SMALL_ROWS // 10):
        return unknown[0]
    if since < _TRY_EVERY:
        return None
    others: list[PlanName] = [plan for plan in known if plan != cheapest]
    near: list[PlanName] = [plan for plan in others if known[plan] <= known[cheapest] * _TRY_RATIO_MAX]
    if near:
        return min(near, key=known.__getitem__)
    if not others or since < _TRY_EVERY * _TRY_DEAR_EVERY:
        return None
    return min(others, key=known.__getitem__)
