"""Whatever a view's plans cost, choosing between them costs little more than the best plan does."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.warehouse.lake.plan_run import Run
from sinks.warehouse.planner import choose as choosing
from sinks.warehouse.planner.choose import Runs, budget_s, choose, measured, usual, without_cancelled

_CUTS: Final = 400
_FLOOR_S: Final = 2.0
costs = st.floats(-2.5, 4).map(lambda power: 10**power)


class Kept:
    """A view whose plans take constant times, as `keeper` runs and records them."""

    def __init__(self, recompute: float, affected: float) -> None:
        self._recompute, self._affected = recompute, affected
        self._runs: Runs = measured({}, "recompute", Run(recompute, 0))
        self._cancelled: Runs = MappingProxyType({})
        self._since = 0
        self.dearest = 0.0

    def cut(self, changes: int) -> float:
        """One cut; returns its time."""
        plan, _ = choose(self._runs, base_rows=5_000_000, changes=changes, since=self._since, cancelled=self._cancelled)
        best = usual(self._runs, changes, self._cancelled)
        self._since = self._since + 1 if best in {None, plan} else 0
        budget = budget_s(self._runs)
        if plan == "affected" and budget is not None and self._affected > budget:
            took = budget + self._recompute
            self._cancelled = measured(self._cancelled, plan, Run(took, changes))
        else:
            took = self._affected if plan == "affected" else self._recompute
            self._runs = measured(self._runs, plan, Run(took, changes))
            self._cancelled = without_cancelled(self._cancelled, plan, changes)
        self.dearest = max(self.dearest, took)
        return took


@given(recompute=costs, affected=costs, changes=st.sampled_from([1, 500, 30_000]))
def test_time_of_many_cuts_is_bounded_by_the_best_plan(recompute: float, affected: float, changes: int) -> None:
    view = Kept(recompute, affected)

    total = sum(view.cut(changes) for _ in range(_CUTS))

    best = _CUTS * min(recompute, affected)
    assert view.dearest <= 3 * recompute + _FLOOR_S
    assert total <= 1.25 * best + 4 * (recompute + _FLOOR_S)


@given(recompute=costs, affected=costs, cuts=st.lists(st.sampled_from([1, 90, 500, 30_000, 10**6]), max_size=60))
def test_no_cut_takes_longer_than_three_times_recompute(recompute: float, affected: float, cuts: list[int]) -> None:
    view = Kept(recompute, affected)

    for changes in cuts:
        assert view.cut(changes) <= 3 * recompute + _FLOOR_S


def test_bound_needs_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "_BUDGET", 1e9)
    view = Kept(8.6, 129.0)

    for _ in range(_CUTS):
        view.cut(100)

    assert view.dearest > 3 * 8.6 + _FLOOR_S


def test_bound_needs_what_is_remembered_of_cancelled_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    view = Kept(8.6, 129.0)
    monkeypatch.setattr(choosing, "_is_more", lambda *_: True)

    assert sum(view.cut(100) for _ in range(_CUTS)) > 1.25 * _CUTS * 8.6 + 4 * 8.6
