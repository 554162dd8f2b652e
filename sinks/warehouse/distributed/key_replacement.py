"""Replaces the rows of some keys in Spark's executors: `sinks.warehouse.delta.replace` without rows in the driver.

The key need not identify rows. A file that has some of a key's rows is rewritten without them. The new rows of a key go
to the first of its files. Those of a new key go to the file whose range contains it, or to the smallest one where
keys have no ranges, if that file is rewritten anyway or is small; otherwise to new files.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from sinks.warehouse.distributed.executor_jobs import AT, ROW, new_files, per_file
from sinks.warehouse.distributed.file_tasks import KEY, NEW, Report, TableFiles, replace_file, write_new
from sinks.warehouse.distributed.placement import taking_new
from sinks.warehouse.distributed.row_files import HOME, located, with_homes
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.spark.held_rows import kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession

    from sinks.warehouse.delta.key_ranges import FileRange

_FIRST: Final = "first"


def replaced_rows(
    spark: SparkSession,
    opened: DeltaTable,
    files: TableFiles,
    ranges: Sequence[FileRange],
    keys: DataFrame,
    rows: DataFrame,
) -> tuple[dict[int, Report], list[Report]]:
    """Rewrite files and write new ones. Returns the reports of both; those of rewritten files by their number.

    Args:
        spark: the session.
        opened: the version to change.
        files: its table; the key is that of `keys`.
        ranges: its files, from `sinks.warehouse.delta.key_ranges.ranges_of`.
        keys: each once; a null equals a null. Read more than once, so persist it.
        rows: any number per key; each has one of `keys`. Read more than once, too.
    """
    asked = keys.select(fn.struct(*map(quoted, files.key)).alias(ROW))
    with ExitStack() as used:
        found, free = kept(located(spark, files.location, files.table, opened, asked, files.key, ranges, every=True))
        used.callback(free)
        homes, free = kept(_with_homes(found.groupBy(ROW).agg(fn.min(AT).alias(_FIRST)), files, ranges))
        used.callback(free)
        # As a struct, so that no column of the table can have the name of one of ours.
        new = rows.select(fn.struct(*map(quoted, rows.columns)).alias(NEW))
        same = [fn.col(NEW)[name].eqNullSafe(fn.col(ROW)[name]) for name in files.key]
        placed, free = kept(new.join(homes, reduce(and_, same)).select(NEW, ROW, _FIRST, HOME))
        used.callback(free)
        return _written(found, homes, placed, files, ranges)
    raise AssertionError("unreachable")


def _with_homes(keys: DataFrame, files: TableFiles, ranges: Sequence[FileRange]) -> DataFrame:
    """Add `HOME`: the file that takes the rows of a key; null for none."""
    smallest = min(range(len(ranges)), key=lambda number: ranges[number].size, default=None)
    near = with_homes(keys, files.key, ranges, files.schema.field(files.key[0]).type)
    return near.withColumn(HOME, fn.coalesce(fn.col(_FIRST), fn.col(HOME), fn.lit(smallest).cast("int")))


def _written(
    found: DataFrame, homes: DataFrame, placed: DataFrame, files: TableFiles, ranges: Sequence[FileRange]
) -> tuple[dict[int, Report], list[Report]]:
    matching = {row[AT] for row in found.where(fn.col(AT).isNotNull()).select(AT).distinct().collect()}
    is_fresh = fn.col(_FIRST).isNull()
    counts = {row[HOME]: row["count"] for row in placed.where(is_fresh).groupBy(HOME).count().collect()}
    housed = taking_new(counts, matching, files, ranges)
    stays = fn.coalesce(~is_fresh | fn.col(HOME).isin(sorted(housed)), fn.lit(0).cast("boolean"))
    gone = _parts(found.where(fn.col(AT).isNotNull()), key=fn.col(ROW), at=AT)
    new_keys = homes.where(is_fresh & fn.col(HOME).isin(sorted(housed))) if housed else None
    parts = gone.unionByName(_parts(placed.where(stays), new=fn.col(NEW), at=HOME), allowMissingColumns=True)
    if new_keys is not None:
        parts = parts.unionByName(_parts(new_keys, key=fn.col(ROW), at=HOME), allowMissingColumns=True)
    each = parts.select(fn.struct(KEY, NEW).alias(ROW), AT)
    targets = {number: ranges[number] for number in matching | housed}
    done = per_file(each, files, targets, replace_file) if targets else {}
    left = sum(count for home, count in counts.items() if home not in housed)
    rest = placed.where(~stays).select(fn.col(NEW).alias(ROW))
    plain = replace(files, key=())  # a key may be that of several rows
    return done, new_files(rest, plain, write_new, rows=left, sort_by=files.key) if left else []


def _parts(frame: DataFrame, *, at: str, key: Column | None = None, new: Column | None = None) -> DataFrame:
    """Return keys to remove, or rows to add, with the number of the file."""
    named = [column.alias(name) for name, column in ((KEY, key), (NEW, new)) if column is not None]
    return frame.select(*named, fn.col(at).alias(AT))
