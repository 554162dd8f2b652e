"""Computes the views of one cut, over tables pinned at the cut's versions. Each view follows the views it reads.

This module decides and computes; the caller commits:

    for step in run_views(spark, views, lake, cut, plans=plans):
        if isinstance(step, Kept):
            ...                                       # its version stays; `reason` goes into the manifest
        else:
            version = ...                             # commit step.rows(), whole or in place of step.change's keys
            step.committed(version)                   # before the next step: other views may read it

A view is due if a table or view it reads changed, if its SQL changed, or if it was left behind before. Then it is kept
by its plan, or recomputed where no plan applies, which is always so in the last two cases. It is left behind, with the
reason, while a table that it reads is being snapshotted: its rows would not be of one moment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cdc.errors import InvariantError, ViewRefused
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.location import Where
from sinks.warehouse.lake.table_naming import captured_table, sql_name
from sinks.warehouse.planner.choose import PlanName
from sinks.warehouse.planner.decide import Decision
from sinks.warehouse.planner.plan import ViewPlan
from sinks.warehouse.planner.relations import Unplannable
from sinks.warehouse.spark.spark_errors import unwrapping
from sinks.warehouse.spark.sql_guard import guarded
from sinks.warehouse.views.definition import BoundView, inputs
from sinks.warehouse.views.incremental import PlanBook, not_run, replacement
from sinks.warehouse.views.inputs import CutTables, Replacement, ViewInputs
from sinks.warehouse.views.view_errors import check_columns, check_types, failure

if TYPE_CHECKING:
    import pyarrow as pa
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
    """A view to commit. The caller must call `committed` or `left_behind` before it takes the next view.

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
    def change(self) -> Replacement | None:
        """Keys of the view and their new rows; None if all rows are replaced."""
        return None

    @abstractmethod
    def rows(self) -> pa.Table:
        """Return the rows to write, in the driver. Raises ViewRefused if values do not fit, else SparkFailed."""

    def committed(self, version: int) -> None:
        """Record which version of its table the result became."""
        self.version = version

    def left_behind(self) -> None:
        """Record that it could not be kept: views that read it are left behind as well."""
        self.is_left = True


@dataclass(slots=True)
class Computed(Step):
    """A view to commit whole. `frame` is lazy; `rows` computes it."""

    frame: DataFrame

    def rows(self) -> pa.Table:
        """See `Step`."""
        from pyspark.errors import PySparkException

        try:
            with unwrapping():
                return self.frame.toArrow()
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

    def rows(self) -> pa.Table:
        """See `Step`."""
        return self.replacement.rows


def run_views(
    spark: SparkSession,
    views: Iterable[BoundView],
    lake: Where,
    cut: CutTables,
    *,
    plans: Mapping[str, str] | None = None,
    book: PlanBook | None = None,
) -> Iterator[Step | Kept]:
    """Yield each view in the given order, in which each view must follow the views it reads.

    A view whose SQL Spark refuses is left behind; the reason names file and line.

    Args:
        spark: the session.
        views: bound to the tables of the cut.
        lake: location of the lake.
        cut: its tables.
        plans: view -> requested plan; a view is recomputed if it is missing here, or if its plan does not apply.
        book: keeps plans from cut to cut.
    """
    run = _Run(spark, lake, cut, plans or {}, book or PlanBook())
    try:
        for view in views:
            reason = run.obstacle(view)
            if reason or not run.is_due(view):
                run.kept(view, reason)
                yield Kept(view, reason)
                continue
            try:
                step = run.step(view)
            except ViewRefused as error:
                run.kept(view, error.message)
                yield Kept(view, error.message)
                continue
            yield step
            if isinstance(step, Kept):
                run.kept(view, "")
                continue
            if step.is_left:
                run.kept(view, "left behind")
                continue
            if step.version is None:
                raise InvariantError(f"view {view.name} was computed and not committed", view=view.name)
            run.done(view, step.version, step.change)
    finally:
        run.close()


class _Run:
    def __init__(
        self, spark: SparkSession, lake: Where, cut: CutTables, plans: Mapping[str, str], book: PlanBook
    ) -> None:
        self._spark = spark
        self._cut = cut
        self._plans = plans
        self._book = book
        self._inputs = ViewInputs(spark, lake, cut)
        self._behind: set[str] = set()
        self._changed: set[str] = set()  # views whose rows differ from the previous cut
        self._versions: dict[str, tuple[str, int]] = {}  # view -> its table and version at this cut

    def obstacle(self, view: BoundView) -> str:
        """Return why it cannot be computed now; empty if it can."""
        for table in sorted(inputs(view)):
            source = captured_table(table, self._cut.complete)
            if self._cut.complete.get(source) == SNAPSHOTTING:
                return f"{source} is being snapshotted"
            if table not in self._cut.versions:
                return f"{sql_name(table)} is not in the lake yet"
        behind = sorted(self._behind & set(view.views.values()))
        return f"the view {behind[0]} is left behind" if behind else ""

    def is_due(self, view: BoundView) -> bool:
        """Whether its rows may have changed."""
        return bool(self._must_be_whole(view) or self._changed_inputs(view))

    def kept(self, view: BoundView, reason: str) -> None:
        if reason:
            self._behind.add(view.name)
            return
        state = self._cut.previous[view.name]
        self._versions[view.name] = (layout.view(view.name, state.generation), state.version)

    def done(self, view: BoundView, version: int, change: Replacement | None) -> None:
        table = self._table(view.name)
        self._changed.add(view.name)
        self._versions[view.name] = (table, version)
        if change is not None:
            self._inputs.replaced(table, change)

    def step(self, view: BoundView) -> Step | Kept:
        """Return the view by the requested plan, if possible. Raises ViewRefused."""
        frame = self._frame(view)
        whole = self._must_be_whole(view)
        decision = None if view.view.plan == "recompute" else self._decide(view, frame)
        if decision is None or decision.refused or whole or self._plans.get(view.name) != "affected":
            return Computed(view, whole or (decision.refused if decision else ""), decision, frame)
        try:
            change = self._replacement(view, decision.plan, frame)
        except Unplannable as found:
            return Computed(view, str(found), decision, frame)
        return Replaced(view, "", decision, change) if change.keys.num_rows else Kept(view, "")

    def close(self) -> None:
        """Drop the temporary views."""
        self._inputs.close()

    def _must_be_whole(self, view: BoundView) -> str:
        """Return why it must be computed whole; empty if it need not."""
        state = self._cut.previous.get(view.name)
        if state is None:
            return "it is new"
        if state.sql_sha != view.sha:
            return "its SQL changed"
        return "it was left behind" if state.reason else ""

    def _changed_inputs(self, view: BoundView) -> frozenset[str]:
        """Return the names, in its SQL, of its changed inputs."""
        tables = {name for name, table in view.tables.items() if table in self._cut.changed}
        return frozenset(tables | {name for name, other in view.views.items() if other in self._changed})

    def _frame(self, view: BoundView) -> DataFrame:
        """Return the view's query over this cut's versions. Raises ViewRefused."""
        from pyspark.errors import PySparkException

        for name, table in view.tables.items():
            self._inputs.add(name, table, self._cut.versions[table])
        for name, other in view.views.items():
            self._inputs.add(name, *self._versions[other])
        check_types(view, {name: self._inputs.relation(name).columns for name in view.relies_on})
        try:
            frame = guarded(self._spark, view.sql)
            check_columns(view, frame)
        except PySparkException as error:
            raise failure(view, error) from error
        return frame

    def _decide(self, view: BoundView, frame: DataFrame) -> Decision:
        relations = {name: self._inputs.relation(name) for name in view.tables}
        relations |= {name: self._inputs.relation(name, self._unique(other)) for name, other in view.views.items()}
        return self._book.decide(self._spark, view, relations, frame)

    def _unique(self, view: str) -> tuple[str, ...]:
        """Return the columns that no two rows of a view share; as recorded if it did not change since the start."""
        found = self._book.unique(view)
        state = self._cut.previous.get(view)
        if found is None and state is not None and state.plan is not None:
            found = state.plan.unique
        return found or ()

    def _replacement(self, view: BoundView, plan: ViewPlan, frame: DataFrame) -> Replacement:
        table, state = self._table(view.name), self._cut.previous[view.name]
        with _planning():
            self._check_table(table, state.version, frame)
            return replacement(
                self._spark,
                self._inputs,
                plan,
                changed=self._changed_inputs(view),
                schema=frame.schema,
                rows=self._inputs.rows_at(table, state.version),
            )

    def _check_table(self, table: str, version: int, frame: DataFrame) -> None:
        """Check that the rows that stay have the same columns as the new ones."""
        stored = self._inputs.columns_at(table, version)
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
