"""Computes the views of one cut, over tables pinned at that cut's versions, views behind the views they read.

The caller commits, this module decides and computes. How the two talk:

    for step in run_views(spark, views, lake, cut):
        if isinstance(step, Kept):
            ...                                       # its version stays; `reason` goes into the manifest
        else:
            version = ...                             # commit step.rows()
            step.committed(version)                   # before the next step: other views may read it

A view is recomputed when a table or view it reads changed, its SQL changed, or it was left behind before. It is left
behind, with the reason, while a table it reads is being snapshotted: then a result would be of no one moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cdc.errors import InvariantError, LakeUnready, TailraceError, ViewRefused
from sinks.warehouse import layout
from sinks.warehouse.lake import frame_of
from sinks.warehouse.location import Where
from sinks.warehouse.naming import captured, spelled
from sinks.warehouse.views import BoundView, inputs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from sinks.warehouse.manifest import ViewState

SNAPSHOTTING: Final = "snapshotting"
_DATA_FAULTS: Final = ("22", "42")  # classes of SQLSTATE: data exception; syntax error or access rule violation
_STORED: Final = frozenset(
    {
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "boolean",
        "date",
        "timestamp",
        "timestamp_ntz",
        "binary",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTables:
    """What the views of a cut are computed from.

    Attributes:
        versions: lake table -> Delta version at this cut.
        complete: ``schema.table`` -> complete or snapshotting.
        previous: the views of the cut before.
        changed: lake tables whose rows or columns are others than at the cut before.
    """

    versions: Mapping[str, int]
    complete: Mapping[str, str]
    previous: Mapping[str, ViewState]
    changed: AbstractSet[str]


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
    """A view to be committed. `frame` is lazy; `rows` computes it."""

    view: BoundView
    frame: DataFrame
    version: int | None = field(default=None, init=False)
    is_left: bool = field(default=False, init=False)

    def rows(self) -> pa.Table:
        """The result, in the driver. Raises ViewRefused when values do not fit the SQL, LakeUnready otherwise."""
        from pyspark.errors import PySparkException

        try:
            return self.frame.toArrow()
        except PySparkException as error:
            raise _failure(self.view, error) from error

    def committed(self, version: int) -> None:
        """Say which version of its table the result became."""
        self.version = version

    def left_behind(self) -> None:
        """Say that it could not be computed: views that read it are left behind as well."""
        self.is_left = True


def run_views(
    spark: SparkSession, views: Sequence[BoundView], lake: Where, cut: CutTables
) -> Iterator[Computed | Kept]:
    """Each view in the order given, which must be one where views stand behind those they read.

    A view whose SQL Spark does not take is left behind; the reason names file and line.
    """
    run = _Run(spark, lake, cut)
    try:
        for view in views:
            reason = run.obstacle(view)
            if reason or not run.is_due(view):
                run.kept(view, reason)
                yield Kept(view, reason)
                continue
            try:
                step = Computed(view, run.frame(view))
            except ViewRefused as error:
                run.kept(view, error.message)
                yield Kept(view, error.message)
                continue
            yield step
            if step.is_left:
                run.kept(view, "left behind")
                continue
            if step.version is None:
                raise InvariantError(f"view {view.name} was computed and not committed", view=view.name)
            run.done(view, step.version)
    finally:
        run.close()


class _Run:
    def __init__(self, spark: SparkSession, lake: Where, cut: CutTables) -> None:
        self._spark = spark
        self._lake = lake
        self._cut = cut
        self._behind: set[str] = set()
        self._recomputed: set[str] = set()
        self._versions: dict[str, tuple[str, int]] = {}  # view -> its table and version at this cut
        self._registered: set[str] = set()

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
        state = self._cut.previous.get(view.name)
        if state is None or state.reason or state.sql_sha != view.sha:
            return True
        return bool(inputs(view) & self._cut.changed or self._recomputed & set(view.views.values()))

    def kept(self, view: BoundView, reason: str) -> None:
        if reason:
            self._behind.add(view.name)
            return
        state = self._cut.previous[view.name]
        self._versions[view.name] = (layout.view(view.name, state.generation), state.version)

    def done(self, view: BoundView, version: int) -> None:
        self._recomputed.add(view.name)
        self._versions[view.name] = (self._table(view.name), version)

    def frame(self, view: BoundView) -> DataFrame:
        """The view's query over this cut's versions. Raises ViewRefused."""
        from pyspark.errors import PySparkException

        for name, table in view.tables.items():
            self._register(name, table, self._cut.versions[table])
        for name, other in view.views.items():
            self._register(name, *self._versions[other])
        try:
            frame = self._spark.sql(view.sql)
            _check_columns(view, frame)
        except PySparkException as error:
            raise _failure(view, error) from error
        return frame

    def close(self) -> None:
        """Take the temporary views away again."""
        for name in self._registered:
            self._spark.catalog.dropTempView(name)

    def _register(self, name: str, table: str, version: int) -> None:
        if name not in self._registered:
            frame_of(self._spark, self._lake, table, version).createOrReplaceTempView(name)
            self._registered.add(name)

    def _table(self, name: str) -> str:
        state = self._cut.previous.get(name)
        return layout.view(name, state.generation if state else 1)


def _check_columns(view: BoundView, frame: DataFrame) -> None:
    """What only the result shows: names that came out of a ``*``, types that a table does not have."""
    seen: set[str] = set()
    for column in frame.schema.fields:
        if column.name.lower() in seen:
            raise _refused(view, f"two columns are named {column.name!r}", "name the columns instead of *")
        seen.add(column.name.lower())
        kind = _unstorable(column.dataType)
        if kind:
            raise _refused(
                view, f"column {column.name!r} is of type {kind}, which tables of the lake do not have", "cast it"
            )


def _unstorable(kind: DataType) -> str:
    """The first type in it that the lake's tables do not have; empty when there is none."""
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructType

    if isinstance(kind, ArrayType):
        return _unstorable(kind.elementType)
    if isinstance(kind, MapType):
        return _unstorable(kind.keyType) or _unstorable(kind.valueType)
    if isinstance(kind, StructType):
        return next((found for field in kind.fields if (found := _unstorable(field.dataType))), "")
    known = isinstance(kind, DecimalType | StringType) or kind.simpleString() in _STORED
    return "" if known else kind.simpleString()


def _failure(view: BoundView, error: PySparkException) -> TailraceError:
    """A fault of the SQL or of values is the view's; anything else is Spark's, and may pass."""
    condition = error.getCondition() or type(error).__name__
    if not (error.getSqlState() or "").startswith(_DATA_FAULTS):
        return LakeUnready(
            f"Spark could not compute view {view.name}: {condition}", hint="it is tried again", view=view.name
        )
    if not (error.getSqlState() or "").startswith("42"):
        # Only the condition: what it says of a value holds the value.
        return _refused(view, condition, "a value does not fit: guard it by try_cast, try_divide or nullif")
    text = re.sub(r"\s*SQLSTATE:.*", "", str(error).splitlines()[0])
    for name, table in view.tables.items():
        text = text.replace(f"`{name}`", spelled(table)).replace(name, spelled(table))
    for name, other in view.views.items():
        text = text.replace(f"`{name}`", other).replace(name, other)
    line = re.search(r"\bline (\d+)\b", str(error)) if view.view.dialect == "spark" else None
    return _refused(view, text, f"cdc views sql {view.name} --spark shows what is run", int(line[1]) if line else 0)


def _refused(view: BoundView, message: str, hint: str, line: int = 0) -> ViewRefused:
    where = f"{view.view.file}, line {line}" if line else str(view.view.file)
    return ViewRefused(f"{where}: {message}", hint=hint, view=view.name, file=str(view.view.file), line=line or None)
