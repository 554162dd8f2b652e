"""Writes one table of one span: from its changes to the commits of archive, mirror and history.

Spark has done the work per event, in one pass; its rows arrive as Arrow (`sinks.warehouse.log.changes`).
`sinks.warehouse.log.table_outputs` divides them, and the committer does the work per file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as fn

from cdc.errors import SinkUnfit
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.committer import DELETED, VALID_TO, VALID_TO_LSN, Frame
from sinks.warehouse.log import changes
from sinks.warehouse.log.lake_columns import (
    ARCHIVE_COLUMNS,
    HISTORY_COLUMNS,
    MIRROR_COLUMNS,
    Evolution,
    LakeTable,
    adds_only,
    evolve,
)
from sinks.warehouse.log.shaped_rows import shaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.lake.committer import TableReads
    from sinks.warehouse.lake.cut_commit import CutCommit
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import Repair
    from sinks.warehouse.log.row_outputs import RowOutputs

_DDL: Final = {
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "string": pa.string(),
}

_OWN: Final = {
    "_epoch": pa.int32(),
    "_commit_lsn": pa.int64(),
    "_ordinal": pa.int32(),
    "_committed_at": pa.timestamp("us", tz="UTC"),
    "_valid_from_lsn": pa.int64(),
    "_valid_from_ordinal": pa.int32(),
    "_valid_from": pa.timestamp("us", tz="UTC"),
    VALID_TO_LSN: pa.int64(),
    VALID_TO: pa.timestamp("us", tz="UTC"),
    "_op": pa.string(),
    "_unchanged": pa.list_(pa.string()),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
}


@dataclass(frozen=True, slots=True)
class Names:
    """The lake tables of a captured table. `mirror` is empty without a key, `history` if none is kept."""

    archive: str
    mirror: str
    history: str

    @classmethod
    def of(cls, table: LakeTable, *, history: bool) -> Names:
        """Return the names for `table`."""
        namespace, name = layout.split_table(table.table, table.topic)
        kept = layout.history(namespace, name) if history and table.key else ""
        return cls(layout.archive(table.topic), layout.mirror(namespace, name) if table.key else "", kept)

    @property
    def all(self) -> tuple[str, ...]:
        """The lake tables that exist."""
        return tuple(name for name in (self.archive, self.mirror, self.history) if name)


class TableWriter:
    """Writes the events of one topic into its lake tables, within one cut.

    Args:
        spark: the session.
        location: of the lake.
        tables: reads them.
        commit: of the cut.
        used: releases rows when nothing needs them any more: views may read what the tables took.
        in_frames: leave rows in the executors.
        repairs: as for `changes.sequenced`.
    """

    def __init__(
        self,
        spark: SparkSession,
        location: Location,
        tables: TableReads,
        commit: CutCommit,
        used: ExitStack,
        *,
        in_frames: bool,
        repairs: Sequence[Repair] = (),
    ) -> None:
        self._used, self._in_frames, self._repairs = used, in_frames, repairs
        self._spark = spark
        self._location = location
        self._tables = tables
        self._commit = commit

    def create_missing(self, table: LakeTable, names: Names) -> None:
        """Create the lake tables of a table without events, empty: a view may read a table that has no rows yet."""
        if self._commit.version(names.archive) is None:
            nothing = _schema(table, ARCHIVE_COLUMNS).empty_table()
            self._commit.archive(names.archive, nothing, schema_id=table.schema_id)
        if names.mirror and self._commit.version(names.mirror) is None:
            rows = _schema(table, MIRROR_COLUMNS).append(pa.field(DELETED, pa.bool_())).empty_table()
            self._commit.mirror(names.mirror, rows, table.key, schema_id=table.schema_id)
        if names.history and self._commit.version(names.history) is None:
            rows = _schema(table, HISTORY_COLUMNS).empty_table()
            closes = rows.select([*table.key, VALID_TO_LSN, VALID_TO])
            self._commit.history(names.history, closes, rows, table.key, schema_id=table.schema_id)

    def write(self, rows: RowOutputs, table: LakeTable, before: LakeTable | None, names: Names) -> None:
        """Apply the events of one topic.

        Args:
            rows: its records.
            table: the form of the rows.
            before: the form of the lake tables; None if there are none yet.
            names: the lake tables.

        Raises:
            SinkUnfit: the table cannot hold a value; nothing was written.
        """
        events, unchanged = rows.checked(table)
        step = evolve(before, table) if before is not None else None
        if step is not None and before is not None:
            self._reshape(table, before, step, names)
        self._commit.archive(names.archive, events.archive(), schema_id=table.schema_id)
        if not names.mirror:
            return
        if unchanged or self._repairs:
            events = self._filled(events, table, names, unchanged)
            events.released_by(self._used)
        # Rows are filled from the mirror of the previous cut, so the mirror's own commit comes last.
        if names.history:
            closes, versions = events.history(table)
            self._commit.history(names.history, closes, versions, table.key, schema_id=table.schema_id)
        self._commit.mirror(names.mirror, events.mirror(table), table.key, schema_id=table.schema_id)

    def _filled(self, events: RowOutputs, table: LakeTable, names: Names, columns: Collection[str]) -> RowOutputs:
        """Return the same events with the values that PostgreSQL did not send, and where repairs end versions."""
        previous, version = None, self._commit.version(names.mirror)
        if version is not None:
            previous = widened(frame_of(self._spark, self._location, names.mirror, version), table)

        def fill(flat: DataFrame) -> DataFrame:
            whole = changes.fill(changes.unflat(flat, table), previous, table, columns)
            return changes.sequenced(whole, table, self._repairs, previous)

        return events.filled(fill)

    def _reshape(self, table: LakeTable, before: LakeTable, step: Evolution, names: Names) -> None:
        """Give the lake tables the new form after DDL, with the values they have."""
        if step.key_changed:
            raise SinkUnfit(
                f"the key of {table.table} changed from {', '.join(before.key)} to {', '.join(table.key)}",
                hint="rebuild this table: stop the sink and remove its mirror and history, or use another folder",
                table=table.table,
            )
        # An archive keeps dropped columns. Only a column whose type changed is rewritten, and one whose name another
        # column has now.
        archive = partial(_archived, table=table, step=step)
        version = self._commit.version(names.archive)
        if version is not None:
            stored = self._tables.schema(names.archive, version)
            if archive(stored.empty_table()).schema != stored:
                self._rewrite(names.archive, table, archive, casts=any(source.cast for source in step.sources))
        if adds_only(step, table):
            return  # the next commit adds the columns; readers take rows without them as null
        for name, own in ((names.mirror, MIRROR_COLUMNS), (names.history, HISTORY_COLUMNS)):
            if name:
                shape = partial(_shaped, table=table, step=step, own=own)
                self._rewrite(name, table, shape, casts=any(source.cast for source in step.sources))

    def _rewrite(self, name: str, table: LakeTable, shape: Callable[[pa.Table], pa.Table], *, casts: bool) -> None:
        """Rewrite a lake table, some rows at a time, because it may be larger than memory.

        With `casts` it is read twice: a value that does not fit is refused, in our own words, before anything is
        written.
        """
        version = self._commit.version(name)
        if version is None:
            return
        schema = shape(self._tables.schema(name, version).empty_table()).schema
        if self._in_frames:
            frame = frame_of(self._spark, self._location, name, version)
            rows = Frame(shaped(frame, shape, schema, casts=casts))
            self._commit.reshape(name, rows, schema_id=table.schema_id)
            return
        if casts:
            for part in self._tables.parts(name, version):
                shape(part)
        batches = (batch for part in self._tables.parts(name, version) for batch in shape(part).to_batches())
        rows = pa.RecordBatchReader.from_batches(schema, batches)
        self._commit.reshape(name, rows, schema_id=table.schema_id)


def _schema(table: LakeTable, own: Sequence[str]) -> pa.Schema:
    fields = [pa.field(column.name, _arrow(column.type)) for column in table.columns]
    return pa.schema([*fields, *(pa.field(name, _OWN[name]) for name in own)])


def widened(frame: DataFrame, table: LakeTable) -> DataFrame:
    """Add the columns of `table` that came later, as null."""
    known = set(frame.columns)
    missing = {column.name: fn.lit(None).cast(column.type) for column in table.columns if column.name not in known}
    return frame.withColumns(missing) if missing else frame


def _archived(rows: pa.Table, table: LakeTable, step: Evolution) -> pa.Table:
    """Return rows of an archive to which rows of the new form can be added.

    A column whose type changed gets the new type. A dropped column whose name came back with another type is set aside
    under a name of its own. Lake tables do not distinguish case, so neither does the comparison of names.
    """
    stored = {field.name.lower(): field for field in rows.schema}
    for column, source in zip(table.columns, step.sources, strict=True):
        field, kind = stored.get(column.name.lower()), _arrow(column.type)
        if field is None or (field.name, field.type) == (column.name, kind):
            continue
        index = rows.schema.get_field_index(field.name)
        if source.name is not None and source.name.lower() == field.name.lower():
            values = _cast(rows[field.name], kind, table, column.name) if source.cast else rows[field.name]
            rows = rows.set_column(index, column.name, values)
        elif field.type == kind:
            rows = rows.set_column(index, column.name, rows[field.name])
        else:
            rows = _set_aside(rows, index, field)
    return rows


def _set_aside(rows: pa.Table, index: int, field: pa.Field) -> pa.Table:
    """Rename a column after its type. If that name exists, it is the same column, dropped earlier with that type."""
    name = f"_dropped_{field.name}_{re.sub('[^a-z0-9]+', '_', str(field.type)).strip('_')}"
    earlier = rows.schema.get_field_index(name)
    if earlier < 0:
        return rows.set_column(index, name, rows[field.name])
    both = pc.coalesce(rows[name], rows[field.name])
    return rows.set_column(earlier, name, both).remove_column(index)


def _shaped(rows: pa.Table, table: LakeTable, step: Evolution, own: Sequence[str]) -> pa.Table:
    """Return old rows with the columns of the new form. The committer adds its own columns."""
    columns = {}
    for column, source in zip(table.columns, step.sources, strict=True):
        kind = _arrow(column.type)
        if source.name is None:
            columns[column.name] = pa.nulls(rows.num_rows, kind)
        else:
            old = rows[source.name]
            columns[column.name] = _cast(old, kind, table, column.name) if source.cast else old
    return pa.table(columns | {name: rows[name] for name in own})


def _cast(values: pa.ChunkedArray, kind: pa.DataType, table: LakeTable, column: str) -> pa.ChunkedArray:
    try:
        return pc.cast(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SinkUnfit(
            f"values of {table.table}.{column} do not fit its new type",
            hint="the table was rewritten by an expression; rebuild its mirror",
            table=table.table,
            column=column,
        ) from error


def _arrow(ddl: str) -> pa.DataType:
    """Return Arrow's type for Spark's DDL, as toArrow does."""
    if ddl.startswith("decimal("):
        precision, scale = (int(part) for part in ddl[8:-1].split(","))
        return pa.decimal128(precision, scale)
    return _DDL[ddl]
