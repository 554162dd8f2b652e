"""Runs tasks of `file_tasks` in Spark's executors, and collects their reports. Nothing else reaches the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import functions as fn

from sinks.warehouse.distributed.file_tasks import Report, TableFiles, reported, reported_parts
from sinks.warehouse.spark.arrow_tasks import in_python

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from sinks.warehouse.delta.key_ranges import FileRange

    FileTask: TypeAlias = Callable[[TableFiles, FileRange, pa.Table], Report]
    NewTask: TypeAlias = Callable[[TableFiles, pa.Table], Report]
    TableTask: TypeAlias = Callable[[Sequence[FileRange], TableFiles, pa.Table], Report]

ROW: Final = "row"
"""Column with a table's row as a struct, so that no name of a table can collide with one of ours."""
AT: Final = "at"
"""Column with the number of a file."""
HELD_BYTES_MAX: Final = 1 << 30
"""Rows that a task holds; a column of text that is in one piece has at most twice as much."""
_HELD_FILES: Final = 4  # a task that writes new files holds at most this many files of rows
_TASKS_MAX: Final = 2_000  # of one job; a task of more files takes one after the other


def per_file(frame: DataFrame, files: TableFiles, ranges: Mapping[int, FileRange], task: FileTask) -> dict[int, Report]:
    """Run a task once for each file, with its rows. Returns the reports by number of the file.

    Args:
        frame: `ROW`, and `AT` with a number of `ranges`.
        files: the table.
        ranges: the files by number.
        task: gets the rows of a file at once.
    """
    known, table = dict(ranges), files.table

    def run(numbers: pa.Array, rows: pa.Array) -> str:
        return reported(table, partial(task, files, known[numbers[0].as_py()]), rows)

    # A number of partitions that is named is not reduced by adaptive execution: few rows may rewrite many files.
    spread = frame.repartition(max(1, min(len(known), _TASKS_MAX)), AT)
    found = spread.groupBy(AT).agg(in_python(run, "string")(AT, ROW).alias("report"))
    return {
        number: msgspec.json.decode(text, type=Report).check(table)
        for number, text in zip(*found.toArrow().to_pydict().values(), strict=True)
    }


def in_one_task(frame: DataFrame, files: TableFiles, task: NewTask) -> Report | None:
    """Run a task once with all rows of a frame of `ROW`, which are few. None if they are too large for that."""
    reports = _reports(frame.coalesce(1), files, task, None)
    report = reports[0] if reports else Report()
    return report if report.left is None else None


def new_files(
    frame: DataFrame, files: TableFiles, task: NewTask, *, rows: int, sort_by: Sequence[str] = ()
) -> list[Report]:
    """Write rows to new files.

    Args:
        frame: `ROW`.
        files: the table.
        task: gets rows of about one file, or of a few.
        rows: how many there are.
        sort_by: columns that order the rows, within files and from file to file.
    """
    count = max(1, -(-rows // files.file_rows))
    order = [fn.col(ROW)[name] for name in sort_by]
    if order:
        spread = frame.repartition(1) if count == 1 else frame.repartitionByRange(count, *order)
        spread = spread.sortWithinPartitions(*order)
    else:
        spread = frame.coalesce(count)
    return written_files(spread, files, task)


def written_files(frame: DataFrame, files: TableFiles, task: NewTask) -> list[Report]:
    """Write the rows of each partition of a frame of `ROW` to new files, in their order."""
    return _reports(frame, files, task, files.file_rows * _HELD_FILES)


def _reports(frame: DataFrame, files: TableFiles, task: NewTask, rows_max: int | None) -> list[Report]:
    table, bytes_max = files.table, HELD_BYTES_MAX

    def run(parts: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return reported_parts(table, partial(task, files), parts, rows_max, bytes_max=bytes_max)

    written = frame.select(in_python(run, "string")(ROW).alias("reports"))
    texts = written.where(fn.col("reports").isNotNull()).toArrow()["reports"].to_pylist()
    return [one.check(table) for text in texts for one in msgspec.json.decode(text, type=list[Report])]
