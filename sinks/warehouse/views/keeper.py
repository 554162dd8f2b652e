"""Keeps the views of a lake from cut to cut: chooses their plans, runs and commits them, and records the costs.

The choice is made before a cut and stored in `pending`, so that a second attempt after a crash uses the same plan. The
view may still be recomputed if the plan cannot handle what the cut changed. All plans give equal rows, so a view that
an attempt has committed is right whichever plan the next attempt would use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from cdc.clock import Clock
from cdc.errors import ViewRefused
from cdc.model.topic_names import table_of
from cdc.telemetry import log
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.cut_commit import CutCommit
from sinks.warehouse.lake.cut_position import CutPosition
from sinks.warehouse.lake.location import Where
from sinks.warehouse.lake.manifest import Manifest, PlanRecord, ViewState
from sinks.warehouse.lake.plan_run import Run
from sinks.warehouse.planner.choose import PLANS, budget_s, choose, measured, usual, without_cancelled
from sinks.warehouse.spark.held_rows import HeldRows
from sinks.warehouse.spark.spark_session import beside
from sinks.warehouse.views.budget import Budgets
from sinks.warehouse.views.definition import BoundView, View, bind, bind_each, inputs
from sinks.warehouse.views.meaning.lake_types import types_of
from sinks.warehouse.views.version_diff import AMONG_MAX, Pin, ReplacedRows
from sinks.warehouse.views.view_errors import reason_of
from sinks.warehouse.views.view_keys import check_view_key
from sinks.warehouse.views.view_run import CutTables, Kept, PlanBook, Step, run_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORCED: Final = "its file requests it"


class _Read(NamedTuple):
    """The inputs of a view: rows of its tables before the cut, and records that the cut brings to them."""

    rows: int
    changes: int


_NOTHING: Final = _Read(0, 0)


class _Requested(NamedTuple):
    """The plan requested for a view, the reason, and the number of changes."""

    plan: str
    why: str
    changes: int


class ViewKeeper:
    """The views of one lake. Not thread-safe.

    Args:
        spark: the session.
        location: of the lake.
        views: ordered so that each follows the views it reads.
        clock: measures the duration of plans.
        at_once: number of views that are computed at once, if Spark has as many cores.
        in_frames: leave the rows of views in the executors, for a distributed committer.
    """

    def __init__(
        self,
        spark: SparkSession,
        location: Where,
        views: Sequence[View],
        clock: Clock,
        *,
        at_once: int = 1,
        in_frames: bool = False,
    ) -> None:
        self._in_frames = in_frames
        self._spark = spark
        self._at_once = at_once
        self._sessions = [spark]
        self._location = location
        self._views = views
        self._clock = clock
        self._book = PlanBook()
        self.behind: dict[str, str] = {}
        """View -> why it is as of an older cut; empty if it is current."""
        self._committing = Lock()
        self.took: dict[str, tuple[float, float]] = {}
        """View that was computed for the newest cut -> when that began and ended, by the monotonic clock."""
        self.computing: set[str] = set()
        """The views that are being computed."""
        self.moved: dict[str, ReplacedRows] = {}
        """Published view -> what the newest cut replaced in it, for views that it kept by keys."""

    def plans(self, manifest: Manifest | None, end: CutPosition, views: Sequence[View] | None = None) -> dict[str, str]:
        """Return view -> plan for the cut that ends at `end`; by default for the views of the files."""
        views = self._views if views is None else views
        if manifest is None or not views:
            return {}
        each = bind_each(views, manifest.tables, types_of(manifest.tables))
        found = [one for one in each if isinstance(one, BoundView)]
        read = _read(found, manifest, end)
        return {view.name: self._choice(view, read.get(view.name, _NOTHING), manifest)[0] for view in views}

    def keep(
        self,
        commit: CutCommit,
        manifest: Manifest | None,
        *,
        complete: Mapping[str, str],
        plans: Mapping[str, str],
        views: Sequence[BoundView] | None = None,
    ) -> None:
        """Bring every view to the cut of `commit`, as far as possible.

        Args:
            commit: has all tables of the cut.
            manifest: of the previous cut.
            complete: ``schema.table`` -> complete or snapshotting.
            plans: returned by `plans` before the cut began.
            views: the views to compute, over the view states of `commit`; the views of the files by default.
        """
        self.moved = {}
        # An interrupted cut of an earlier release may request a plan that no longer exists: then it is recomputed.
        plans = {name: plan for name, plan in plans.items() if plan in PLANS}
        if not self._views:
            return
        views = bind(self._views, commit.tables, types_of(commit.tables)) if views is None else views
        read = {} if manifest is None else _read(views, manifest, commit.pending.position)

        began_s: dict[str, float] = {}

        def begin(view: BoundView) -> None:
            self.computing.add(view.name)
            began_s[view.name] = self._clock.monotonic_s()

        def keep(step: Step | Kept) -> None:
            name = step.view.name
            if isinstance(step, Kept):
                self._keep(commit, name, step.reason)
            else:
                chosen = ("", "it is new") if manifest is None else self._choice(step.view.view, read[name], manifest)
                requested = _Requested(plans.get(name, "recompute"), chosen[1], read.get(name, _NOTHING).changes)
                self._commit(commit, step, requested, began_s[name])
            self.computing.discard(name)

        self.computing.clear()
        run_views(
            self._lanes(commit),
            views,
            self._location,
            cut_tables(commit, manifest, complete),
            begin=begin,
            keep=keep,
            plans=plans,
            book=self._book,
            budgets=Budgets(self._clock, _budgets(views, commit.views)),
            in_frames=self._in_frames,
        )

    def _lanes(self, commit: CutCommit) -> list[SparkSession]:
        """Return a session for each view that runs at once.

        After a failure one view runs at a time, so that the view that needs too much memory is found.
        """
        if commit.pending.suspect:
            return self._sessions[:1]
        while len(self._sessions) < min(self._at_once, self._spark.sparkContext.defaultParallelism):
            self._sessions.append(beside(self._spark))
        return self._sessions

    def _commit(self, commit: CutCommit, step: Step, requested: _Requested, began_s: float) -> None:
        name = step.view.name
        state = commit.views.get(name)
        number = layout.split_beside(name)[1] or (1 if state is None else state.generation)
        try:
            rows = step.rows()
            try:
                check_view_key(self._location, step, rows, state)
                version = self._written(commit, step, rows, number)
            finally:
                if step.change is None:
                    rows.release()
        except ViewRefused as error:
            step.left_behind()
            self._keep(commit, name, reason_of(step.view, error))
            return
        change = step.change
        step.committed(version)
        keys = 0 if change is None else change.keys.count
        self.behind[name] = ""
        self._note_moved(step, state, commit.views[name])
        ended_s = self._clock.monotonic_s()
        self.took[name], took_s = (began_s, ended_s), ended_s - began_s
        record = PlanRecord(
            plan=step.plan,
            reason=step.reason or requested.why,
            keys=keys,
            rows=rows.count,
            refused=None if step.decision is None else step.decision.refused,
            unique=() if step.decision is None else step.decision.unique,
        )
        before = state.plan if state else None
        with self._committing:
            commit.planned(name, _recorded(before, requested, took_s, record, is_cancelled=step.is_cancelled))
        log.get().info(
            "view_planned",
            view=name,
            plan=record.plan,
            reason=record.reason,
            keys=keys,
            rows=record.rows,
            seconds=round(took_s, 3),
        )

    def _written(self, commit: CutCommit, step: Step, rows: HeldRows, generation: int) -> int:
        """Commit the rows of a view. Returns the version."""
        name, sha, change = step.view.name, step.view.sha, step.change
        with self._committing:
            if change is not None:
                return commit.view_keys(name, change.keys.changes, rows.changes, sql_sha=sha, generation=generation)
            return commit.view(name, rows.changes, sql_sha=sha, generation=generation)

    def _note_moved(self, step: Step, before: ViewState | None, now: ViewState) -> None:
        """Keep what was replaced, for the view's topic, if it is little and the only difference between versions."""
        change = step.change
        if change is None or before is None or before.generation != now.generation:
            return
        if not step.view.view.header.publish or change.rows.count > AMONG_MAX or self._in_frames:
            return
        table = layout.view(step.view.name, now.generation)
        old, new = Pin(table, before.version), Pin(table, now.version)
        self.moved[step.view.name] = ReplacedRows(old, new, change.keys.here(), change.rows.here())

    def left(self, commit: CutCommit, name: str, reason: str) -> None:
        """Leave a view behind that cannot run."""
        self._keep(commit, name, reason)

    def _keep(self, commit: CutCommit, name: str, reason: str) -> None:
        """Leave a view unchanged. A view that cannot be computed delays nothing else; it is logged once."""
        with self._committing:
            commit.keep_view(name, reason)
        if reason and self.behind.get(name) != reason:
            log.get().warning("view_left_behind", view=name, reason=reason)
        self.behind[name] = reason

    def _choice(self, view: View, read: _Read, manifest: Manifest) -> tuple[str, str]:
        """Return the plan of a view with these inputs, and the reason."""
        if view.plan != "auto":
            return view.plan, _FORCED
        state = manifest.views.get(view.name)
        record = state.plan if state is not None else None
        if record is not None and record.refused:
            return "recompute", record.refused
        runs = _runs(record)
        since = record.since if record is not None else 0
        cancelled = record.cancelled if record is not None else {}
        return choose(runs, base_rows=read.rows, changes=read.changes, since=since, cancelled=cancelled)


def _read(views: Sequence[BoundView], manifest: Manifest, end: CutPosition) -> dict[str, _Read]:
    """Return view -> its inputs, including those of the views it reads, in the cut after `manifest`.

    A new table counts as empty. The cut ends at `end`.
    """
    records = records_of(manifest.position, end)
    found: dict[str, _Read] = {}
    for view in views:
        rows = changes = 0
        for table in inputs(view):
            state = manifest.tables.get(table)
            rows += state.rows or 0 if state is not None else 0
            changes += records.get(table, 0)
        others = [found[other] for other in view.views.values() if other in found]
        found[view.name] = _Read(
            rows + sum(other.rows for other in others), changes + sum(other.changes for other in others)
        )
    return found


def records_of(before: CutPosition, now: CutPosition) -> dict[str, int]:
    """Return lake table -> records that its topic got between two positions; the same for all tables of one topic."""
    topics: dict[str, int] = {}
    for partition, (_, count) in now.accounts.items():
        new = count - before.accounts.get(partition, (0, 0))[1]
        if new:
            topics[partition[0]] = topics.get(partition[0], 0) + new
    kinds = (
        layout.archive,
        lambda topic: layout.mirror(*table_of(topic)),
        lambda topic: layout.history(*table_of(topic)),
    )
    return {table(topic): new for topic, new in topics.items() for table in kinds}


def cut_tables(commit: CutCommit, manifest: Manifest | None, complete: Mapping[str, str]) -> CutTables:
    """Return what the views of the cut of `commit` are computed from."""
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


def _runs(record: PlanRecord | None) -> dict[str, tuple[Run, ...]]:
    """Return the runs of the plans; a record of an earlier release may have runs of a plan that no longer exists."""
    return {} if record is None else {plan: runs for plan, runs in record.runs.items() if plan in PLANS}


def _budgets(views: Sequence[BoundView], states: Mapping[str, ViewState]) -> dict[str, float]:
    """Return view -> seconds that a run by keys may take; unlimited if the view's file requests its plan."""
    found: dict[str, float] = {}
    for view in views:
        state = states.get(view.name)
        seconds = budget_s(_runs(state.plan if state is not None else None))
        if view.view.plan == "auto" and seconds is not None:
            found[view.name] = seconds
    return found


def _recorded(
    before: PlanRecord | None, requested: _Requested, took_s: float, record: PlanRecord, *, is_cancelled: bool
) -> PlanRecord:
    """Add the history of runs to `record`. The run counts for the requested plan, even if that could not be used."""
    runs, cancelled = _runs(before), before.cancelled if before is not None else {}
    run = Run(round(took_s, 4), requested.changes)
    is_usual = usual(runs, requested.changes, cancelled) in {None, requested.plan}
    since = (before.since if before is not None else 0) + 1 if is_usual else 0
    if is_cancelled:
        cancelled = measured(cancelled, requested.plan, run)
    else:
        runs = measured(runs, requested.plan, run)
        cancelled = without_cancelled(cancelled, requested.plan, requested.changes)
    return structs.replace(record, seconds=run.seconds, runs=runs, since=since, cancelled=cancelled)
