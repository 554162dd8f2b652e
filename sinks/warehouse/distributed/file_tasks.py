"""Runs in Spark's executors: reads and writes single files of a table, and returns small reports about them.

The driver commits what the reports name. A file of a task that failed, or that ran twice, is in no report and so in no
commit; `TableUpkeep.vacuum` deletes it. Nothing here may use a Spark session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction, RemoveAction

from cdc.errors import InvariantError, LakeDamaged, LakeUnready, SinkUnfit, TailraceError
from sinks.warehouse.delta.key_ranges import FileRange
from sinks.warehouse.delta.merge import rewrite, rewrite_history
from sinks.warehouse.delta.object_files import files_to_write
from sinks.warehouse.delta.patch import Match, among, check_once, closed, match, merged, replaced, whole
from sinks.warehouse.delta.replace import replace
from sinks.warehouse.delta.stored_types import plain
from sinks.warehouse.delta.table_files import (
    Action,
    Target,
    Writing,
    open_file,
    partition_folder,
    rows_in,
    written,
    written_again,
)
from sinks.warehouse.lake.committer import DELETED, OPEN, VALID_TO_LSN
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.store_errors import translating_store_errors
from sinks.warehouse.spark.arrow_tasks import table_of_structs

KEY: Final = "key"
NEW: Final = "new"
_PROBLEMS: Final = {one.__name__: one for one in (InvariantError, LakeDamaged, LakeUnready, SinkUnfit)}


class Added(msgspec.Struct, frozen=True):
    """A file that a task wrote, as the log names it."""

    path: str
    size: int
    stats: str
    partition: dict[str, str]
    written_ms: int

    @property
    def action(self) -> AddAction:
        """The action of the commit."""
        return AddAction(
            path=self.path,
            size=self.size,
            partition_values=self.partition,
            modification_time=self.written_ms,
            data_change=True,
            stats=self.stats,
        )


class Report(msgspec.Struct, frozen=True):
    """What a task did.

    Attributes:
        added: the files it wrote.
        removed: the files that these replace, if the task chose them itself.
        columns: whose values changed; None if rows were added or deleted.
        left: number of new rows that the task did not write, because the file has none of the keys and is not small, or
            of all rows, because they are too large for one task; nothing was written then. Else None.
        problem: class and message of an error that a repetition of the task does not remove; empty if there is none.
    """

    added: tuple[Added, ...] = ()
    removed: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    left: int | None = None
    problem: tuple[str, ...] = ()

    def check(self, table: str) -> Report:
        """Return the report itself. Raises the error that the task had."""
        if self.problem:
            name, message, hint = self.problem
            raise _PROBLEMS[name](message, hint=hint, table=table)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """A table whose files tasks read and write. It is sent to executors, with the options of the store.

    Attributes:
        location: of the lake.
        table: as the manifest names it.
        schema: columns of the files, in their stored types.
        key: names of the key's columns; empty for an archive.
        file_bytes: target size of files.
        file_rows: rows of a new file.
        indexed: number of columns with statistics.
        small_bytes: a smaller file takes new rows even if none of its own changed.
    """

    location: Location
    table: str
    schema: pa.Schema
    key: tuple[str, ...]
    file_bytes: int
    file_rows: int
    indexed: int
    small_bytes: int

    def target(self, partition: dict[str, str] | None = None, files: Sequence[FileRange] = ()) -> Target:
        """Return what `sinks.warehouse.delta.table_files` writes to, with the files to change."""
        return Target(
            storage=files_to_write(self.location, self.table, partition_folder(partition or {})),
            schema=self.schema,
            files=files,
            key=self.key,
            file_bytes=self.file_bytes,
            indexed=self.indexed,
            small_bytes=self.small_bytes,
            partition=partition or {},
        )

    @property
    def keys(self) -> pa.Schema:
        """The key's columns."""
        return pa.schema([self.schema.field(name) for name in self.key])

    def is_rewritten(self, file: FileRange, matched: Match, fresh: pa.Table) -> bool:
        """Whether a file is written again: some of its rows changed, or it is small and takes new ones."""
        return bool(len(matched)) or (bool(fresh.num_rows) and file.size < self.small_bytes)

    def fitted(self, rows: pa.Table) -> pa.Table:
        """Return rows with all columns of the files; missing ones are null."""
        there = set(rows.column_names)
        columns = [
            rows[one.name].cast(one.type) if one.name in there else pa.nulls(rows.num_rows, one.type)
            for one in self.schema
        ]
        return pa.table(columns, schema=self.schema)


def merge_file(files: TableFiles, file: FileRange, changes: pa.Table) -> Report:
    """Rewrite a file with these changes; those with new keys are added to it."""
    check_once(files.table, changes, files.key)
    target = files.target()
    with open_file(target.storage, file) as opened:
        matched = match(rows_in(opened, files.keys), changes, files.key)
        is_new = pc.invert(among(matched.changes.cast(pa.int64()), changes.num_rows))
        fresh = changes.filter(pc.and_not(is_new, changes[DELETED].combine_chunks()))
        if not files.is_rewritten(file, matched, fresh):
            return Report(left=fresh.num_rows)
        stored, footer = rows_in(opened, files.schema), opened.metadata
    found = merged(stored, changes, matched, fresh if fresh.num_rows else None, files.key)
    added = _added(written_again(target, file, footer, found.rows))
    return Report(added, columns=None if found.has_gone or fresh.num_rows else tuple(sorted(found.columns)))


def replace_file(files: TableFiles, file: FileRange, parts: pa.Table) -> Report:
    """Rewrite a file without the rows of some keys, and with others in their place.

    `parts` has `KEY`, a key to remove, and `NEW`, a row to add; one of them is null in each row.
    """
    keys, fresh = _divided(parts)
    target = files.target()
    with open_file(target.storage, file) as opened:
        stored, footer = rows_in(opened, files.schema), opened.metadata
    keys = keys.cast(files.keys)
    rows = replaced(stored, keys, files.fitted(fresh), files.key)
    return Report(_added(written_again(target, file, footer, rows)))


def close_file(files: TableFiles, file: FileRange, parts: pa.Table) -> Report:
    """Rewrite a file of a history's open rows without those that end, and write these beside it.

    `parts` has `KEY`, a version to end, and `NEW`, an open row to add; one of them is null in each row.
    """
    closes, fresh = _divided(parts)
    check_once(files.table, closes, files.key)
    opens, ends = files.target({OPEN: "true"}), files.target({OPEN: "false"})
    with open_file(opens.storage, file) as opened:
        matched = match(rows_in(opened, files.keys), closes, files.key)
        if not files.is_rewritten(file, matched, fresh):
            return Report(left=fresh.num_rows)
        stored, footer = rows_in(opened, files.schema), opened.metadata
    found = closed(stored, closes, matched, files.fitted(fresh) if fresh.num_rows else None, files.key)
    return Report(
        _added(written_again(opens, file, footer, found.opens))
        + _added(written(ends, found.ended, Writing(files.file_rows)))
    )


def merge_table(ranges: Sequence[FileRange], files: TableFiles, changes: pa.Table) -> Report:
    """Merge all changes of a table, in whichever files have their keys."""
    check_once(files.table, changes, files.key)
    found = rewrite(files.target(files=ranges), changes)
    return _report(found.actions, None if found.columns is None else tuple(sorted(found.columns)))


def close_table(ranges: Sequence[FileRange], files: TableFiles, parts: pa.Table) -> Report:
    """Write all changes of a history; `parts` as of `close_file`, with closed rows in `NEW`, too."""
    closes, rows = _divided(parts)
    check_once(files.table, closes, files.key)
    opens = files.target({OPEN: "true"}, ranges)
    return _report(rewrite_history(opens, files.target({OPEN: "false"}), closes, files.fitted(rows)))


def replace_table(ranges: Sequence[FileRange], files: TableFiles, parts: pa.Table) -> Report:
    """Replace all rows of some keys of a table; `parts` as of `replace_file`."""
    keys, rows = _divided(parts)
    return _report(replace(files.target(files=ranges), keys.cast(files.keys), files.fitted(rows)))


def write_new(files: TableFiles, rows: pa.Table) -> Report:
    """Write rows to new files."""
    if files.key and OPEN not in rows.column_names:
        check_once(files.table, rows, files.key)
    return Report(_added(written(files.target(), files.fitted(rows), Writing(files.file_rows))))


def write_versions(files: TableFiles, rows: pa.Table) -> Report:
    """Write rows of a history to new files: open ones and others apart."""
    is_open = pc.is_null(rows[VALID_TO_LSN])
    added: tuple[Added, ...] = ()
    for value, here in (("true", is_open), ("false", pc.invert(is_open))):
        some = files.fitted(rows.filter(here))
        if some.num_rows:
            added += _added(written(files.target({OPEN: value}), some, Writing(files.file_rows)))
    return Report(added)


def reported(table: str, task: Callable[[pa.Table], Report], rows: pa.StructArray) -> str:
    """Run a task on rows of Spark. Returns its report as JSON; one with a problem instead of raising a known error."""
    try:
        with translating_store_errors(table):
            report = task(plain(table_of_structs(rows)))
    except TailraceError as error:
        if type(error).__name__ not in _PROBLEMS:
            raise
        report = Report(problem=(type(error).__name__, error.message, error.hint or ""))
    return msgspec.json.encode(report).decode()


def reported_parts(
    table: str,
    task: Callable[[pa.Table], Report],
    parts: Iterable[pa.StructArray],
    rows_max: int | None,
    *,
    bytes_max: int,
) -> Iterator[pa.Array]:
    """Run a task on rows of one partition. Yields as many values as rows: reports, then nulls.

    It gets `rows_max` rows at a time, or fewer that have about `bytes_max`. None is for all rows at once: if they have
    more bytes, it does not run, and the report has their number in `left`.
    """
    held: list[pa.StructArray] = []
    reports: list[str] = []
    owed = rows = size = 0
    for part in parts:
        if owed:
            yield pa.nulls(owed, pa.string())
        owed, rows, size = len(part), rows + len(part), size + part.nbytes
        held.append(part)
        if rows_max is None and size > bytes_max:
            held = []
        elif rows_max is not None and (rows >= rows_max or size >= bytes_max):
            reports.append(reported(table, task, pa.concat_arrays(held)))
            held, rows, size = [], 0, 0
    if any(map(len, held)):
        reports.append(reported(table, task, pa.concat_arrays(held)))
    elif rows:
        reports.append(msgspec.json.encode(Report(left=rows)).decode())
    if owed:
        text = f"[{','.join(reports)}]"
        yield pa.concat_arrays([pa.array([text], pa.string()), pa.nulls(owed - 1, pa.string())])


def _divided(parts: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows of `KEY` and of `NEW`."""
    keys, new = (table_of_structs(whole(parts[name]).drop_null()) for name in (KEY, NEW))
    return keys, new


def _report(actions: Sequence[Action], columns: tuple[str, ...] | None = None) -> Report:
    gone = tuple(one.path for one in actions if isinstance(one, RemoveAction))
    return Report(_added(actions), gone, columns)


def _added(actions: Iterable[Action]) -> tuple[Added, ...]:
    return tuple(
        Added(one.path, one.size, one.stats, dict(one.partition_values), one.modification_time)  # type: ignore[arg-type]
        for one in actions
        if isinstance(one, AddAction)
    )
