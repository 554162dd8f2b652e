"""Writes Delta tables in Spark's executors: the committer of a cluster, where no row passes through the driver.

An executor rewrites one file with its changes, by the same code as `sinks.warehouse.delta.deltars`, and reports what it
wrote. The driver commits the reports through deltalake, with the same identifiers. Rows that are in the driver already,
and statements that this module lacks, are written as on one machine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import to_arrow_schema

from cdc.errors import InvariantError
from sinks.warehouse.delta.commit_once import note_columns
from sinks.warehouse.delta.delta_table import (
    STATISTICS_COLUMNS,
    TARGET_FILE_BYTES,
    adds_columns,
    columns_of,
    configuration,
    indexed_columns,
    row_count,
    without_open,
)
from sinks.warehouse.delta.deltars import DeltaRs, commit_actions, here
from sinks.warehouse.delta.key_ranges import FileRange, ranges_of
from sinks.warehouse.delta.packing import HOOKS, is_packed, packed
from sinks.warehouse.delta.stored_types import stored_schema
from sinks.warehouse.delta.table_files import FILE_ROWS_MAX, SMALL_BYTES, Action, file_rows, removed
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.distributed.executor_jobs import AT, ROW, in_one_task, new_files, written_files
from sinks.warehouse.distributed.file_tasks import (
    KEY,
    NEW,
    Report,
    TableFiles,
    close_file,
    close_table,
    merge_file,
    merge_table,
    replace_table,
    write_new,
    write_versions,
)
from sinks.warehouse.distributed.key_replacement import replaced_rows
from sinks.warehouse.distributed.placement import placed, rewritten
from sinks.warehouse.distributed.row_files import HOME, with_homes
from sinks.warehouse.lake.committer import DELETED, OPEN, VALID_TO_LSN, Changes, Frame, Rows, Txn
from sinks.warehouse.lake.location import Where
from sinks.warehouse.lake.store_errors import translating_store_errors
from sinks.warehouse.lake.table_naming import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.distributed.executor_jobs import TableTask

ONE_TASK_CHANGES: Final = 3
"""Changes per rows of a file. With at most so many, one task writes all changes of a small table. More tasks take
longer there: counting changes, distributing them and collecting the rest are a query each, of 0.3 s or more."""
ONE_TASK_BYTES: Final = 16 * TARGET_FILE_BYTES
"""Size of the files that such a task may have to rewrite."""


class SparkDelta(DeltaRs):
    """Implements `sinks.warehouse.lake.committer.Committer` with Spark and deltalake.

    Args:
        spark: the session whose executors write.
        where: location of the lake, which executors reach too.
        storage: options of the object store, passed to deltalake unchanged.
    """

    def __init__(self, spark: SparkSession, where: Where, storage: Mapping[str, str] | None = None) -> None:
        super().__init__(where, storage)
        self._spark = spark

    def append(self, table: str, rows: Changes, *, base: int | None, txn: Txn, partition_by: Sequence[str] = ()) -> int:
        """See `Committer`."""
        if isinstance(rows, pa.Table) or partition_by:
            return super().append(table, rows, base=base, txn=txn, partition_by=partition_by)
        base = self._widened(table, _schema(rows.rows), base, txn)
        return self._once(table, base, txn, partial(self._append_frame, table, rows))

    def overwrite(
        self, table: str, rows: Rows | Frame, *, base: int | None, txn: Txn, sort_by: Sequence[str] = ()
    ) -> int:
        """See `Committer`."""
        if isinstance(rows, pa.Table | pa.RecordBatchReader):
            return super().overwrite(table, rows, base=base, txn=txn, sort_by=sort_by)
        return self._once(table, base, txn, partial(self._overwrite_frame, table, rows, tuple(sort_by)))

    def replace_keys(self, table: str, keys: Changes, rows: Changes, *, base: int | None, txn: Txn) -> int:
        """See `Committer`."""
        if isinstance(keys, pa.Table) or isinstance(rows, pa.Table):
            return super().replace_keys(table, keys, rows, base=base, txn=txn)
        return self._once(table, base, txn, partial(self._replace_frame, table, keys, rows))

    def merge(self, table: str, rows: Changes, key: Sequence[str], *, base: int | None, txn: Txn) -> int:
        """See `Committer`."""
        if isinstance(rows, pa.Table):
            return super().merge(table, here(rows), key, base=base, txn=txn)
        base = self._widened(table, _schema(rows.rows.drop(DELETED)), base, txn)
        return self._once(table, base, txn, partial(self._merge_frame, table, rows, tuple(key)))

    def close_and_append(
        self, table: str, closes: Changes, rows: Changes, key: Sequence[str], *, base: int | None, txn: Txn
    ) -> int:
        """See `Committer`."""
        if isinstance(closes, pa.Table) or isinstance(rows, pa.Table):
            return super().close_and_append(table, here(closes), here(rows), key, base=base, txn=txn)
        base = self._widened(table, _with_open(_schema(rows.rows)), base, txn)
        return self._once(table, base, txn, partial(self._close_frame, table, closes, rows, tuple(key)))

    def ranges(self, table: str, version: int, *, finer: int = 0) -> int:
        """See `TableLoads`."""
        with translating_store_errors(table):
            opened = self._at(table, version)
            files = ranges_of(opened, columns_of(opened).names[0])
            rows = file_rows(self._files(table, columns_of(opened), (), opened, ()).target(), files) >> finer
        return max(1, -(-sum(file.rows or 0 for file in files) // max(rows, 1)))

    def load(
        self,
        table: str,
        rows: Callable[[], DataFrame],
        key: Sequence[str],
        *,
        is_history: bool,
        base: int | None,
        txn: Txn,
    ) -> int:
        """See `TableLoads`."""
        write = partial(self._load_frame, table, rows, tuple(key), is_history=is_history)
        return self._once(table, base, txn, write)

    def compact(self, table: str, *, base: int, txn: Txn, sort_by: Sequence[str] = ()) -> int:
        """See `Committer`."""
        if not sort_by:
            return self._once(table, base, txn, partial(self._pack_frame, table))
        return self._once(table, base, txn, partial(self._sort_frame, table, tuple(sort_by)))

    def _append_frame(self, table: str, found: Frame, opened: DeltaTable | None, properties: CommitProperties) -> None:
        rows, count, schema = found.rows, found.limit, _schema(found.rows)
        if count or opened is None:
            # Rows of earlier files show how many make a file: a task holds the rows of a few.
            stored = [] if opened is None else ranges_of(opened, columns_of(opened).names[0])
            files = self._files(table, schema, (), opened, stored)
            reports = new_files(_in_row(rows), files, write_new, rows=count) if count else []
            self._commit_new(table, schema, (), opened, _adds(reports), properties)

    def _load_frame(
        self,
        table: str,
        found: Callable[[], DataFrame],
        key: tuple[str, ...],
        opened: DeltaTable | None,
        properties: CommitProperties,
        *,
        is_history: bool,
    ) -> None:
        rows = found()
        schema = _schema(rows)
        files = replace(self._files(table, schema, key, opened, ()), schema=schema)
        reports = written_files(_in_row(rows), files, write_versions if is_history else write_new)
        stored = _with_open(schema) if is_history else schema
        if opened is None:
            partition_by = (OPEN,) if is_history else ()
            self._commit_new(table, stored, key, None, _adds(reports), properties, partition_by=partition_by)
        else:
            _replace_all(opened, stored, _adds(reports), properties)

    def _overwrite_frame(
        self,
        table: str,
        found: Frame,
        sort_by: tuple[str, ...],
        opened: DeltaTable | None,
        properties: CommitProperties,
    ) -> None:
        rows, count, schema = found.rows, found.limit, _schema(found.rows)
        is_history = opened is not None and OPEN in opened.metadata().partition_columns
        stored = self._files(table, schema, sort_by, opened, ())
        files = replace(stored, schema=without_open(schema), key=())  # the order need not identify rows
        task = write_versions if is_history else write_new
        reports = new_files(_in_row(rows), files, task, rows=count, sort_by=sort_by) if count else []
        if opened is None:
            self._commit_new(table, schema, sort_by, None, _adds(reports), properties)
            return
        _replace_all(opened, _with_open(schema) if is_history else schema, _adds(reports), properties)

    def _replace_frame(
        self, table: str, keys: Frame, rows: Frame, opened: DeltaTable | None, properties: CommitProperties
    ) -> None:
        if opened is None:
            raise InvariantError(f"rows of {table} are replaced, but it does not exist")
        adds_columns(table, opened, _schema(rows.rows).empty_table())
        key = tuple(keys.rows.columns)
        ranges = ranges_of(opened, key[0])
        files = self._files(table, columns_of(opened), key, opened, ranges)
        report = _by_one_task(_parts(keys.rows, rows.rows), keys.limit + rows.limit, files, ranges, replace_table)
        if report is not None:
            commit_actions(opened, _actions(report, ranges), properties)
            return
        done, added = replaced_rows(self._spark, opened, files, ranges, keys.rows, rows.rows)
        actions = [removed(ranges[number]) for number in done]
        commit_actions(opened, [*actions, *_adds(done.values()), *_adds(added)], properties)

    def _merge_frame(
        self,
        table: str,
        changes: Frame,
        key: tuple[str, ...],
        opened: DeltaTable | None,
        properties: CommitProperties,
    ) -> None:
        rows = changes.rows
        live = rows.where(~fn.col(DELETED)).drop(DELETED)
        schema = _schema(live)
        ranges = [] if opened is None else ranges_of(opened, key[0])
        files = self._files(table, schema, key, opened, ranges)
        report = _by_one_task(_in_row(rows), changes.limit, files, ranges, merge_table)
        if report is not None:
            note_columns(properties, report.columns)
            self._commit_new(table, schema, key, opened, _actions(report, ranges), properties)
            return
        if opened is None or row_count(opened) == 0:
            count = live.count()
            reports = new_files(_in_row(live), files, write_new, rows=count, sort_by=key) if count else []
            self._commit_new(table, schema, key, opened, _adds(reports), properties)
            return
        is_live = ~fn.col(ROW)[DELETED]
        found = placed(
            self._spark,
            opened,
            _in_row(rows),
            files,
            ranges,
            lambda frame: frame.where(fn.col(AT).isNotNull() | is_live),
        )
        try:
            work = rewritten(found, files, ranges, merge_file, is_live)
            added = new_files(work.rest, files, write_new, rows=work.left, sort_by=key) if work.left else []
        finally:
            found.free()
        done = work.done
        columns = [report.columns for report in done.values() if report.columns is not None]
        is_same_rows = not added and len(columns) == len(done)
        note_columns(properties, frozenset().union(*columns) if is_same_rows else None)
        actions = [removed(ranges[number]) for number in done]
        commit_actions(opened, [*actions, *_adds(done.values()), *_adds(added)], properties)

    def _close_frame(
        self,
        table: str,
        ends: Frame,
        versions: Frame,
        key: tuple[str, ...],
        opened: DeltaTable | None,
        properties: CommitProperties,
    ) -> None:
        closes, rows, schema = ends.rows, versions.rows, _schema(versions.rows)
        ranges = [] if opened is None else [file for file in ranges_of(opened, key[0]) if f"{OPEN}=true/" in file.path]
        files = self._files(table, schema, key, opened, ranges)
        if opened is not None:
            adds_columns(table, opened, _schema(closes).empty_table())
        report = _by_one_task(_parts(closes, rows), ends.limit + versions.limit, files, ranges, close_table)
        if report is not None:
            actions = _actions(report, ranges, {OPEN: "true"})
            self._commit_new(table, _with_open(schema), key, opened, actions, properties, partition_by=(OPEN,))
            return
        if opened is None:
            count = rows.count()
            new = new_files(_in_row(rows), files, write_versions, rows=count, sort_by=key) if count else []
            self._commit_new(table, _with_open(schema), key, None, _adds(new), properties, partition_by=(OPEN,))
            return
        added = _homed_versions(rows, files, ranges)

        def parts(found: DataFrame) -> DataFrame:
            ends = found.where(fn.col(AT).isNotNull()).select(fn.col(ROW).alias(KEY), AT, HOME)
            both = ends.unionByName(added, allowMissingColumns=True)
            return both.select(fn.struct(KEY, NEW).alias(ROW), AT, HOME)

        found = placed(self._spark, opened, _in_row(closes), files, ranges, parts)
        try:
            work = rewritten(found, files, ranges, close_file, fn.col(ROW)[NEW].isNotNull())
            rest = work.rest.select(fn.col(ROW)[NEW].alias(ROW))
            new = new_files(rest, files, write_versions, rows=work.left, sort_by=key) if work.left else []
        finally:
            found.free()
        actions = [removed(ranges[number], {OPEN: "true"}) for number in work.done]
        commit_actions(opened, [*actions, *_adds(work.done.values()), *_adds(new)], properties)

    def _sort_frame(
        self, table: str, key: tuple[str, ...], opened: DeltaTable | None, properties: CommitProperties
    ) -> None:
        if opened is None or is_packed(opened, key):
            return
        partition = {OPEN: "true"} if OPEN in opened.metadata().partition_columns else {}
        ranges = [file for file in ranges_of(opened, key[0]) if not partition or f"{OPEN}=true/" in file.path]
        if not ranges:
            return
        only = frozenset(file.path for file in ranges)
        rows = frame_of(self._spark, self._location, table, opened.version(), only=only).drop(OPEN)
        files = self._files(table, columns_of(opened), key, opened, ranges)
        task, count = (write_versions if partition else write_new), sum(file.rows or 0 for file in ranges)
        new = new_files(_in_row(rows), files, task, rows=count, sort_by=key)
        note_columns(properties, ())
        commit_actions(opened, [*(removed(file, partition) for file in ranges), *_adds(new)], properties)

    def _pack_frame(self, table: str, opened: DeltaTable | None, properties: CommitProperties) -> None:
        """Write the rows of small files to few, open and closed versions of a history apart."""
        if opened is None:
            return
        partitions = opened.metadata().partition_columns
        if partitions not in ([], [OPEN]):
            packed((), opened, properties)  # executors write no such files
            return
        schema, is_history = columns_of(opened), OPEN in partitions
        ranges = ranges_of(opened, schema.names[0])
        small: list[tuple[FileRange, dict[str, str]]] = []
        for partition in ({OPEN: "true"}, {OPEN: "false"}) if is_history else ({},):
            folder = "".join(f"{column}={value}/" for column, value in partition.items())
            here = [file for file in ranges if file.path.startswith(folder) and file.size < TARGET_FILE_BYTES]
            small += [(file, partition) for file in here] if len(here) > 1 else []
        if not small:
            return
        files = self._files(table, schema, (), opened, [file for file, _ in small])
        only = frozenset(file.path for file, _ in small)
        rows = frame_of(self._spark, self._location, table, opened.version(), only=only).drop(OPEN)
        count = sum(file.rows or 0 for file, _ in small)
        new = new_files(_in_row(rows), files, write_versions if is_history else write_new, rows=count)
        note_columns(properties, ())
        commit_actions(opened, [*(removed(file, partition) for file, partition in small), *_adds(new)], properties)

    def _files(
        self,
        table: str,
        schema: pa.Schema,
        key: tuple[str, ...],
        opened: DeltaTable | None,
        ranges: Sequence[FileRange],
    ) -> TableFiles:
        """Return what executors need of a table: as it is, or as `_commit_new` will create it."""
        stored = schema if opened is None else columns_of(opened)
        files = TableFiles(
            location=self._location,
            table=table,
            schema=without_open(stored),
            key=key,
            file_bytes=TARGET_FILE_BYTES,
            file_rows=FILE_ROWS_MAX,
            indexed=_indexed(schema, key) if opened is None else indexed_columns(opened),
            small_bytes=SMALL_BYTES,
        )
        return replace(files, file_rows=file_rows(files.target(), ranges)) if ranges else files

    def _commit_new(
        self,
        table: str,
        schema: pa.Schema,
        key: Sequence[str],
        opened: DeltaTable | None,
        actions: Sequence[Action],
        properties: CommitProperties,
        *,
        partition_by: Sequence[str] = (),
    ) -> None:
        """Commit files. Creates the table if it does not exist."""
        if opened is not None:
            commit_actions(opened, [*actions], properties)
            return
        if self._location.folder is not None:
            (self._location.folder / table).mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(
            self._uri(table),
            Schema.from_arrow(schema),
            [action for action in actions if isinstance(action, AddAction)],
            mode="error",
            partition_by=list(partition_by),
            configuration=configuration(schema.names, key),
            storage_options=self._options or None,
            commit_properties=properties,
            post_commithook_properties=HOOKS,
        )


def _replace_all(opened: DeltaTable, schema: pa.Schema, actions: list[AddAction], properties: CommitProperties) -> None:
    """Commit these files and columns in place of all others."""
    opened.create_write_transaction(
        [*actions],
        mode="overwrite",
        schema=Schema.from_arrow(schema),
        partition_by=[OPEN] if OPEN in schema.names else None,
        commit_properties=properties,
        post_commithook_properties=HOOKS,
    )


def _by_one_task(
    rows: DataFrame, count: int, files: TableFiles, ranges: Sequence[FileRange], task: TableTask
) -> Report | None:
    """Write all changes of a table in one task, if they are few enough to hold and its files small enough to rewrite.

    Args:
        rows: `ROW`.
        count: at most so many rows.
        files: the table.
        ranges: its files.
        task: gets all rows and all files.
    """
    if count > ONE_TASK_CHANGES * files.file_rows or sum(file.size for file in ranges) > ONE_TASK_BYTES:
        return None
    return in_one_task(rows, files, partial(task, ranges))


def _actions(report: Report, ranges: Sequence[FileRange], partition: dict[str, str] | None = None) -> list[Action]:
    """Return the actions of a task that chose its files."""
    known = {file.path: file for file in ranges}
    return [*(removed(known[path], partition) for path in report.removed), *_adds([report])]


def _adds(reports: Iterable[Report]) -> list[AddAction]:
    return [added.action for report in reports for added in report.added]


def _in_row(rows: DataFrame) -> DataFrame:
    return rows.select(fn.struct(*map(quoted, rows.columns)).alias(ROW))


def _parts(keys: DataFrame, new: DataFrame) -> DataFrame:
    """Return `ROW` with `KEY` for each of the keys and `NEW` for each new row."""
    one, other = (_in_row(rows).select(fn.col(ROW).alias(name)) for name, rows in ((KEY, keys), (NEW, new)))
    return one.unionByName(other, allowMissingColumns=True).select(fn.struct(KEY, NEW).alias(ROW))


def _homed_versions(rows: DataFrame, files: TableFiles, ranges: Sequence[FileRange]) -> DataFrame:
    """Return new rows of a history as `NEW`, with `HOME` for open ones: closed ones go to files of their own."""
    homed = with_homes(_in_row(rows), files.key, ranges, files.schema.field(files.key[0]).type)
    home = fn.when(fn.col(ROW)[VALID_TO_LSN].isNull(), fn.col(HOME)).alias(HOME)
    return homed.select(fn.col(ROW).alias(NEW), fn.lit(None).cast("int").alias(AT), home)


def _schema(rows: DataFrame) -> pa.Schema:
    """Return the columns of a frame in the types that a table stores. Runs no job."""
    return stored_schema(to_arrow_schema(rows.schema, timezone="UTC"))


def _with_open(schema: pa.Schema) -> pa.Schema:
    return schema if OPEN in schema.names else schema.append(pa.field(OPEN, pa.bool_()))


def _indexed(schema: pa.Schema, key: Sequence[str]) -> int:
    """Return how many columns of a new table have statistics (`configuration`)."""
    ends: list[int] = [1 + schema.names.index(name) for name in key]
    return max([STATISTICS_COLUMNS, *ends])
