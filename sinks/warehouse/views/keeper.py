"""Keeps the views of a lake from cut to cut: chooses their plans, has them run, commits them, and remembers the costs.

The choice is made when a cut begins and stands in `pending`, so that a second attempt after a crash makes the same one.
It may still end in recompute: then the plan could not be used for what the cut turned out to change. All plans give
equal rows, so a view that an attempt has committed is right whatever the next one would have done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from cdc.clock import Clock
from cdc.errors import ViewRefused
from cdc.model.topic_names import parse_partition, table_of
from cdc.telemetry import log
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.cut_commit import CutCommit
from sinks.warehouse.lake.location import Where
from sinks.warehouse.lake.manifest import Manifest, PlanRecord, ViewState
from sinks.warehouse.lake.plan_run import Run
from sinks.warehouse.log.span import PartitionCount
from sinks.warehouse.planner.choose import PLANS, choose, measured, usual
from sinks.warehouse.views.definition import BoundView, View, bind, bind_each, inputs
from sinks.warehouse.views.version_diff import AMONG_MAX, Pin, ReplacedRows
from sinks.warehouse.views.view_records import check_changed_key, check_key, key_columns
from sinks.warehouse.views.view_run import Computed, CutTables, Kept, PlanBook, Replaced, Summed, run_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORCED: Final = "its file says so"


class _Read(NamedTuple):
    """What a view reads: rows of its tables before the cut, and records that the cut brings to them."""

    rows: int
    changes: int


_NOTHING: Final = _Read(0, 0)


class _Wish(NamedTuple):
    """By which plan a view is to be kept, why, and after how many changes."""

    plan: str
    why: str
    changes: int


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
        self.computing = ""
        """The view that is being computed; empty when none is."""
        self.moved: dict[str, ReplacedRows] = {}
        """Published view -> what the newest cut replaced of it, of those that it kept by keys."""

    def plans(
        self, manifest: Manifest | None, accounts: Mapping[str, PartitionCount], views: Sequence[View] | None = None
    ) -> dict[str, str]:
        """View -> the plan of the cut that ends at `accounts`; of the files' views unless others are computed."""
        views = self._views if views is None else views
        if manifest is None or not views:
            return {}
        read = _read(bind_known(views, manifest), manifest, accounts)
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
        """Bring every view to the cut that `commit` makes, as far as it can be.

        Args:
            commit: has all tables of the cut.
            manifest: of the cut before.
            complete: ``schema.table`` -> complete or snapshotting.
            plans: as `plans` gave them when the cut was begun.
            views: what is computed, over the states that `commit` has of views; the files' views by default.
        """
        self.moved = {}
        if not self._views:
            return
        views = bind(self._views, list(commit.tables)) if views is None else views
        steps = run_views(
            self._spark,
            self._each(views),
            self._location,
            cut_tables(commit, manifest, complete),
            plans=plans,
            book=self._book,
        )
        read = {} if manifest is None else _read(views, manifest, commit.pending.accounts)
        began_s = self._clock.monotonic_s()
        for step in steps:
            name = step.view.name
            if isinstance(step, Kept):
                self._keep(commit, name, step.reason)
            else:
                chosen = ("", "it is new") if manifest is None else self._choice(step.view.view, read[name], manifest)
                wish = _Wish(plans.get(name, "recompute"), chosen[1], read.get(name, _NOTHING).changes)
                self._commit(commit, step, wish, began_s)
            began_s = self._clock.monotonic_s()

    def _each(self, views: Sequence[BoundView]) -> Iterator[BoundView]:
        """The views, each noted while it is computed and committed."""
        for view in views:
            self.computing = view.name
            yield view
        self.computing = ""

    def _commit(
        self,
        commit: CutCommit,
        step: Computed | Replaced | Summed,
        wish: _Wish,
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
        self._note_moved(step, state, commit.views[name])
        took_s = self._clock.monotonic_s() - began_s
        reason = step.reason or wish.why
        record = PlanRecord(plan=plan, reason=reason, keys=keys, rows=rows)
        commit.planned(name, _recorded(state.plan if state else None, wish, took_s, record))
        log.get().info(
            "view_planned", view=name, plan=plan, reason=reason, keys=keys, rows=rows, seconds=round(took_s, 3)
        )

    def _note_moved(self, step: Computed | Replaced | Summed, before: ViewState | None, now: ViewState) -> None:
        """Remember for its topic what was replaced, if that is little and all that differs from the version before."""
        change = None if isinstance(step, Computed) else step.change
        if change is None or before is None or before.generation != now.generation:
            return
        if not step.view.view.header.publish or change.rows.num_rows > AMONG_MAX:
            return
        table = layout.view(step.view.name, now.generation)
        old, new = Pin(table, before.version), Pin(table, now.version)
        self.moved[step.view.name] = ReplacedRows(old, new, change.keys, change.rows)

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

    def _choice(self, view: View, read: _Read, manifest: Manifest) -> tuple[str, str]:
        """The plan of a view, which reads so much, and why."""
        if view.plan != "auto":
            return view.plan, _FORCED
        state = manifest.views.get(view.name)
        record = state.plan if state is not None else None
        runs = record.runs if record is not None else {}
        possible = PLANS if self._book.can_sum(view.name) or runs.get("delta") else PLANS[:2]
        since = record.since if record is not None else 0
        return choose(possible, runs, base_rows=read.rows, changes=read.changes, since=since)


def bind_known(views: Sequence[View], manifest: Manifest) -> tuple[BoundView, ...]:
    """The views over the tables of a cut, without those that name a table which is not there yet."""
    found = bind_each(views, list(manifest.tables))
    return tuple(one for one in found if isinstance(one, BoundView))


def _read(views: Sequence[BoundView], manifest: Manifest, accounts: Mapping[str, PartitionCount]) -> dict[str, _Read]:
    """View -> what it, and the views it reads, are computed from in the cut behind `manifest`; of a new table nothing.

    `accounts` are those of the cut's end.
    """
    records = records_of(manifest.accounts, accounts)
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


def records_of(before: Mapping[str, PartitionCount], now: Mapping[str, PartitionCount]) -> dict[str, int]:
    """Lake table -> records that its topic got between two marks; the kinds of table of one topic have the same."""
    topics: dict[str, int] = {}
    for partition, (_, count) in now.items():
        new = count - before.get(partition, (0, 0))[1]
        if new:
            topic, _ = parse_partition(partition)
            topics[topic] = topics.get(topic, 0) + new
    kinds = (
        layout.archive,
        lambda topic: layout.mirror(*table_of(topic)),
        lambda topic: layout.history(*table_of(topic)),
    )
    return {table(topic): new for topic, new in topics.items() for table in kinds}


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


def _recorded(before: PlanRecord | None, wish: _Wish, took_s: float, record: PlanRecord) -> PlanRecord:
    """`record` with what is remembered: the run is one of the plan wished for, also when it could not be used."""
    runs = before.runs if before is not None else {}
    is_usual = usual(runs, wish.changes) in {None, wish.plan}
    since = (before.since if before is not None else 0) + 1 if is_usual else 0
    more = measured(runs, wish.plan, Run(took_s, wish.changes))
    return structs.replace(record, seconds=round(took_s, 4), runs=more, since=since)
