"""From the changes of one table in a span to what its mirror and its history take. Spark, lazy.

Frames of changes are those of `sinks.warehouse.batch.parse`. All records of a key lie in one partition, so the
offset orders them; after a shuffle rows have no other order. Results are flat: the table's columns and then those
the lake adds, whose names no table may have (`sinks.warehouse.columns.RESERVED`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from sinks.warehouse.batch import POSITION, ROW
from sinks.warehouse.columns import LakeTable

_META = ("_op", "_unchanged", *POSITION, "_partition", "_offset")


def fill(changes: DataFrame, previous: DataFrame | None, table: LakeTable, columns: Collection[str]) -> DataFrame:
    """Give columns that an update left alone the value its key had before: in this span, else in `previous`.

    The result is a frame of changes. Persist it when it is used more than once. A column that was read later than its
    row keeps the value it came with when nothing else is known of the key.

    Args:
        changes: of one table.
        previous: the mirror as of the cut before, pinned to its version, with the columns of `table`; None: there is
            none yet.
        table: the newest form.
        columns: those that `sinks.warehouse.batch.check` named; without any, nothing is done.
    """
    names = [column.name for column in table.columns if column.name in columns]
    if not names or not table.key:
        return changes
    keys = _keys(table)
    keyed = changes.select("*", *[fn.col(ROW)[name].alias(f"k{index}") for index, name in enumerate(table.key)])
    before = Window.partitionBy(*keys).orderBy("_offset")
    # A value in a struct is known, also when it is null; a delete knows that nothing is left.
    known = keyed.select(
        "*",
        *[
            fn.last(fn.when(~_left_alone(name), fn.struct(fn.col(ROW)[name].alias("v"))), ignorenulls=True)
            .over(before)
            .alias(f"v{index}")
            for index, name in enumerate(names)
        ],
    )
    if previous is not None:
        known = _joined(known, previous, table, names)
    filled = {
        name: fn.when(fn.col(f"v{index}").isNotNull(), fn.col(f"v{index}")["v"]).otherwise(fn.col(ROW)[name])
        for index, name in enumerate(names)
    }
    row = fn.struct(*[filled.get(column.name, fn.col(ROW)[column.name]).alias(column.name) for column in table.columns])
    return known.select(row.alias(ROW), *_META)


def collapse(changes: DataFrame, table: LakeTable) -> DataFrame:
    """The mirror's side of a span: one row a key, as of its newest event.

    The table's columns, `sinks.warehouse.columns.MIRROR_COLUMNS` and ``_deleted``; of a deleted key only the key's
    columns have values.
    """
    keyed = changes.select(
        *[fn.col(ROW)[name].alias(f"k{index}") for index, name in enumerate(table.key)],
        "_offset",
        fn.struct(ROW, "_op", *POSITION).alias("event"),
    )
    newest = keyed.groupBy(*_keys(table)).agg(fn.max_by("event", "_offset").alias("event"))
    return newest.select(
        *_flat(table, fn.col("event")[ROW]),
        *[fn.col("event")[name].alias(name) for name in POSITION],
        (fn.col("event")["_op"] == "d").alias("_deleted"),
    )


def versions(changes: DataFrame, table: LakeTable) -> DataFrame:
    """The history's side of a span: a row for each event but deletes, and one for each key whose open row ends.

    The table's columns, `sinks.warehouse.columns.HISTORY_COLUMNS` and ``_closes``. Validity is half-open: from the
    event to the next one of the key, a delete included; null where it is open. ``_closes`` marks the first event of
    each key in the span: the row that was open before it ends at its ``_valid_from``. A delete that comes first has
    a row with ``_closes`` too, with ``_op`` ``d``: it closes and is no version.
    """
    first = Window.partitionBy(*_keys(table)).orderBy("_offset")
    position = fn.struct(fn.col("_commit_lsn").alias("lsn"), fn.col("_committed_at").alias("at"))
    told = changes.select("*", *[fn.col(ROW)[name].alias(f"k{index}") for index, name in enumerate(table.key)]).select(
        "*",
        fn.lead(position).over(first).alias("next"),
        (fn.row_number().over(first) == 1).alias("_closes"),
    )
    return told.where((fn.col("_op") != "d") | fn.col("_closes")).select(
        *_flat(table, fn.col(ROW)),
        fn.col("_commit_lsn").alias("_valid_from_lsn"),
        fn.col("_ordinal").alias("_valid_from_ordinal"),
        fn.col("_committed_at").alias("_valid_from"),
        fn.col("next")["lsn"].alias("_valid_to_lsn"),
        fn.col("next")["at"].alias("_valid_to"),
        "_epoch",
        "_op",
        "_closes",
    )


def flat(changes: DataFrame, table: LakeTable) -> DataFrame:
    """Changes with the table's columns first, for readers; names of ours are ``_op``, the position and the place.

    Only for tables without columns of these names.
    """
    return changes.select(*_flat(table, fn.col(ROW)), *_META)


def _joined(known: DataFrame, previous: DataFrame, table: LakeTable, names: Sequence[str]) -> DataFrame:
    """`known`, with what is still unknown taken from `previous`, of which only the keys asked for are read."""
    keys = _keys(table)
    unknown = reduce(or_, [fn.col(f"v{index}").isNull() for index in range(len(names))])
    wanted = known.where(unknown).select(*keys).distinct()
    old = previous.select(
        *[_of(previous, name).alias(f"k{index}") for index, name in enumerate(table.key)],
        *[fn.struct(_of(previous, name).alias("v")).alias(f"p{index}") for index, name in enumerate(names)],
    ).join(fn.broadcast(wanted), keys, "left_semi")
    kept = [name for name in known.columns if name not in {f"v{index}" for index in range(len(names))}]
    return known.join(old, keys, "left").select(
        *kept, *[fn.coalesce(f"v{index}", f"p{index}").alias(f"v{index}") for index in range(len(names))]
    )


def _keys(table: LakeTable) -> list[str]:
    """Names for the key's columns while rows are grouped."""
    return [f"k{index}" for index in range(len(table.key))]


def _left_alone(name: str) -> Column:
    return fn.coalesce(fn.array_contains(fn.col("_unchanged"), name), fn.lit(0).cast("boolean"))


def _flat(table: LakeTable, row: Column) -> list[Column]:
    return [row[column.name].alias(column.name) for column in table.columns]


def _of(frame: DataFrame, name: str) -> Column:
    """A column by its very name: quoted, because dots and quotes mean something in a name that is parsed."""
    escaped = name.replace("`", "``")
    return frame[f"`{escaped}`"]
