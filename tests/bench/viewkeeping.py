"""One view kept from cut to cut for the benchmark of views, as the lake's driver keeps its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinks.warehouse.viewrun import CutTables, Kept, run_views
from sinks.warehouse.views import bind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinks.warehouse.commit import CutCommit
    from sinks.warehouse.location import Location
    from sinks.warehouse.manifest import Manifest
    from sinks.warehouse.views import View


class Keeping:
    """`keep` it in each cut."""

    def __init__(self, spark: SparkSession, location: Location, view: View) -> None:
        self._spark, self._location, self._view = spark, location, view

    def keep(self, commit: CutCommit, manifest: Manifest | None, complete: Mapping[str, str]) -> str:
        """Bring it to the cut that is open; returns the plan that ran."""
        versions = {table: state.version for table, state in commit.tables.items()}
        previous = {} if manifest is None else manifest.views
        cut = CutTables(versions=versions, complete=complete, previous=previous, changed=set(versions))
        for step in run_views(self._spark, bind((self._view,), list(versions)), self._location, cut):
            if isinstance(step, Kept):
                raise SystemExit(f"bench: {self._view.name} is left behind: {step.reason}")
            step.committed(commit.view(self._view.name, step.rows(), sql_sha=step.view.sha))
        return "recompute"
