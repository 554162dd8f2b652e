"""Provides the inputs of a cut's views to Spark: each input at this cut, at the previous cut, and its changes.

Old images come from the pinned version of the previous cut, by key. They never come from the old row in an event, which
is not always complete. So they are the same after a restart, and if one cut contains several source transactions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.warehouse.delta.key_rows import rows_of_keys, stored_rows
from sinks.warehouse.delta.pinned_version import pinned, row_count, schema_json
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.committer import DELETED
from sinks.warehouse.lake.location import Where
from sinks.warehouse.lake.table_naming import quoted, sql_name, unescaped
from sinks.warehouse.planner.relations import WEIGHT, Relation, Unplannable, images, old
from sinks.warehouse.planner.time_windows import NUMBERS
from sinks.warehouse.spark.frames import frame_of_rows
from sinks.warehouse.spark.held_rows import HeldRows, collected
from sinks.warehouse.views.change_feed import view_feed
from sinks.warehouse.views.frame_images import rows_before, weighted
from sinks.warehouse.views.pattern_frames import both_sides, pattern_frame, rows_among

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.lake.cut_commit import Written
    from sinks.warehouse.lake.manifest import ViewState
    from sinks.warehouse.spark.held_rows import Either
    from sinks.warehouse.views.row_patterns import BoundPattern

_WORDS: Final = re.compile(r"\w+")
ONE_TASK_ROWS: Final = 1_000_000  # of a table: a fifth less CPU of views, without shuffles (2026-11-26)
IMAGE_ROWS_MAX: Final = 200_000  # the driver holds them; a cut with more has changed much of most tables


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTables:
    """The tables that the views of a cut are computed from.

    Attributes:
        versions: lake table -> Delta version at this cut.
        complete: ``schema.table`` -> complete or snapshotting.
        previous: the views of the previous cut.
        changed: lake tables whose rows or columns differ from the previous cut.
        before: lake table -> Delta version at the previous cut.
        written: lake table -> what it took in this cut; a changed table that is missing here was rewritten.
        keys: mirror -> its key columns.
        rows: lake table -> number of its rows.
    """

    versions: Mapping[str, int]
    complete: Mapping[str, str]
    previous: Mapping[str, ViewState]
    changed: AbstractSet[str]
    before: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, Written] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Keys of a view and their rows as of this cut."""

    keys: HeldRows
    rows: HeldRows


class ViewInputs:
    """The temporary views of one cut in one session. `close` drops them. Not thread-safe.

    Args:
        spark: the session.
        lake: location of the lake.
        cut: its tables.
        replaced: table of a view -> the replacement that leads from its previous version to this cut's; grows.
        in_frames: whether rows stay in the executors.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Where,
        cut: CutTables,
        replaced: Mapping[str, Replacement],
        *,
        in_frames: bool = False,
    ) -> None:
        self.in_frames = in_frames
        self._held: list[HeldRows] = []
        self._spark = spark
        self._lake = lake
        self._cut = cut
        self._frames: dict[str, DataFrame] = {}
        self._places: dict[str, tuple[str, int]] = {}
        self._replaced = replaced
        self._image_columns: dict[str, frozenset[str]] = {}
        self._patterns: dict[str, BoundPattern] = {}
        self._matched: dict[str, tuple[pa.Table, pa.Table]] = {}  # partitions and images

    def add_pattern(self, name: str, pattern: BoundPattern) -> None:
        """Make what replaces a clause MATCH_RECOGNIZE readable; the table that it reads is an input already.

        Raises ViewRefused, PySparkException.
        """
        if name not in self._frames:
            self._patterns[name] = pattern
            self._places[name] = self._places[pattern.source]
            self._register(name, self._matches(name, pattern.source, name))

    def add(self, name: str, table: str, version: int) -> None:
        """Make a lake table at this version readable under a name."""
        if name not in self._frames:
            self._places[name] = (table, version)
            self._register(name, self._stored(table, version))

    def relation(self, name: str, key: tuple[str, ...] = ()) -> Relation:
        """Return what the planner needs to know of an added input."""
        columns = {column.lower(): kind for column, kind in self._frames[name].dtypes}
        table = self._places[name][0]
        if name in self._patterns:
            partition = self._patterns[name].statement.clause.partition
            return Relation(name, columns, (), self.rows(name), tuple(map(str.lower, partition)))
        return Relation(name, columns, tuple(map(str.lower, self._cut.keys.get(table, key))), self.rows(name))

    def rows(self, name: str) -> int:
        """Return the number of rows of an input."""
        table, version = self._places[name]
        counted = self._cut.rows.get(table)
        return row_count(pinned(self._lake, table, version)) if counted is None else counted

    def rows_taken(self, name: str) -> int:
        """Return how many rows an input took in the cut; 0 if that is not known."""
        table = self._places[name][0]
        written, replaced = self._cut.written.get(table), self._replaced.get(table)
        if written is None:
            return 0 if replaced is None else replaced.rows.count
        return written.rows.num_rows if isinstance(written.rows, pa.Table) else written.rows.limit

    def rows_at(self, table: str, version: int) -> int:
        """Return the number of rows of a version of a lake table."""
        return row_count(pinned(self._lake, table, version))

    def rows_of(self, table: str, version: int) -> pa.Table:
        """Return the rows of a version of a small lake table."""
        found: pa.Table = pinned(self._lake, table, version).to_pyarrow_dataset().to_table()
        return found

    def columns_at(self, table: str, version: int) -> list[tuple[str, str]]:
        """Return name and Spark type of the columns of a version of a lake table."""
        from pyspark.sql.types import StructType

        stored = StructType.fromJson(schema_json(pinned(self._lake, table, version)))
        return [(field.name, field.dataType.simpleString()) for field in stored.fields]

    def before(self, table: str) -> int | None:
        """Return the version of a lake table, or of a view's table, at the previous cut."""
        if not layout.is_view(table):
            return self._cut.before.get(table)
        states = self._cut.previous.items()
        return next((one.version for name, one in states if layout.view(name, one.generation) == table), None)

    def add_old(self, name: str) -> None:
        """Make an input at the previous cut readable, under the name from `planner.relations.old`."""
        if name in self._patterns:
            if old(name) not in self._frames:
                source = self._patterns[name].source
                self.add_old(source)
                self._register(old(name), self._matches(name, old(source), old(name)))
            return
        if old(name) not in self._frames:
            version = self._version_before(name)
            self._register(old(name), self._stored(self._places[name][0], version))

    def add_images(self, name: str, text: str) -> None:
        """Make the images of an input's changes readable, with all columns that the query `text` can name.

        Raises Unplannable if there are none.
        """
        if name in self._patterns:
            self._add_pattern_images(name)
            return
        there = self._frames[name].columns
        # A query that only counts rows names no column, but a relation needs at least one.
        columns = self._image_columns.get(name, frozenset()) | (named_in(text, there) or {there[0]})
        if columns == self._image_columns.get(name):
            return
        found = self._images(name, [column for column in there if column in columns])
        if found.count > IMAGE_ROWS_MAX and not self.in_frames:
            raise Unplannable(f"{found.count:,} rows of {_shown(self._places[name][0])} changed")
        self.add_rows(images(name), found.rows)
        self._image_columns[name] = columns

    def add_rows(self, name: str, rows: Either) -> None:
        """Make rows readable under a name; they replace earlier rows of that name."""
        self._register(name, self._framed(rows))

    def add_numbers(self) -> None:
        """Make what hopping windows are joined with readable."""
        self._register(NUMBERS.name, self._spark.range(NUMBERS.rows).toDF(*NUMBERS.columns))

    def held(self, frame: DataFrame) -> HeldRows:
        """Compute a frame once; `close` frees what it takes. Raises PySparkException."""
        found = HeldRows.of(frame, in_frames=self.in_frames)
        self._held.append(found)
        return found

    def hold(self, held: str, name: str, keys: pa.Table, text: str) -> pa.Table | None:
        """Make selected rows of an input readable under a name if they are few, and return them; else return None.

        The driver reads them, so none are if rows stay in the executors.

        Args:
            held: the name.
            name: of the input at this cut.
            keys: columns of the input, in any case; selects its rows with one of these. A null equals a null.
            text: the query that will read them; only columns that it can name are included.
        """
        if self.in_frames:
            return None
        if name in self._patterns:
            return self._hold_pattern(held, name, keys)
        table, version = self._places[name]
        kinds = self._frames[name].dtypes
        cased = {column.lower(): column for column, _ in kinds}
        wanted = named_in(text, cased.values())
        stored = [(column, kind) for column, kind in kinds if column in wanted]
        keys = keys.rename_columns([cased[column.lower()] for column in keys.column_names])
        found = stored_rows(self._lake, table, version, keys, [column for column, _ in stored], rows_max=IMAGE_ROWS_MAX)
        if found is None:
            return None
        frame = frame_of_rows(self._spark, found)
        if frame.dtypes != stored:
            return None
        self._register(held, frame)
        return found

    def close(self) -> None:
        """Drop the temporary views."""
        for name in self._frames:
            self._spark.catalog.dropTempView(name)
        for one in self._held:
            one.release()

    def _matches(self, name: str, source: str, made: str) -> DataFrame:
        """Return the rows of a clause MATCH_RECOGNIZE over a temporary view; `made` is a name for this relation."""
        pattern = self._patterns[name]
        key = self._cut.keys.get(self._places[name][0], ())
        return pattern_frame(self._spark, pattern, source, key, made, self._register)

    def _add_pattern_images(self, name: str) -> None:
        """Make the rows of the matches in all partitions that a cut changed readable: before it, and after it."""
        source, partition = self._patterns[name].source, self._patterns[name].statement.clause.partition
        if not partition:
            raise Unplannable("MATCH_RECOGNIZE has no PARTITION BY, so every change affects all of its rows")
        if self.in_frames:
            raise Unplannable("executors recompute MATCH_RECOGNIZE")
        if images(name) in self._frames:
            return
        cased = {column.lower(): column for column in self._frames[source].columns}
        columns = [cased[column.lower()] for column in partition]
        found = self._images(source, columns)
        if found.count > IMAGE_ROWS_MAX:
            raise Unplannable(f"{found.count:,} rows of {_shown(self._places[source][0])} changed")
        keys = found.here().select(columns).group_by(columns).aggregate([]).select(columns)
        new = self._of_partitions(name, keys, self._places[source][1], f"{name}__new")
        gone = self._of_partitions(name, keys, self._version_before(source), f"{name}__gone")
        made = self.held(both_sides(new, gone))
        self.add_rows(images(name), made.rows)
        self._matched[name] = keys, made.here()

    def _of_partitions(self, name: str, keys: pa.Table, version: int, made: str) -> DataFrame:
        """Return the rows of the matches in these partitions, `keys` by columns of the source, at its version."""
        source, clause = self._patterns[name].source, self._patterns[name].statement.clause
        table, kinds = self._places[source][0], self._frames[source].dtypes
        key = {column.lower() for column in self._cut.keys.get(table, ())}
        named = named_in(clause.text, [column for column, _ in kinds])
        wanted = [one for one in kinds if not key or clause.all_rows or one[0] in named or one[0].lower() in key]
        columns = [column for column, _ in wanted]
        found = stored_rows(self._lake, table, version, keys, columns, rows_max=IMAGE_ROWS_MAX)
        # They are few: in one Spark partition nothing is shuffled.
        rows = None if found is None else frame_of_rows(self._spark, found).coalesce(1)
        if rows is None or rows.dtypes != wanted:
            rows = rows_of_keys(self._spark, self._lake, table, version, keys.column_names, keys)
            rows = rows.select(*map(quoted, columns))
        self._register(f"{made}__rows", rows)
        return self._matches(name, f"{made}__rows", made)

    def _hold_pattern(self, held: str, name: str, keys: pa.Table) -> pa.Table | None:
        """Do as `hold` for a clause MATCH_RECOGNIZE: only partitions that can have one of the keys are matched."""
        source, partition = self._patterns[name].source, self._patterns[name].statement.clause.partition
        cased = {column.lower(): column for column in self._frames[source].columns}
        own = [column for column in keys.column_names if column.lower() in {one.lower() for one in partition}]
        if not own:
            return None
        wanted = keys.select(own).rename_columns([cased[column.lower()] for column in own])
        wanted = wanted.group_by(wanted.column_names).aggregate([]).select(wanted.column_names)
        rows = self._known_matches(name, wanted)
        if rows is None:
            rows = self._of_partitions(name, wanted, self._places[source][1], held)
        found = rows_among(rows, frame_of_rows(self._spark, keys), keys.column_names).toArrow()
        frame = frame_of_rows(self._spark, found)
        if found.num_rows > IMAGE_ROWS_MAX or frame.dtypes != self._frames[name].dtypes:
            return None
        self._register(held, frame)
        return found

    def _known_matches(self, name: str, wanted: pa.Table) -> DataFrame | None:
        """Return the rows of the images as of this cut, if these partitions are among theirs."""
        if name not in self._matched:
            return None
        (keys, made), columns = self._matched[name], wanted.column_names
        if set(keys.column_names) != set(columns) or keys.select(columns).schema.types != wanted.schema.types:
            return None
        keys = keys.select(columns)
        both = pa.concat_tables([keys, wanted.cast(keys.schema)]).group_by(columns).aggregate([])
        if both.num_rows > keys.num_rows:
            return None
        new = made.filter(pc.equal(made[WEIGHT], 1)).drop_columns([WEIGHT])
        return frame_of_rows(self._spark, new)

    def _images(self, name: str, columns: Sequence[str]) -> HeldRows:
        table, version = self._places[name]
        if layout.is_view(table) and table not in self._replaced:
            return self._compared(name, table, version)
        if table in self._replaced:
            found = self._replaced[table]
            new, gone = found.rows.rows, self._rows_before(name, found.keys.rows, columns)
        else:
            new, gone = self._taken(name, table, columns)
        if set(self._frames[name].columns) - set(_names(new)):
            raise Unplannable(f"columns of {_shown(table)} changed")
        if self.in_frames:
            before = None if gone is None else self._framed(gone)
            return self.held(weighted(self._frames[name], columns, self._framed(new), before))
        return HeldRows.of_table(_weighted(columns, collected(new), None if gone is None else collected(gone)))

    def _compared(self, name: str, table: str, version: int) -> HeldRows:
        """Return the images of a recomputed view, by comparing both of its versions if they are small."""
        before = self._version_before(name)
        count = self.rows_at(table, before) + self.rows_at(table, version)
        if count > IMAGE_ROWS_MAX:
            raise Unplannable(f"{_shown(table)} was recomputed")
        return self.held(view_feed(self._spark, self._lake, table, before, version))

    def _taken(self, name: str, table: str, columns: Sequence[str]) -> tuple[Either, Either | None]:
        """Return the rows that a table took, and the previous rows that they replace; None if rows were only added."""
        written = self._cut.written.get(table)
        if written is None:
            raise Unplannable(f"{_shown(table)} was rewritten")
        if not written.key:
            return (written.rows if isinstance(written.rows, pa.Table) else written.rows.rows), None
        if not isinstance(written.rows, pa.Table):
            rows = written.rows.rows
            keys = rows.select(*map(quoted, written.key))
            return rows.where(f"not {quoted(DELETED)}"), self._rows_before(name, keys, columns)
        if written.rows.num_rows > IMAGE_ROWS_MAX:
            raise Unplannable(f"{written.rows.num_rows:,} rows of {_shown(table)} changed")
        live = written.rows.filter(pc.invert(written.rows.column(DELETED)))
        return live, self._rows_before(name, written.rows.select(list(written.key)), columns)

    def _rows_before(self, name: str, keys: Either, columns: Sequence[str]) -> Either:
        """Return rows of the previous cut with one of these keys."""
        table, before = self._places[name][0], self._version_before(name)
        if not isinstance(keys, pa.Table):
            return rows_before(self._spark, self._lake, table, before, keys, keys.columns)
        found = stored_rows(self._lake, table, before, keys, columns)
        if found is not None:
            return found
        rows = rows_of_keys(self._spark, self._lake, table, before, keys.column_names, keys)
        return rows.select(*map(quoted, columns)).toArrow()

    def _version_before(self, name: str) -> int:
        """Return an input's version at the previous cut, with the same columns as now. Raises Unplannable."""
        table, _ = self._places[name]
        version = self.before(table)
        if version is None:
            raise Unplannable(f"{_shown(table)} is new")
        if self.columns_at(table, version) != self._frames[name].dtypes:
            raise Unplannable(f"columns of {_shown(table)} changed")
        return version

    def _stored(self, table: str, version: int) -> DataFrame:
        """Return a version of a lake table. A small one is one partition: joins and groups of such need no shuffle."""
        frame = frame_of(self._spark, self._lake, table, version)
        counted = self._cut.rows.get(table) if self._cut.versions.get(table) == version else None
        rows = self.rows_at(table, version) if counted is None else counted
        return frame.coalesce(1) if rows <= ONE_TASK_ROWS else frame

    def _framed(self, rows: Either) -> DataFrame:
        return frame_of_rows(self._spark, rows) if isinstance(rows, pa.Table) else rows

    def _register(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self._frames[name] = frame


def named_in(text: str, columns: Iterable[str]) -> frozenset[str]:
    """Return the columns that a query can mean: their names appear in it, whatever they name there."""
    lower = text.lower()
    words = frozenset(_WORDS.findall(lower))
    return frozenset(column for column in columns if column.lower() in words or quoted(column.lower()) in lower)


def _names(rows: Either) -> list[str]:
    return rows.column_names if isinstance(rows, pa.Table) else rows.columns


def _weighted(columns: Sequence[str], new: pa.Table, gone: pa.Table | None) -> pa.Table:
    """Return these columns of rows that came, with `WEIGHT` 1, and of rows that went, with -1."""
    parts = [
        part.select(columns).append_column(WEIGHT, pa.repeat(pa.scalar(weight, pa.int32()), part.num_rows))
        for part, weight in ((gone, -1), (new, 1))
        if part is not None
    ]
    return pa.concat_tables([parts[-1], *(part.cast(parts[-1].schema) for part in parts[:-1])])


def _shown(table: str) -> str:
    """Return a table's name for people."""
    return f"the view {unescaped(table.split('/')[1])}" if layout.is_view(table) else sql_name(table)
