"""Maintains one view from cut to cut for the benchmark of views, like the lake's driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc.clock import SystemClock
from sinks.warehouse.views.keeper import ViewKeeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinks.warehouse.lake.cut_commit import CutCommit
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import Manifest
    from sinks.warehouse.views.definition import View


class Keeping:
    """One view. Call `keep` in each cut."""

    def __init__(self, spark: SparkSession, location: Location, view: View) -> None:
        self._name = view.name
        self._keeper = ViewKeeper(spark, location, (view,), SystemClock())

    def keep(self, commit: CutCommit, manifest: Manifest | None, complete: Mapping[str, str]) -> str:
        """Update the view to the open cut. Returns the plan that ran."""
        plans = self._keeper.plans(manifest, commit.pending.position)
        self._keeper.keep(commit, manifest, complete=complete, plans=plans)
        state = commit.views[self._name]
        if state.reason:
            raise SystemExit(f"bench: {self._name} is left behind: {state.reason}")
        return "recompute" if state.plan is None else state.plan.plan
