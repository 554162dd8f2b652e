"""Finds the file of each changed row: the file that has its key, or the one that takes a new key. Rows stay in Spark.

Where the ranges of files do not overlap, the log says which file can have a key, and no file is read. Otherwise
executors read the key's columns of the files that can have one of the keys, and join them with the changes.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import and_
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.compute import search_sorted  # new in 26: the check of the nodes imports this module
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from sinks.warehouse.delta.key_ranges import FileRange, between, is_ranged, sorted_keys
from sinks.warehouse.delta.pinned_version import schema_json
from sinks.warehouse.distributed.executor_jobs import AT, ROW
from sinks.warehouse.spark.arrow_tasks import in_python
from sinks.warehouse.spark.frames import frame_of_rows
from sinks.warehouse.spark.storage_options import read_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.lake.location import Location

HOME: Final = "home"
_FEW: Final = 4  # files; reading their keys takes less than the job that would exclude some


def located(
    spark: SparkSession,
    location: Location,
    table: str,
    opened: DeltaTable,
    rows: DataFrame,
    key: Sequence[str],
    files: Sequence[FileRange],
    *,
    every: bool = False,
) -> DataFrame:
    """Return rows with `AT`: the number of the file that has a row with the same key, null if none has.

    Args:
        spark: the session.
        location: of the lake.
        table: as the manifest names it.
        opened: the version to search.
        rows: `ROW`, each key once; read twice, so persist it.
        key: names of the key's columns. It identifies rows of the table and is never null.
        files: files of the version, from `sinks.warehouse.delta.key_ranges.ranges_of`.
        every: the key may be that of several rows, in several files, and null, which equals null. Then a row of `rows`
            is returned once for each file.
    """
    asked = asked_files(rows, key, opened, files)
    if not asked:
        return rows.withColumn(AT, fn.lit(None).cast("int"))
    stored = _stored_keys(spark, location, table, opened, key, {number: files[number] for number in asked})
    if every:
        same = [fn.col(ROW)[name].eqNullSafe(stored[f"k{index}"]) for index, name in enumerate(key)]
        stored = stored.distinct()
    else:
        same = [fn.col(ROW)[name] == stored[f"k{index}"] for index, name in enumerate(key)]
    return rows.join(stored, reduce(and_, same), "left").select(ROW, AT)


def by_range(rows: DataFrame, key: Sequence[str], files: Sequence[FileRange]) -> DataFrame:
    """Add `AT`, the file that can have the key of a row, and `HOME`, the file whose range it belongs to.

    Args:
        rows: `ROW`, each key never null.
        key: names of the key's columns.
        files: as `are_apart` wants them.
    """
    lows, highs = [file.low for file in files], [file.high for file in files]

    def place(keys: pa.Array) -> pa.Array:
        ranges = [pa.array(bounds, keys.type) for bounds in (lows, highs)]
        homes = _homes(ranges[0].slice(1), keys)
        low, high = (bounds.take(homes) for bounds in ranges)
        # Below zero: the file takes the key, but cannot have it.
        has = pc.and_(pc.less_equal(low, keys), pc.less_equal(keys, high))
        return pc.if_else(has, homes, pc.subtract(pa.scalar(-1, pa.int32()), homes))

    found = rows.withColumn("place", in_python(place, "int")(fn.col(ROW)[key[0]]))
    at = fn.when(fn.col("place") >= 0, fn.col("place"))
    return found.select(ROW, at.alias(AT), fn.coalesce(at, -1 - fn.col("place")).alias(HOME))


def are_apart(files: Sequence[FileRange], kind: pa.DataType) -> bool:
    """Whether a key of this type can be in one file only, by the ranges in the log."""
    known = is_ranged(kind) and bool(files) and all(file.low is not None for file in files)
    return known and all(one.high < other.low for one, other in pairwise(files))


def with_homes(rows: DataFrame, key: Sequence[str], files: Sequence[FileRange], kind: pa.DataType) -> DataFrame:
    """Add `HOME`: the number of the file whose range a new key belongs to; null where files have no ranges."""
    lows = [file.low for file in files if file.low is not None][1:]
    if not is_ranged(kind) or not files or files[0].low is None:
        return rows.withColumn(HOME, fn.lit(None).cast("int"))

    def home(keys: pa.Array) -> pa.Array:
        return _homes(pa.array(lows, keys.type), keys)

    return rows.withColumn(HOME, in_python(home, "int")(fn.col(ROW)[key[0]]))


def _homes(begins: pa.Array, keys: pa.Array) -> pa.Array:
    """Return, for each key, how many of the sorted ranges begin at or before it."""
    return search_sorted(begins, keys, side="right").cast(pa.int32())


def asked_files(rows: DataFrame, key: Sequence[str], opened: DeltaTable, files: Sequence[FileRange]) -> list[int]:
    """Return the numbers of the files that can have one of the keys. Arguments as of `located`."""
    kind = pa.schema(opened.schema().to_arrow()).field(key[0]).type
    if not is_ranged(kind) or len(files) <= _FEW:
        return list(range(len(files)))
    known = tuple(files)

    def hits(keys: pa.Array) -> pa.Array:
        found = None if keys.null_count else sorted_keys(keys)
        here = [number for number, file in enumerate(known) if found is None or between(file, found)]
        return pa.array([here] + [None] * (len(keys) - 1), pa.list_(pa.int32()))

    # One list per batch of keys: a list per key would be as large as the keys.
    lists = rows.select(in_python(hits, "array<int>")(fn.col(ROW)[key[0]]).alias("hits"))
    found = lists.select(fn.explode("hits").alias("number")).distinct().toArrow()
    return sorted(found["number"].to_pylist())


def _stored_keys(
    spark: SparkSession,
    location: Location,
    table: str,
    opened: DeltaTable,
    key: Sequence[str],
    files: dict[int, FileRange],
) -> DataFrame:
    """Return the keys in these files: ``k<index>``, and `AT` with the number of the file."""
    types = StructType.fromJson(schema_json(opened))
    schema = StructType([types[name] for name in key])
    paths = [location.spark_uri(table, file.path) for file in files.values()]
    read = spark.read.options(**read_options(spark, location)).schema(schema).parquet(*paths)
    keys = read.select(
        *[fn.col(f"`{name.replace('`', '``')}`").alias(f"k{index}") for index, name in enumerate(key)],
        fn.col("_metadata.file_name").alias("name"),
    )
    numbers = pa.table(
        {
            "name": pa.array([file.path.rpartition("/")[2] for file in files.values()], pa.string()),
            AT: pa.array(list(files), pa.int32()),
        }
    )
    return keys.join(fn.broadcast(frame_of_rows(spark, numbers)), "name").drop("name")
