"""Makes the images of changed rows in Spark's executors. `ViewInputs` makes them in the driver for a local lake."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from sinks.warehouse.delta.key_ranges import ranges_of
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.distributed.executor_jobs import ROW
from sinks.warehouse.distributed.row_files import asked_files
from sinks.warehouse.lake.location import Location, Where
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner.relations import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


def rows_before(
    spark: SparkSession, where: Where, table: str, version: int, keys: DataFrame, key: Sequence[str]
) -> DataFrame:
    """Return the rows of a table at a version with one of these keys; a null equals a null.

    Only files that can have one of them are read. `keys` has the columns `key`; it is read more than once.
    """
    location = Location.of(where)
    opened = pinned(location, table, version)
    ranges = ranges_of(opened, key[0])
    asked = keys.select(fn.struct(*map(quoted, key)).alias(ROW))
    only = frozenset(ranges[number].path for number in asked_files(asked, key, opened, ranges))
    rows = frame_of(spark, location, table, version, only=only)
    wanted = keys.select(*(fn.col(quoted(name)).alias(f"k{index}") for index, name in enumerate(key)))
    same = [rows[quoted(name)].eqNullSafe(wanted[f"k{index}"]) for index, name in enumerate(key)]
    return rows.join(wanted, reduce(and_, same), "left_semi")


def weighted(stored: DataFrame, columns: Sequence[str], new: DataFrame, gone: DataFrame | None) -> DataFrame:
    """Return these columns of rows that came, with `WEIGHT` 1, and of rows that went, with -1.

    `stored` has their types. It belongs to the session that will read the result: rows of other sessions can be added
    to its rows, but not the other way round.
    """
    named = [quoted(name) for name in columns]
    found = stored.select(*named).where(fn.lit(0) == fn.lit(1)).withColumn(WEIGHT, fn.lit(1))
    for rows, weight in ((gone, -1), (new, 1)):
        if rows is not None:
            found = found.unionAll(rows.select(*named).withColumn(WEIGHT, fn.lit(weight)))
    return found
