"""Reads rows of a table by their keys, from the files that can have them: for views of which few keys changed.

The driver compares the sorted keys with each file's range in the log. Spark gets a list of files, the outer bounds of
the keys for row groups, and the keys themselves as a broadcast semi join. It never gets a list of literals: 2,000 of
them took two to four times as long, and more of them ended the session.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from sinks.warehouse.delta.delta_table import columns_of
from sinks.warehouse.delta.key_ranges import FileRange, between, is_ranged, ranges_of, sorted_keys
from sinks.warehouse.delta.object_files import files_of
from sinks.warehouse.delta.patch import is_keyable, match
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.delta.stored_types import plain
from sinks.warehouse.delta.table_files import AT_ONCE, open_file, rows_in
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake.location import Location, Where
from sinks.warehouse.lake.store_errors import translating_store_errors
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.spark.frames import frame_of_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession

READ_ROWS_MAX: Final = 20_000_000  # a few seconds on one machine
HELD_BYTES_MAX: Final = 256 << 20


def rows_of_keys(
    spark: SparkSession,
    where: Where,
    table: str,
    version: int,
    key: Sequence[str],
    keys: pa.Table | DataFrame,
    *,
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of a table at a version whose key is one of `keys`; lazy, with all columns of the table.

    Args:
        spark: any session of Spark 4.
        where: location of the lake.
        table: as the manifest names it, ``mirror/public.orders``.
        version: of its Delta log.
        key: the columns to match, of the primary key or others. Files are chosen by those with exact statistics:
            integers, texts, dates.
        keys: at least these columns, in the types of the table. A null equals a null. A frame is computed here.
        storage: as for `sinks.warehouse.read.data_frames.read_cut`.

    Raises:
        LakeDamaged: the version does not exist.
    """
    location = Location.of(where, storage)
    wanted = (keys if isinstance(keys, pa.Table) else keys.select(*map(quoted, key)).toArrow()).select(list(key))
    wanted = wanted.group_by(list(key)).aggregate([]).select(list(key))
    rows = frame_of(spark, location, table, version, only=files_of_keys(pinned(location, table, version), wanted))
    places = [f"k{index}" for index in range(len(key))]
    asked = frame_of_rows(spark, wanted.rename_columns(places))
    matches = [rows[quoted(name)].eqNullSafe(asked[at]) for name, at in zip(key, places, strict=True)]
    for name in key:
        bounds = _bounds(rows[quoted(name)], wanted[name])
        rows = rows if bounds is None else rows.where(bounds)
    return rows.join(asked.hint("broadcast"), reduce(and_, matches), "left_semi")


def stored_rows(
    where: Where,
    table: str,
    version: int,
    keys: pa.Table,
    columns: Sequence[str],
    *,
    rows_max: int = READ_ROWS_MAX,
    bytes_max: int = HELD_BYTES_MAX,
    read_max: int = READ_ROWS_MAX,
) -> pa.Table | None:
    """Return the rows of a table at a version with one of these keys, read by the driver itself without a Spark job.

    Args:
        where: location of the lake.
        table: as the manifest names it.
        version: of its Delta log.
        keys: columns of the table; a null equals a null.
        columns: the columns to read, at least one.
        rows_max: limit of the number of rows.
        bytes_max: limit of their size in memory.
        read_max: limit of the rows in all files that can have a match; more are a task for executors.

    Returns:
        None if a limit is exceeded, the table has partitions, or the keys have types that are not exactly comparable.

    Raises:
        LakeDamaged, LakeUnready: from the storage.
    """
    location, opened = Location.of(where), pinned(where, table, version)
    schema = columns_of(opened)
    wanted = pa.schema([schema.field(name) for name in columns])
    key = pa.schema([_wide(schema.field(name)) for name in keys.column_names])
    keys = plain(keys)
    keys = keys.cast(pa.schema(map(_wide, keys.schema)))
    if opened.metadata().partition_columns or key.types != keys.schema.types or not is_keyable(key.types):
        return None
    once = keys.group_by(keys.column_names).aggregate([]).select(keys.column_names)
    files = _files(opened, once)
    if sum(file.rows or 0 for file in files) > read_max:
        return None
    storage = files_of(location, table)

    def read(file: FileRange) -> pa.Table:
        with open_file(storage, file) as at:
            found = match(rows_in(at, key), once, key.names).rows
            return rows_in(at, wanted).take(found) if len(found) else wanted.empty_table()

    parts = [wanted.empty_table()]
    with translating_store_errors(table), ThreadPoolExecutor(AT_ONCE, "lake-keys") as pool:
        for part in pool.map(read, files):
            parts.append(part)
            if sum(one.num_rows for one in parts) > rows_max or sum(one.nbytes for one in parts) > bytes_max:
                pool.shutdown(cancel_futures=True)
                return None
    return pa.concat_tables(parts)


def files_of_keys(opened: DeltaTable, keys: pa.Table) -> frozenset[str]:
    """Return the files of a version, by their paths below the table, that can have a row with one of `keys`.

    Each column of `keys` is a column of the table; a column that contains a null excludes no file.
    """
    return frozenset(file.path for file in _files(opened, keys))


def _files(opened: DeltaTable, keys: pa.Table) -> list[FileRange]:
    """As `files_of_keys`, with the ranges of the last column."""
    found: dict[str, FileRange] = {}
    for number, name in enumerate(keys.column_names):
        values = keys[name]
        known = sorted_keys(values) if not values.null_count else None
        here = {file.path: file for file in ranges_of(opened, name) if known is None or between(file, known)}
        found = {path: file for path, file in here.items() if not number or path in found}
    return list(found.values())


def _wide(field: pa.Field) -> pa.Field:
    """Widen integers, so that integers of any size are compared by value."""
    return field.with_type(pa.int64()) if pa.types.is_integer(field.type) else field


def _bounds(column: Column, values: pa.ChunkedArray) -> Column | None:
    """Return bounds for readers of row groups; None if they would exclude nothing, or a matching row."""
    if values.null_count or not len(values) or not is_ranged(values.type):
        return None
    low, high = min(values.to_pylist()), max(values.to_pylist())
    return column.between(low, high)
