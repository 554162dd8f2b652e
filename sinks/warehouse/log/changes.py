"""Turns the changes of one table in a span into what its mirror and its history take. Spark, lazy.

Input frames come from `sinks.warehouse.log.span_batch.parse`. All records of a key are in one partition, so the offset
orders them; after a shuffle rows have no other order. Results are flat: the table's columns, then the columns that the
lake adds, whose names no table may use (`sinks.warehouse.log.lake_columns.RESERVED`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final, cast

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType
from pyspark.sql.window import WindowSpec

from sinks.warehouse.lake.committer import VALID_TO, VALID_TO_LSN
from sinks.warehouse.lake.manifest import Repair
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.log.lake_columns import LakeTable
from sinks.warehouse.log.span_batch import POSITION, ROW, UNFIT

CLOSES: Final = "_closes"
CLOSES_LSN: Final = "_closes_lsn"
CLOSES_AT: Final = "_closes_at"
_PLACE: Final = "_epoch int, _commit_lsn bigint, _ordinal int"
_META = ("_op", "_unchanged", *POSITION, "_partition", "_offset")


def fill(changes: DataFrame, previous: DataFrame | None, table: LakeTable, columns: Collection[str]) -> DataFrame:
    """Fill columns that an update left unchanged with the key's previous value: from this span, else from `previous`.

    The result is a frame of changes. Persist it if it is used more than once. A column that was read later than its
    row keeps its value if nothing else is known of the key.

    Args:
        changes: of one table.
        previous: the mirror at the previous cut, pinned to its version, with the columns of `table`; None if there is
            none yet.
        table: the newest form.
        columns: the columns named by `sinks.warehouse.log.span_batch.check`; if empty, nothing is done.
    """
    names = [column.name for column in table.columns if column.name in columns]
    if not names or not table.key:
        return changes
    keyed = changes.select("*", *[fn.col(ROW)[name].alias(f"k{index}") for index, name in enumerate(table.key)])
    # A value of an earlier epoch may have changed in the range that a repair of the log could not read.
    before = Window.partitionBy(*_keys(table), "_epoch").orderBy("_offset")
    # A value in a struct is known, also if it is null. After a delete the key has no values. A row that came from
    # another key has `at` instead: its values are found at the delete of the same position.
    stated = keyed.select("*", *[_stated(name).alias(f"t{index}") for index, name in enumerate(names)])
    known = stated.select(
        "*",
        *[fn.last(f"t{index}", ignorenulls=True).over(before).alias(f"s{index}") for index, _ in enumerate(names)],
    )
    known = _followed(known, _moves(stated, before, previous, table, names), names)
    if previous is not None:
        known = _joined(known, previous, table, names)
    filled = {
        name: fn.when(fn.col(f"v{index}").isNotNull(), fn.col(f"v{index}")["v"]).otherwise(fn.col(ROW)[name])
        for index, name in enumerate(names)
    }
    row = fn.struct(*[filled.get(column.name, fn.col(ROW)[column.name]).alias(column.name) for column in table.columns])
    return known.select(row.alias(ROW), *_META, UNFIT)


def sequenced(
    changes: DataFrame, table: LakeTable, repairs: Sequence[Repair] = (), previous: DataFrame | None = None
) -> DataFrame:
    """Return each record with the next event of its key: all that archive, mirror and history take, in one pass.

    Flat: the table's columns, ``_op``, ``_unchanged``, position, partition and offset, and for a table with a key

        _valid_to_lsn, _valid_to    position and time of the key's next event, a delete included; null for the newest
        _closes                     true for the key's first event in the span: it ends the version open before

    and then ``_unfit``. `sinks.warehouse.log.table_outputs` makes the outputs from these rows.

    A repair of the log between two events of a key ends the version before it, where the log of its epoch ends. With
    `repairs` there are two columns more: ``_closes_lsn`` and ``_closes_at``, where the version open before ends.

    Args:
        changes: of one table.
        table: the newest form.
        repairs: those that the lake has passed, including one in this span; empty if the span has none.
        previous: as for `fill`, with `repairs`.
    """
    if not table.key:
        return plain(changes, table)
    # Tombstones have no key to group by: each is a group of its own.
    alone = fn.when(fn.col("_op").isNull(), fn.col("_offset")).alias("alone")
    of_key = Window.partitionBy(*_keys(table), "alone").orderBy("_offset")
    stated = changes.select(
        "*",
        alone,
        _place().alias("place"),
        *[fn.col(ROW)[name].alias(f"k{index}") for index, name in enumerate(table.key)],
    ).select("*", fn.lead("place").over(of_key).alias("next"), (fn.row_number().over(of_key) == 1).alias("first"))
    closes: list[Column] = []
    if repairs:
        stated = stated.join(_open(previous, table, stated), _keys(table), "left") if previous is not None else stated
        before = _end_of(fn.col("open"), fn.col("place"), repairs) if previous is not None else fn.col("place")
        closes = [before["lsn"].alias(CLOSES_LSN), before["at"].alias(CLOSES_AT)]
    end = _end_of(fn.col("place"), fn.col("next"), repairs)
    return stated.select(
        *_flat(table, fn.col(ROW)),
        *_META,
        end["lsn"].alias(VALID_TO_LSN),
        end["at"].alias(VALID_TO),
        fn.col("first").alias(CLOSES),
        *closes,
        UNFIT,
    )


def plain(changes: DataFrame, table: LakeTable) -> DataFrame:
    """Return `sequenced` rows without the next event of their key: all that an archive takes. Sorts nothing."""
    return changes.select(*_flat(table, fn.col(ROW)), *_META, UNFIT)


def _place() -> Column:
    """Where an event is, or where the open version of a mirror's row began."""
    return fn.struct(
        fn.col("_epoch").alias("epoch"), fn.col("_commit_lsn").alias("lsn"), fn.col("_committed_at").alias("at")
    )


def _open(previous: DataFrame, table: LakeTable, asked: DataFrame) -> DataFrame:
    """Return the place of the rows that the mirror has for the keys in `asked`: ``k<index>`` and ``open``."""
    keys = [previous[quoted(name)].alias(f"k{index}") for index, name in enumerate(table.key)]
    wanted = asked.where("first and _op is not null").select(*_keys(table))
    return previous.select(*keys, _place().alias("open")).join(wanted, _keys(table), "left_semi")


def _end_of(version: Column, event: Column, repairs: Sequence[Repair]) -> Column:
    """Return the place where a version ends that `event` follows: there, or where the log of its epoch ends.

    A transaction that was not yet whole in the log is behind that place: its versions are never valid.
    """
    found = event
    for one in repairs:
        known_at = fn.timestamp_micros(fn.lit(one.known_at_us).cast("bigint"))
        known = fn.struct(
            version["epoch"].alias("epoch"),
            fn.greatest(fn.lit(one.known_to).cast("bigint"), version["lsn"]).alias("lsn"),
            fn.greatest(known_at, version["at"]).alias("at"),
        )
        is_between = (version["epoch"] == one.epoch) & (event["epoch"] > one.epoch)
        found = fn.when(is_between, known).otherwise(found)
    return found


def unflat(flat: DataFrame, table: LakeTable) -> DataFrame:
    """Return a frame of changes from `sequenced` rows."""
    row = fn.struct(*[flat[quoted(column.name)].alias(column.name) for column in table.columns])
    return flat.select(row.alias(ROW), *_META, UNFIT)


def _moves(
    stated: DataFrame, before: WindowSpec, previous: DataFrame | None, table: LakeTable, names: Sequence[str]
) -> DataFrame | None:
    """Return the values that rows had when they left for another key: ``at`` and, for each of `names`, a struct.

    None if there are no such rows. PostgreSQL does not send an unchanged large value, even if the key changes. Such
    rows are few. They are collected, because a path back over several keys is short to walk and long to plan.
    """
    places = range(len(names))
    came = stated.where(reduce(or_, [fn.col(f"t{index}")["at"].isNotNull() for index in places]))
    moved = [row[0] for row in came.select(_at()).collect()]
    if not moved:
        return None
    spark = stated.sparkSession
    at = StructType.fromDDL(_PLACE)
    earlier = before.rowsBetween(Window.unboundedPreceding, -1)
    left = (
        stated.select(
            "*", *[fn.last(f"t{index}", ignorenulls=True).over(earlier).alias(f"m{index}") for index in places]
        )
        .where(fn.col("_op") == "d")
        .withColumn("at", _at())
        .join(fn.broadcast(spark.createDataFrame([(one,) for one in moved], StructType().add("at", at))), "at")
        .select("at", *_keys(table), *[f"m{index}" for index in places])
    )
    if previous is not None:
        left = left.join(_before(previous, table, names, left), _keys(table), "left")
        held = fn.col("held_epoch") == fn.col("at")["_epoch"]
        plain = [fn.when(held & fn.col(f"p{index}").isNotNull(), _state(fn.col(f"p{index}")["v"])) for index in places]
        left = left.select("at", *[fn.coalesce(f"m{index}", plain[index]).alias(f"m{index}") for index in places])
    found = left.select("at", *[f"m{index}" for index in places])
    states = {row["at"]: row[1:] for row in found.collect()}
    kinds = [found.schema[f"m{index}"].dataType for index in places]
    schema = StructType().add("at", at)
    for index, kind in enumerate(kinds):
        schema = schema.add(f"m{index}", StructType().add("v", cast("StructType", kind)["v"].dataType))
    rows = [(place, *[_first(states, place, index) for index in places]) for place in states]
    return spark.createDataFrame(rows, schema)


def _first(states: Mapping[Row, Sequence[Row | None]], at: Row, index: int) -> tuple[object] | None:
    """Follow a row back from key to key until one has the value."""
    state = states[at][index]
    while state is not None and state["at"] in states:
        state = states[state["at"]][index]
    return None if state is None else (state["v"],)


def _followed(known: DataFrame, moves: DataFrame | None, names: Sequence[str]) -> DataFrame:
    """Add ``v<index>`` to `known` for each name: a struct of the value, null if the span does not have it."""
    for index, _ in enumerate(names):
        state = fn.col(f"s{index}")
        value = fn.when(state.isNotNull() & state["at"].isNull(), fn.struct(state["v"].alias("v")))
        if moves is not None:
            came = moves.select(fn.col("at").alias("from"), fn.col(f"m{index}").alias("came"))
            known = known.join(came, state["at"] == fn.col("from"), "left")
            value = value.when(fn.col("came").isNotNull(), fn.struct(fn.col("came")["v"].alias("v")))
            value = value.when(state["at"].isNotNull(), fn.struct(state["v"].alias("v")))
        known = known.withColumn(f"v{index}", value).drop("from", "came")
    return known


def _stated(name: str) -> Column:
    """Return what an event itself says of a column: its value, or where it came from; null if left unchanged."""
    value = fn.col(ROW)[name]
    came = fn.struct(value.alias("v"), _at().alias("at"))
    return fn.when(~_left_alone(name), _state(value)).when(fn.col("_op") == "c", came)


def _state(value: Column) -> Column:
    return fn.struct(value.alias("v"), fn.lit(None).cast(StructType.fromDDL(_PLACE)).alias("at"))


def _at() -> Column:
    """The position of an event. If a key changed, the delete has the position of the row that came."""
    return fn.struct("_epoch", "_commit_lsn", "_ordinal")


def _joined(known: DataFrame, previous: DataFrame, table: LakeTable, names: Sequence[str]) -> DataFrame:
    """Fill what is still unknown in `known` from `previous`. Only the requested keys are read."""
    keys = _keys(table)
    unknown = reduce(or_, [fn.col(f"v{index}").isNull() for index in range(len(names))])
    old = _before(previous, table, names, known.where(unknown))
    kept = [name for name in known.columns if name not in {f"v{index}" for index in range(len(names))}]
    held = [fn.when(fn.col("held_epoch") == fn.col("_epoch"), fn.col(f"p{index}")) for index in range(len(names))]
    return known.join(old, keys, "left").select(
        *kept, *[fn.coalesce(f"v{index}", held[index]).alias(f"v{index}") for index in range(len(names))]
    )


def _before(previous: DataFrame, table: LakeTable, names: Sequence[str], asked: DataFrame) -> DataFrame:
    """Return what the mirror has for the keys in `asked`: ``k<index>``, ``held_epoch`` and ``p<index>`` as a struct."""
    return previous.select(
        fn.col("_epoch").alias("held_epoch"),
        *[previous[quoted(name)].alias(f"k{index}") for index, name in enumerate(table.key)],
        *[fn.struct(previous[quoted(name)].alias("v")).alias(f"p{index}") for index, name in enumerate(names)],
    ).join(fn.broadcast(asked.select(*_keys(table)).distinct()), _keys(table), "left_semi")


def _keys(table: LakeTable) -> list[str]:
    """Names of the key columns while rows are grouped."""
    return [f"k{index}" for index in range(len(table.key))]


def _left_alone(name: str) -> Column:
    return fn.coalesce(fn.array_contains(fn.col("_unchanged"), name), fn.lit(0).cast("boolean"))


def _flat(table: LakeTable, row: Column) -> list[Column]:
    return [row[column.name].alias(column.name) for column in table.columns]
