"""Computes the views of one cut, over tables pinned at that cut's versions, views behind the views they read.

The caller commits, this module decides and computes. How the two talk:

    for step in run_views(spark, views, lake, cut, plans=plans):
        if isinstance(step, Kept):
            ...                                       # its version stays; `reason` goes into the manifest
        elif isinstance(step, Replaced):
            version = ...                             # commit step.change: keys, and their rows
            step.committed(version)
        else:
            version = ...                             # commit step.rows()
            step.committed(version)                   # before the next step: other views may read it

A view is due when a table or view it reads changed, its SQL changed, or it was left behind before. Then it is kept by
its plan, or recomputed where none applies, which is always the case for the last two. It is left behind, with the
reason, while a table it reads is being snapshotted: then a result would be of no one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cdc.errors import InvariantError, ViewRefused
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.cut_commit import Sums
from sinks.warehouse.lake.location import Where
from sinks.warehouse.lake.table_naming import captured, spelled
from sinks.warehouse.planner.plan import ViewPlan
from sinks.warehouse.planner.relations import Unplannable
from sinks.warehouse.spark.sql_guard import guarded
from sinks.warehouse.views.definition import BoundView, inputs
from sinks.warehouse.views.incremental import PlanBook, replacement, summed
from sinks.warehouse.views.inputs import CutTables, Replacement, ViewInputs
from sinks.warehouse.views.view_errors import check_columns, failure

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Computed", "CutTables", "Kept", "PlanBook", "Replaced", "Summed", "run_views"]

SNAPSHOTTING: Final = "snapshotting"


@dataclass(frozen=True, slots=True)
class Kept:
    """A view whose version stays.

    Attributes:
        reason: why it is left as of an older cut; "" when nothing it reads changed, so that it is as of this one.
    """

    view: BoundView
    reason: str


@dataclass(slots=True)
class Computed:
    """A view to be committed whole. `frame` is lazy; `rows` computes it.

    Attributes:
        reason: why the view is recomputed.
    """

    view: BoundView
    frame: DataFrame
    reason: str = ""
    version: int | None = field(default=None, init=False)
    is_left: bool = field(default=False, init=False)

    def rows(self) -> pa.Table:
        """The result, in the driver. Raises ViewRefused when values do not fit the SQL, LakeUnready otherwise."""
        from pyspark.errors import PySparkException

        try:
            return self.frame.toArrow()
        except PySparkException as error:
            raise failure(self.view, error) from error

    def committed(self, version: int) -> None:
        """Say which version of its table the result became."""
        self.version = version

    def left_behind(self) -> None:
        """Say that it could not be computed: views that read it are left behind as well."""
        self.is_left = True


@dataclass(slots=True)
class Summed:
    """A view to be committed with the sums it is kept by, whole or of the groups that changed."""

    view: BoundView
    sums: Sums
    reason: str
    version: int | None = field(default=None, init=False)
    is_left: bool = field(default=False, init=False)

    @property
    def change(self) -> Replacement | None:
        """The groups that changed, and their rows; None when all is written anew."""
        return None if self.sums.keys is None else Replacement(self.sums.keys, self.sums.rows)

    def committed(self, version: int) -> None:
        """Say which version of its table it became."""
        self.version = version

    def left_behind(self) -> None:
        """Say that it is not to be: views that read it are left behind as well."""
        self.is_left = True


@dataclass(slots=True)
class Replaced:
    """A view of which the rows of some keys are to be committed.

    Attributes:
        change: these keys, and the rows they have now.
        reason: why it is kept in this way; "" where that is what was wished for.
    """

    view: BoundView
    change: Replacement
    reason: str
    version: int | None = field(default=None, init=False)
    is_left: bool = field(default=False, init=False)

    def committed(self, version: int) -> None:
        """Say which version of its table it became."""
        self.version = version

    def left_behind(self) -> None:
        """Say that it is not to be: views that read it are left behind as well."""
        self.is_left = True


def run_views(
    spark: SparkSession,
    views: Iterable[BoundView],
    lake: Where,
    cut: CutTables,
    *,
    plans: Mapping[str, str] | None = None,
    book: PlanBook | None = None,
) -> Iterator[Computed | Replaced | Summed | Kept]:
    """Each view in the order given, which must be one where views stand behind those they read.

    A view whose SQL Spark does not take is left behind; the reason names file and line.

    Args:
        spark: the session.
        views: bound to the tables of the cut.
        lake: where it is.
        cut: its tables.
        plans: view -> the plan it is to be kept by; recompute where it does not say, or where that plan cannot.
        book: keeps what was planned from cut to cut.
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
            run.done(view, step.version, None if isinstance(step, Computed) else step.change)
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
        self._changed: set[str] = set()  # views whose rows are others than at the cut before
        self._versions: dict[str, tuple[str, int]] = {}  # view -> its table and version at this cut

    def obstacle(self, view: BoundView) -> str:
        """Why it cannot be computed now."""
        for table in sorted(inputs(view)):
            source = captured(table, self._cut.complete)
            if self._cut.complete.get(source) == SNAPSHOTTING:
                return f"{source} is being snapshotted"
            if table not in self._cut.versions:
                return f"{spelled(table)} is not in the lake yet"
        behind = sorted(self._behind & set(view.views.values()))
        return f"the view {behind[0]} is left behind" if behind else ""

    def is_due(self, view: BoundView) -> bool:
        """Whether its rows can have changed."""
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

    def step(self, view: BoundView) -> Computed | Replaced | Summed | Kept:
        """The view, by the plan that is wanted if that can be. Raises ViewRefused."""
        frame = self._frame(view)
        whole = self._must_be_whole(view)
        wanted = self._plans.get(view.name, "recompute")
        if wanted == "recompute" or (whole and wanted == "affected"):
            return Computed(view, frame, whole)
        try:
            if wanted == "delta":
                return self._summed(view, frame, whole=bool(whole))
            change = self._replacement(view, frame)
        except Unplannable as found:
            return Computed(view, frame, str(found))
        return Replaced(view, change, "") if change.keys.num_rows else Kept(view, "")

    def close(self) -> None:
        """Take the temporary views away again."""
        self._inputs.close()

    def _must_be_whole(self, view: BoundView) -> str:
        """Why its rows of before say nothing of now."""
        state = self._cut.previous.get(view.name)
        if state is None:
            return "it is new"
        if state.sql_sha != view.sha:
            return "its SQL changed"
        return "it was left behind" if state.reason else ""

    def _changed_inputs(self, view: BoundView) -> frozenset[str]:
        """The names, in its SQL, of what it reads that changed."""
        tables = {name for name, table in view.tables.items() if table in self._cut.changed}
        return frozenset(tables | {name for name, other in view.views.items() if other in self._changed})

    def _frame(self, view: BoundView) -> DataFrame:
        """The view's query over this cut's versions. Raises ViewRefused."""
        from pyspark.errors import PySparkException

        for name, table in view.tables.items():
            self._inputs.add(name, table, self._cut.versions[table])
        for name, other in view.views.items():
            self._inputs.add(name, *self._versions[other])
        try:
            frame = guarded(self._spark, view.sql)
            check_columns(view, frame)
        except PySparkException as error:
            raise failure(view, error) from error
        return frame

    def _plan(self, view: BoundView, frame: DataFrame) -> ViewPlan:
        """Its plan, which Spark understands as the planner does. Raises Unplannable, PySparkException."""
        unique = self._book.unique
        relations = {name: self._inputs.relation(name) for name in view.tables}
        relations |= {name: self._inputs.relation(name, unique.get(other, ())) for name, other in view.views.items()}
        plan = self._book.plan(view, relations)
        if plan.reason and plan.delta is None:
            raise Unplannable(plan.reason)
        if not self._book.agrees(self._spark, view, plan, frame):
            raise Unplannable("the planner reads its SQL in another way than Spark does")
        return plan

    def _replacement(self, view: BoundView, frame: DataFrame) -> Replacement:
        table, state = self._table(view.name), self._cut.previous[view.name]
        with _planning():
            plan = self._plan(view, frame)
            self._check_table(table, state.version, frame)
            return replacement(
                self._spark,
                self._inputs,
                plan,
                changed=self._changed_inputs(view),
                schema=frame.schema,
                rows=self._inputs.rows_at(table, state.version),
            )

    def _summed(self, view: BoundView, frame: DataFrame, *, whole: bool) -> Summed | Kept:
        """The view by its sums; these are counted anew where there are none as of the cut before."""
        previous = self._cut.previous.get(view.name)
        sums: tuple[str, int] | None = None
        if not whole and previous is not None and previous.sums is not None and previous.sums[1] == previous.cut:
            sums = layout.view_state(view.name, previous.generation), previous.sums[0]
        with _planning():
            plan = self._plan(view, frame)
            if sums is not None and previous is not None:
                self._check_table(self._table(view.name), previous.version, frame)
            changed = self._changed_inputs(view)
            try:
                found = summed(self._spark, self._inputs, view, plan, changed=changed, schema=frame.schema, state=sums)
            except Unplannable as refused:
                if sums is None or plan.delta is None:
                    raise
                found = summed(self._spark, self._inputs, view, plan, changed=changed, schema=frame.schema, state=None)
                return Summed(view, found, f"its sums were counted anew: {refused}")
        if sums is None:
            return Summed(view, found, "its sums were counted for the first time since it is kept by them")
        # The sums may have moved where no row of the view did: both are as of this cut, or neither.
        return Summed(view, found, "") if found.keys is not None and found.keys.num_rows else Kept(view, "")

    def _check_table(self, table: str, version: int, frame: DataFrame) -> None:
        """The rows that stay must have the columns of those that come."""
        stored = self._inputs.columns_at(table, version)
        if stored != frame.dtypes:
            raise Unplannable("its columns changed")

    def _table(self, name: str) -> str:
        state = self._cut.previous.get(name)
        return layout.view(name, state.generation if state else 1)


@contextmanager
def _planning() -> Iterator[None]:
    """A plan that Spark cannot run is none: a value may fit in the view, and not in rows the plan puts together."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise Unplannable(f"its plan could not be run: {error.getCondition() or type(error).__name__}") from error
