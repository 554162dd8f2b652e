"""Rows of a table by their keys, from the files that can have them: what a view needs whose change touched few keys.

The driver holds the sorted keys against the ranges that the log states for each file, and gives Spark a list of files,
the outer bounds of the keys for row groups, and the keys themselves as a broadcast semi join. Never a list of literals:
2,000 of them took two to four times as long, and more of them the session (VIEWS.md section 0).
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa

from sinks.warehouse.keyranges import between, is_ranged, ranges_of, sorted_keys
from sinks.warehouse.lake import frame_of
from sinks.warehouse.location import Location, Where
from sinks.warehouse.pinned import pinned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession


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
    """The rows of a table at a version whose key is one of `keys`; lazy, with all columns of the table.

    Args:
        spark: any session of Spark 4.
        where: the lake is.
        table: as the manifest names it, ``mirror/public.orders``.
        version: of its Delta log.
        key: columns to go by; the primary key, or others. Files are picked by those whose statistics are exact:
            integers, texts, dates.
        keys: at least these columns, in the types of the table. A null is equal to a null. A frame is computed here.
        storage: as for `sinks.warehouse.lake.read_cut`.

    Raises:
        LakeDamaged: that version is gone.
    """
    location = Location.of(where, storage)
    wanted = (keys if isinstance(keys, pa.Table) else keys.select(*map(_quoted, key)).toArrow()).select(list(key))
    wanted = wanted.group_by(list(key)).aggregate([]).select(list(key))
    rows = frame_of(spark, location, table, version, only=files_of_keys(pinned(location, table, version), wanted))
    places = [f"k{index}" for index in range(len(key))]
    asked = spark.createDataFrame(wanted.rename_columns(places))
    matches = [rows[_quoted(name)].eqNullSafe(asked[at]) for name, at in zip(key, places, strict=True)]
    for name in key:
        bounds = _bounds(rows[_quoted(name)], wanted[name])
        rows = rows if bounds is None else rows.where(bounds)
    return rows.join(asked.hint("broadcast"), reduce(and_, matches), "left_semi")


def files_of_keys(opened: DeltaTable, keys: pa.Table) -> frozenset[str]:
    """The files of a version, by their paths below the table, that can have a row with one of `keys`.

    Each column of `keys` is one of the table; a column with a null in it leaves no file out.
    """
    found: frozenset[str] | None = None
    for name in keys.column_names:
        values = keys[name]
        known = sorted_keys(values) if not values.null_count else None
        files = ranges_of(opened, name)
        here = frozenset(file.path for file in files if known is None or between(file, known))
        found = here if found is None else found & here
    return found if found is not None else frozenset()


def _bounds(column: Column, values: pa.ChunkedArray) -> Column | None:
    """For the readers of row groups; None where it would say nothing or leave a row out."""
    if values.null_count or not len(values) or not is_ranged(values.type):
        return None
    low, high = min(values.to_pylist()), max(values.to_pylist())
    return column.between(low, high)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
