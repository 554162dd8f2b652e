"""Distributes the changes of a table to its files: one task per file, and new files for what no file takes.

A file takes new keys of its range if some of its rows change, or if it is small. Whether some change is known only to
the task if files were chosen by their ranges. It then reports what it left, and these rows go to new files, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from sinks.warehouse.delta.table_files import FILE_ROWS_MAX
from sinks.warehouse.distributed.executor_jobs import AT, ROW, per_file
from sinks.warehouse.distributed.row_files import HOME, are_apart, by_range, located, with_homes
from sinks.warehouse.spark.held_rows import freed_on_error, kept

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession

    from sinks.warehouse.delta.key_ranges import FileRange
    from sinks.warehouse.distributed.executor_jobs import FileTask
    from sinks.warehouse.distributed.file_tasks import Report, TableFiles

CHANGES_MAX: Final = 4 * FILE_ROWS_MAX
"""Changes of one file that its task gets by the file's range. With more of them, only those are sent that match."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The changes of a cut by file: `ROW`, `AT` for a row that changes a file, `HOME` for a new one. `free` them."""

    rows: DataFrame
    counts: Counter[tuple[int | None, int | None]]
    free: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What tasks did: the reports of rewritten files by their number, and the rows that go to new files."""

    done: dict[int, Report]
    rest: DataFrame
    left: int


def placed(
    spark: SparkSession,
    opened: DeltaTable,
    rows: DataFrame,
    files: TableFiles,
    ranges: Sequence[FileRange],
    parts: Callable[[DataFrame], DataFrame],
) -> Placed:
    """Find the files of changes.

    Args:
        spark: the session.
        opened: the version to change.
        rows: `ROW`, each key once and never null; read twice, so persist it.
        files: its table.
        ranges: its files, from `sinks.warehouse.delta.key_ranges.ranges_of`.
        parts: gets `rows` with `AT` and `HOME`, and returns what tasks need, with the same columns.
    """
    kind = files.schema.field(files.key[0]).type
    if are_apart(ranges, kind):
        found = _counted(parts(by_range(rows, files.key, ranges)))
        if max((sum(_of(found.counts, at)) for at in range(len(ranges))), default=0) <= CHANGES_MAX:
            return found
        found.free()
    joined = located(spark, files.location, files.table, opened, rows, files.key, ranges)
    return _counted(parts(with_homes(joined, files.key, ranges, kind)))


def rewritten(
    placed: Placed, files: TableFiles, ranges: Sequence[FileRange], task: FileTask, is_new: Column
) -> Rewritten:
    """Rewrite the files that have changes, with the new rows that they take.

    Args:
        placed: from `placed`.
        files: the table.
        ranges: its files.
        task: writes one file.
        is_new: whether a `ROW` adds a row, if its file does not have the key.
    """
    matching = {at for at, _ in placed.counts if at is not None}
    fresh = {home: count for (at, home), count in placed.counts.items() if at is None}
    housed = taking_new(fresh, matching, files, ranges)
    is_housed = fn.coalesce(fn.col(HOME).isin(sorted(housed)), fn.lit(0).cast("boolean"))
    here = placed.rows.where(fn.col(AT).isNotNull() | is_housed).select(ROW, fn.coalesce(AT, HOME).alias(AT))
    targets = {number: ranges[number] for number in matching | housed}
    reports = per_file(here, files, targets, task) if targets else {}
    left = {number: report.left for number, report in reports.items() if report.left}
    rest = placed.rows.where(fn.col(AT).isNull() & ~is_housed).select(ROW)
    if left:
        rest = rest.union(here.where(fn.col(AT).isin(sorted(left)) & is_new).select(ROW))
    done = {number: report for number, report in reports.items() if report.left is None}
    count = sum(count for home, count in fresh.items() if home not in housed)
    return Rewritten(done, rest, count + sum(left.values()))


def taking_new(
    fresh: Mapping[int | None, int], matching: Collection[int], files: TableFiles, ranges: Sequence[FileRange]
) -> set[int]:
    """Return the files that take the new rows of their range: not too many, and the file is rewritten or is small.

    Args:
        fresh: number of new rows by file, None for those of no file.
        matching: the files that are rewritten anyway.
        files: the table.
        ranges: its files.
    """
    return {
        home
        for home, count in fresh.items()
        if home is not None and count <= FILE_ROWS_MAX and (home in matching or ranges[home].size < files.small_bytes)
    }


def _counted(changes: DataFrame) -> Placed:
    """Count how many rows change each file, and how many new ones belong to the range of each."""
    found, free = kept(changes)
    home = fn.when(fn.col(AT).isNull(), fn.col(HOME)).alias(HOME)
    with freed_on_error(free):
        rows = found.select(AT, home).groupBy(AT, HOME).count().collect()
    return Placed(found, Counter({(row[AT], row[HOME]): row["count"] for row in rows}), free)


def _of(counts: Counter[tuple[int | None, int | None]], number: int) -> list[int]:
    return [count for (at, _), count in counts.items() if at == number]
