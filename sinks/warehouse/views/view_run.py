"""Computes the views of one cut, over tables pinned at the cut's versions. Each view follows the views it reads.

This module decides and computes; the caller commits, in a function that is called for several views at once:

    def keep(step: Step | Kept) -> None:
        if isinstance(step, Kept):
            ...                                       # its version stays; `reason` goes into the manifest
        else:
            version = ...                             # commit step.rows(), whole or in place of step.change's keys
            step.committed(version)                   # before it returns: other views may read it

    run_views(sessions, views, lake, cut, begin=..., keep=keep, plans=plans)

A view is due if a table or view it reads changed, if its SQL changed, or if it was left behind before. Then it is kept
by its plan, or recomputed where no plan applies, which is always so in the last two cases. It is left behind, with the
reason, while a table that it reads is being snapshotted: its rows would not be of one moment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from cdc.clock import SystemClock
from cdc.errors import InvariantError, ViewRefused
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.location import Where
from sinks.warehouse.lake.table_naming import captured_table, sql_name
from sinks.warehouse.planner.choose import PlanName
from sinks.warehouse.planner.decide import Decision
from sinks.warehouse.planner.plan import ViewPlan
from sinks.warehouse.planner.relations import Unplannable
from sinks.warehouse.spark.held_rows import HeldRows
from sinks.warehouse.spark.spark_errors import unwrapping
from sinks.warehouse.spark.sql_guard import guarded
from sinks.warehouse.views.at_once import run_each
from sinks.warehouse.views.budget import Budgets, OverBudget
from sinks.warehouse.views.changed_columns import ChangedColumns
from sinks.warehouse.views.definition import BoundView, inputs
from sinks.warehouse.views.incremental import PlanBook, not_run, replacement
from sinks.warehouse.views.inputs import CutTables, Replacement, ViewInputs
from sinks.warehouse.views.row_patterns import reading
from sinks.warehouse.views.view_errors import check_columns, check_types, failure, in_file, reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Computed", "CutTables", "Kept", "PlanBook", "Replaced", "Step", "run_views"]

SNAPSHOTTING: Final = "snapshotting"


@dataclass(frozen=True, slots=True)
class Kept:
    """A view whose version stays.

    Attributes:
        reason: why it is left as of an older cut; "" if its inputs did not change, so that it is as of this one.
    """

    view: BoundView
    reason: str


@dataclass(slots=True)
class Step(ABC):
    """A view to commit. The caller must call `committed` or `left_behind`.

    Attributes:
        reason: why the view is kept in this way; "" if its plan was requested.
        decision: whether it can be kept by keys; None if its file requests recompute, so that it was not examined.
    """

    view: BoundView
    reason: str
    decision: Decision | None
    version: int | None = field(default=None, init=False)
    is_left: bool = field(default=False, init=False)

    @property
    def plan(self) -> PlanName:
        """The plan that the step runs."""
        return "recompute"

    @property
    def is_cancelled(self) -> bool:
        """Whether the requested plan was cancelled: it exceeded its budget."""
        return False

    @property
    def change(self) -> Replacement | None:
        """Keys of the view and their new rows; None if all rows are replaced."""
        return None

    @abstractmethod
    def rows(self) -> HeldRows:
        """Return the rows to write. Raises ViewRefused if values do not fit, else SparkFailed."""

    def committed(self, version: int) -> None:
        """Record which version of its table the result became."""
        self.version = version

    def left_behind(self) -> None:
        """Record that it could not be kept: views that read it are left behind as well."""
        self.is_left = True


@dataclass(slots=True)
class Computed(Step):
    """A view to commit whole. `frame` is lazy; `rows` computes it, and leaves it in the executors with `in_frames`."""

    frame: DataFrame
    was_cancelled: bool = False
    in_frames: bool = False

    @property
    def is_cancelled(self) -> bool:
        """See `Step`."""
        return self.was_cancelled

    def rows(self) -> HeldRows:
        """See `Step`."""
        from pyspark.errors import PySparkException

        try:
            with unwrapping():
                return HeldRows.of(self.frame, in_frames=self.in_frames)
        except PySparkException as error:
            raise failure(self.view, error) from error


@dataclass(slots=True)
class Replaced(Step):
    """A view of which only the rows of some keys are committed."""

    replacement: Replacement

    @property
    def plan(self) -> PlanName:
        """See `Step`."""
        return "affected"

    @property
    def change(self) -> Replacement:
        """See `Step`."""
        return self.replacement

    def rows(self) -> HeldRows:
        """See `Step`."""
        return self.replacement.rows


def run_views(
    sessions: Sequence[SparkSession],
    views: Sequence[BoundView],
    lake: Where,
    cut: CutTables,
    *,
    begin: Callable[[BoundView], None],
    keep: Callable[[Step | Kept], None],
    plans: Mapping[str, str] | None = None,
    book: PlanBook | None = None,
    budgets: Budgets | None = None,
    in_frames: bool = False,
) -> None:
    """Call `keep` once for each view, after it returned for all views that the view reads.

    A view whose SQL Spark refuses is left behind; the reason names file and line.

    Args:
        sessions: one for each view that may run at once.
        views: bound to the tables of the cut.
        lake: location of the lake.
        cut: its tables.
        begin: called in a thread before a view is computed.
        keep: commits a view; called in the same thread.
        plans: view -> requested plan; a view is recomputed if it is missing here, or if its plan does not apply.
        book: keeps plans from cut to cut.
        budgets: the time that runs by keys may take; unlimited by default.
        in_frames: leave the rows of views in the executors.
    """
    run = _Run(cut, ChangedColumns(lake, cut), plans or {}, book or PlanBook(), budgets or Budgets(SystemClock()))
    lanes = [_Lane(spark, ViewInputs(spark, lake, cut, run.replaced, in_frames=in_frames)) for spark in sessions]

    def work(view: BoundView, lane: _Lane) -> None:
        begin(view)
        step = run.step(view, lane)
        keep(step)
        run.kept(step)

    try:
        run_each(views, lanes, work)
    finally:
        for lane in lanes:
            lane.inputs.close()


class _Lane(NamedTuple):
    """A session, and the inputs that are readable in it."""

    spark: SparkSession
    inputs: ViewInputs


class _Run:
    """What the views of a cut share. A view reads only what was set before the views that it reads were done."""

    def __init__(
        self, cut: CutTables, columns: ChangedColumns, plans: Mapping[str, str], book: PlanBook, budgets: Budgets
    ) -> None:
        self._cut = cut
        self._columns = columns
        self._plans = plans
        self._book = book
        self._budgets = budgets
        self._behind: set[str] = set()
        self._changed: set[str] = set()  # views whose rows differ from the previous cut
        self._versions: dict[str, tuple[str, int]] = {}  # view -> its table and version at this cut
        self.replaced: dict[str, Replacement] = {}
        """Table of a view -> what leads from its previous version to this cut's."""

    def step(self, view: BoundView, lane: _Lane) -> Step | Kept:
        """Return how a view is kept in this cut. Raises SparkFailed."""
        reason = self._obstacle(view)
        if reason or not self._is_due(view):
            return Kept(view, reason)
        try:
            return self._step(view, lane)
        except ViewRefused as error:
            return Kept(view, reason_of(view, error))

    def kept(self, step: Step | Kept) -> None:
        """Record what the caller did, for views that read this one."""
        view = step.view
        if isinstance(step, Kept) and not step.reason:
            state = self._cut.previous[view.name]
            self._versions[view.name] = (layout.view(view.name, state.generation), state.version)
        elif isinstance(step, Kept) or step.is_left:
            self._behind.add(view.name)
        elif step.version is None:
            raise InvariantError(f"view {view.name} was computed and not committed", view=view.name)
        else:
            table = self._table(view.name)
            self._changed.add(view.name)
            self._versions[view.name] = (table, step.version)
            if step.change is not None:
                self.replaced[table] = step.change

    def _obstacle(self, view: BoundView) -> str:
        """Return why it cannot be computed now; empty if it can."""
        for table in sorted(inputs(view)):
            source = captured_table(table, self._cut.complete)
            if self._cut.complete.get(source) == SNAPSHOTTING:
                return f"{source} is being snapshotted"
            if table not in self._cut.versions:
                return f"{sql_name(table)} is not in the lake yet"
        behind = sorted(self._behind & set(view.views.values()))
        return f"the view {behind[0]} is left behind" if behind else ""

    def _is_due(self, view: BoundView) -> bool:
        """Whether its rows may have changed."""
        return bool(self._must_be_whole(view) or self._changed_inputs(view))

    def _step(self, view: BoundView, lane: _Lane) -> Step | Kept:
        """Return the view by the requested plan, if possible. Raises ViewRefused."""
        frame = self._frame(view, lane)
        whole = self._must_be_whole(view)
        decision = None if view.view.plan == "recompute" else self._decide(view, lane, frame)
        if decision is None or decision.refused or whole or self._plans.get(view.name) != "affected":
            reason = whole or (decision.refused if decision else "")
            return Computed(view, reason, decision, frame, in_frames=lane.inputs.in_frames)
        try:
            change = self._replacement(view, lane, decision.plan, frame)
        except Unplannable as found:
            over = isinstance(found, OverBudget)
            return Computed(view, str(found), decision, frame, over, in_frames=lane.inputs.in_frames)
        return Replaced(view, "", decision, change) if change.keys.count else Kept(view, "")

    def _must_be_whole(self, view: BoundView) -> str:
        """Return why it must be computed whole; empty if it need not."""
        state = self._cut.previous.get(view.name)
        if state is None:
            return "it is new"
        if state.sql_sha != view.sha:
            return "its SQL changed"
        return "it was left behind" if state.reason else ""

    def _changed_inputs(self, view: BoundView) -> frozenset[str]:
        """Return the names, in its SQL, of its inputs that changed in what it can read."""
        text = reading(view.sql, list(view.patterns.values()))
        whole = {one.source for one in view.patterns.values() if one.statement.clause.all_rows}
        found = {name for name, other in view.views.items() if other in self._changed}
        for name, table in view.tables.items():
            if (table in self._cut.changed) if name in whole else self._columns.can_read(text, table):
                found.add(name)
        found |= {name for name, one in view.patterns.items() if one.source in found}
        return frozenset(name for name in found if name in view.sql)

    def _frame(self, view: BoundView, lane: _Lane) -> DataFrame:
        """Return the view's query over this cut's versions. Raises ViewRefused."""
        from pyspark.errors import PySparkException

        for name, table in view.tables.items():
            lane.inputs.add(name, table, self._cut.versions[table])
        for name, other in view.views.items():
            lane.inputs.add(name, *self._versions[other])
        check_types(view, {name: lane.inputs.relation(name).columns for name in view.relies_on})
        try:
            with unwrapping(), in_file(view):
                for name, pattern in view.patterns.items():
                    lane.inputs.add_pattern(name, pattern)
                frame = guarded(lane.spark, view.sql)
                check_columns(view, frame)
        except PySparkException as error:
            raise failure(view, error) from error
        return frame

    def _decide(self, view: BoundView, lane: _Lane, frame: DataFrame) -> Decision:
        relations = {name: lane.inputs.relation(name) for name in view.tables}
        relations |= {name: lane.inputs.relation(name, self._unique(other)) for name, other in view.views.items()}
        relations |= {name: lane.inputs.relation(name) for name in view.patterns}
        return self._book.decide(lane.spark, view, relations, frame, lane.inputs)

    def _unique(self, view: str) -> tuple[str, ...]:
        """Return the columns that no two rows of a view share; as recorded if it did not change since the start."""
        found = self._book.unique(view)
        state = self._cut.previous.get(view)
        if found is None and state is not None and state.plan is not None:
            found = state.plan.unique
        return found or ()

    def _replacement(self, view: BoundView, lane: _Lane, plan: ViewPlan, frame: DataFrame) -> Replacement:
        table, state = self._table(view.name), self._cut.previous[view.name]
        with _planning(), self._budgets.of(lane.spark, view.name) as budget:
            self._check_table(lane.inputs, table, state.version, frame)
            return replacement(
                lane.spark,
                lane.inputs,
                plan,
                budget,
                changed=self._changed_inputs(view),
                schema=frame.schema,
                rows=lane.inputs.rows_at(table, state.version),
                before=lambda: lane.inputs.rows_of(table, state.version),
            )

    def _check_table(self, inputs: ViewInputs, table: str, version: int, frame: DataFrame) -> None:
        """Check that the rows that stay have the same columns as the new ones."""
        stored = inputs.columns_at(table, version)
        if stored != frame.dtypes:
            raise Unplannable("its columns changed")

    def _table(self, name: str) -> str:
        state = self._cut.previous.get(name)
        return layout.view(name, state.generation if state else 1)


@contextmanager
def _planning() -> Iterator[None]:
    """Turn Spark's errors into Unplannable: a value may fit in the view, but not in the rows of a plan."""
    from pyspark.errors import PySparkException

    try:
        with unwrapping():
            yield
    except PySparkException as error:
        raise Unplannable(not_run(error)) from error
