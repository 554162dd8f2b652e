"""Keeps the views of a lake from cut to cut: chooses their plans, has them run, commits them, and remembers the costs.

The choice is made when a cut begins and stands in `pending`, so that a second attempt after a crash makes the same one.
It may still end in recompute: then the plan could not be used for what the cut turned out to change. All plans give
equal rows, so a view that an attempt has committed is right whatever the next one would have done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cdc.clock import Clock
from cdc.errors import ViewRefused
from cdc.telemetry import log
from sinks.warehouse import layout
from sinks.warehouse.commit import CutCommit
from sinks.warehouse.location import Where
from sinks.warehouse.manifest import Manifest, PlanRecord, ViewState
from sinks.warehouse.pinned import pinned
from sinks.warehouse.planner.choose import PLANS, choose, measured
from sinks.warehouse.viewrows import check_changed_key, check_key, key_columns
from sinks.warehouse.viewrun import Computed, CutTables, Kept, PlanBook, Replaced, Summed, run_views
from sinks.warehouse.views import BoundView, View, bind, bind_each, inputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORCED: Final = "its file says so"


class ViewKeeper:
    """The views of one lake. Not safe for several threads.

    Args:
        spark: the session.
        location: of the lake.
        views: in an order where each stands behind those it reads.
        clock: tells what a plan takes.
    """

    def __init__(self, spark: SparkSession, location: Where, views: Sequence[View], clock: Clock) -> None:
        self._spark = spark
        self._location = location
        self._views = views
        self._clock = clock
        self._book = PlanBook()
        self.behind: dict[str, str] = {}
        """View -> why it is as of an older cut; "" when it is not."""

    def plans(self, manifest: Manifest | None, views: Sequence[View] | None = None) -> dict[str, str]:
        """View -> the plan of the next cut; of the files' views unless others are computed."""
        views = self._views if views is None else views
        if manifest is None or not views:
            return {}
        rows = _rows_read(bind_known(views, manifest), manifest)
        return {view.name: self._choice(view, rows.get(view.name, 0), manifest)[0] for view in views}

    def keep(
        self,
        commit: CutCommit,
        manifest: Manifest | None,
        *,
        complete: Mapping[str, str],
        plans: Mapping[str, str],
        views: Sequence[BoundView] | None = None,
    ) -> None:
        """Bring every view to the cut that `commit` makes, as far as it can be.

        Args:
            commit: has all tables of the cut.
            manifest: of the cut before.
            complete: ``schema.table`` -> complete or snapshotting.
            plans: as `plans` gave them when the cut was begun.
            views: what is computed, over the states that `commit` has of views; the files' views by default.
        """
        if not self._views:
            return
        views = bind(self._views, list(commit.tables)) if views is None else views
        steps = run_views(
            self._spark,
            views,
            self._location,
            cut_tables(commit, manifest, complete),
            plans=plans,
            book=self._book,
        )
        began_s = self._clock.monotonic_s()
        for step in steps:
            if isinstance(step, Kept):
                self._keep(commit, step.view.name, step.reason)
            else:
                self._commit(commit, step, manifest, plans.get(step.view.name, "recompute"), began_s)
            began_s = self._clock.monotonic_s()

    def _commit(
        self,
        commit: CutCommit,
        step: Computed | Replaced | Summed,
        manifest: Manifest | None,
        wish: str,
        began_s: float,
    ) -> None:
        name, sha = step.view.name, step.view.sha
        state = commit.views.get(name)
        number = layout.split_beside(name)[1] or (1 if state is None else state.generation)
        try:
            self._check_key(step, state)
        except ViewRefused as error:
            step.left_behind()
            self._keep(commit, name, error.message)
            return
        if isinstance(step, Replaced):
            change, plan = step.change, "affected"
            step.committed(commit.view_keys(name, change.keys, change.rows, sql_sha=sha, generation=number))
            keys, rows = change.keys.num_rows, change.rows.num_rows
        elif isinstance(step, Summed):
            sums, plan = step.sums, "delta" if step.change is not None else "recompute"
            step.committed(commit.view_sums(name, sums, sql_sha=sha, generation=number))
            keys, rows = 0 if sums.keys is None else sums.keys.num_rows, sums.rows.num_rows
        else:
            try:
                found = step.rows()
                if step.view.view.header.key:
                    check_key(name, found, step.view.view.header.key)
            except ViewRefused as error:
                step.left_behind()
                self._keep(commit, name, error.message)
                return
            step.committed(commit.view(name, found, sql_sha=sha, generation=number))
            keys, rows, plan = 0, found.num_rows, "recompute"
        self.behind[name] = ""
        took_s = self._clock.monotonic_s() - began_s
        reason = step.reason or self._why(step.view, manifest)
        record = PlanRecord(plan=plan, reason=reason, keys=keys, rows=rows)
        commit.planned(name, _recorded(state.plan if state else None, wish, took_s, record))
        log.get().info(
            "view_planned", view=name, plan=plan, reason=reason, keys=keys, rows=rows, seconds=round(took_s, 3)
        )

    def _check_key(self, step: Computed | Replaced | Summed, state: ViewState | None) -> None:
        """Is the key of a view one still? What is computed whole is asked when it is. Raises ViewRefused."""
        key, name = step.view.view.header.key, step.view.name
        if not key or isinstance(step, Computed):
            return
        if isinstance(step, Summed) and step.change is None:
            check_key(name, step.sums.rows, key)
            return
        change = step.change
        assert change is not None, "a replacement has keys"
        before = None
        if state is not None and not {one.lower() for one in change.keys.column_names} <= {one.lower() for one in key}:
            wanted = {*change.keys.column_names, *key_columns(name, change.rows.schema, key)}
            table = pinned(self._location, layout.view(name, state.generation), state.version)
            before = table.to_pyarrow_dataset().to_table(columns=sorted(wanted))
        check_changed_key(name, change.keys, change.rows, key, before)

    def left(self, commit: CutCommit, name: str, reason: str) -> None:
        """Leave a view behind that cannot even be run."""
        self._keep(commit, name, reason)

    def _keep(self, commit: CutCommit, name: str, reason: str) -> None:
        """Leave a view as it is. One that cannot be computed holds nobody up, but is spoken of."""
        commit.keep_view(name, reason)
        if reason and self.behind.get(name) != reason:
            log.get().warning("view_left_behind", view=name, reason=reason)
        self.behind[name] = reason

    def _why(self, view: BoundView, manifest: Manifest | None) -> str:
        """Why it was kept by the plan that was chosen for it."""
        if manifest is None:
            return "it is new"
        rows = _rows_read(bind_known(self._views, manifest), manifest)
        return self._choice(view.view, rows.get(view.name, 0), manifest)[1]

    def _choice(self, view: View, rows: int, manifest: Manifest) -> tuple[str, str]:
        """The plan of a view, which reads so many rows, and why."""
        if view.plan != "auto":
            return view.plan, _FORCED
        state = manifest.views.get(view.name)
        record = state.plan if state is not None else None
        costs = record.costs if record is not None else {}
        possible = PLANS if self._book.can_sum(view.name) or costs.get("delta") else PLANS[:2]
        return choose(possible, costs, base_rows=rows, since=record.since if record is not None else 0)


def bind_known(views: Sequence[View], manifest: Manifest) -> tuple[BoundView, ...]:
    """The views over the tables of a cut, without those that name a table which is not there yet."""
    found = bind_each(views, list(manifest.tables))
    return tuple(one for one in found if isinstance(one, BoundView))


def _rows_read(views: Sequence[BoundView], manifest: Manifest) -> dict[str, int]:
    """View -> rows of the tables that it, and the views it reads, are computed from."""
    found: dict[str, int] = {}
    for view in views:
        own = sum(manifest.tables[table].rows or 0 for table in inputs(view))
        found[view.name] = own + sum(found.get(other, 0) for other in view.views.values())
    return found


def cut_tables(commit: CutCommit, manifest: Manifest | None, complete: Mapping[str, str]) -> CutTables:
    """What the views of the cut that `commit` makes are computed from."""
    before = {table: state.version for table, state in manifest.tables.items()} if manifest else {}
    tables = commit.tables
    versions = {table: state.version for table, state in tables.items()}
    return CutTables(
        versions=versions,
        complete=complete,
        previous=commit.views,
        changed={table for table, version in versions.items() if before.get(table) != version},
        before=before,
        written=commit.written,
        keys={table: state.key for table, state in tables.items() if state.key and table.startswith("mirror/")},
        rows={table: state.rows for table, state in tables.items() if state.rows is not None},
    )


def _recorded(before: PlanRecord | None, wish: str, took_s: float, record: PlanRecord) -> PlanRecord:
    """`record` with what is remembered: the costs are those of the plan wished for, also when it could not be used."""
    costs = dict(before.costs) if before is not None else {}
    usual = min(costs, key=lambda plan: median(costs[plan])) if costs else wish
    since = (before.since if before is not None else 0) + 1 if wish == usual else 0
    return structs.replace(record, seconds=round(took_s, 4), costs=measured(costs, wish, took_s), since=since)
