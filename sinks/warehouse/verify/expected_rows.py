"""Computes the expected rows of a mirror for `cdc verify`, by applying `mirror_rule` to a topic's records in Spark.

It must not import the driver's own code (`sinks.warehouse.log.changes`, `table_outputs`). Spark sorts the records by
key and offset, on disk if they are many. Python gets positions and no values, and holds one row at a time. The driver
holds the positions of rows whose key changed without their large values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark import RDD, cloudpickle
from pyspark.serializers import UTF8Deserializer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import BinaryType

from sinks.warehouse.log.lake_columns import LakeTable
from sinks.warehouse.verify import mirror_rule

_POSITION: Final = "struct<epoch: int, lsn: bigint, ordinal: int>"
_OUTCOME: Final = (
    f"_partition int, _offset bigint, position {_POSITION}, left boolean, "
    f"cells array<struct<partition: int, offset: bigint, moved_at: {_POSITION}, unsure: boolean>>"
)
_ORIGIN: Final = f"at {_POSITION}, found array<struct<partition: int, offset: bigint, unsure: boolean>>"
_ID: Final = ("_partition", "_offset")

# Python workers on other machines have pyspark but not this package.
cloudpickle.register_pickle_by_value(mirror_rule)  # type: ignore[no-untyped-call]


@contextmanager
def expected_rows(changes: DataFrame, table: LakeTable, kept: Collection[str]) -> Iterator[DataFrame]:
    """Yield the rows that the mirror must have: ``row``, the position's columns, ``unsure``. Lazy, while it is open.

    ``unsure`` names columns that cannot be compared, because compaction has removed the value.

    Args:
        changes: every record of the topic up to the cut, parsed and persisted (`span_batch.parse`).
        table: the newest form; it has a key.
        kept: columns that some record did not send, or that were read later than their row.
    """
    names = [column.name for column in table.columns if column.name in kept]
    outcome = _outcomes(changes, table, names).persist()
    try:
        last = _followed(outcome, changes, names).where("not left and cells is not null").select(*_ID, "cells")
        rows = changes.join(last, list(_ID))
        values = {column.name: fn.col("row")[column.name] for column in table.columns}
        if names:
            rows = rows.join(_borrowed(last, changes, names), list(_ID), "left")
        for index, name in enumerate(names):
            other = fn.col(f"v{index}")
            values[name] = fn.when(other.isNotNull(), other["v"]).otherwise(values[name])
        unsure = [fn.when(fn.col("cells")[index]["unsure"], fn.lit(name)) for index, name in enumerate(names)]
        yield rows.select(
            fn.struct(*[value.alias(name) for name, value in values.items()]).alias("row"),
            *("_epoch", "_commit_lsn", "_ordinal"),
            fn.array_compact(fn.array(*unsure)).cast("array<string>").alias("unsure"),
        )
    finally:
        outcome.unpersist()


def _outcomes(changes: DataFrame, table: LakeTable, names: list[str]) -> DataFrame:
    """Return the rule's result for each key, and for the rows that deletes found."""
    key = fn.array(*[_text(changes, name) for name in table.key])
    kept = [fn.when(fn.array_contains("_unchanged", name), fn.lit(index)) for index, name in enumerate(names)]
    empty = [fn.when(fn.col("row")[name].isNull(), kept[index]) for index, name in enumerate(names)]
    records = (
        changes.where(fn.col("_op").isNotNull())
        .select(
            key.alias("key"),
            *_ID,
            *("_epoch", "_commit_lsn", "_ordinal"),
            "_op",
            fn.array_compact(fn.array(*kept)).cast("array<int>").alias("kept"),
            fn.array_compact(fn.array(*empty)).cast("array<int>").alias("empty"),
        )
        .repartition("key")
        .sortWithinPartitions("key", "_offset")
    )
    # As text: for other rows, pyspark parses the schema once per row. Python's `toJSON` causes a deprecation warning.
    lines = records._jdf.toJSON().toJavaRDD()  # noqa: SLF001
    text = UTF8Deserializer(use_unicode=True)  # type: ignore[no-untyped-call]
    documents: RDD[str] = RDD(lines, changes.sparkSession.sparkContext, text)
    found = documents.mapPartitions(_applied(len(names)))
    texts = changes.sparkSession.createDataFrame(found, "text string", verifySchema=False)
    return texts.select(fn.from_json("text", _OUTCOME).alias("found")).select("found.*")


def _text(changes: DataFrame, name: str) -> Column:
    """Return a key's value as text that distinguishes values: Python's own dates end in the year 9999."""
    value = fn.col("row")[name]
    binary = isinstance(changes.schema["row"].dataType[name].dataType, BinaryType)  # type: ignore[index]
    return fn.hex(value) if binary else value.cast("string")


def _applied(width: int) -> Callable[[Iterable[str]], Iterator[tuple[str]]]:
    """Return a function that applies the rule to the records of one Spark partition."""
    rule = mirror_rule

    def apply(lines: Iterable[str]) -> Iterator[tuple[str]]:
        read = (json.loads(line) for line in lines)
        records = (
            rule.Record(
                one["key"],
                one["_partition"],
                one["_offset"],
                (one["_epoch"], one["_commit_lsn"], one["_ordinal"]),
                one["_op"],
                one["kept"],
                one["empty"],
            )
            for one in read
        )
        for found in rule.outcomes(records, width):
            epoch, lsn, ordinal = found.position
            position = {"epoch": epoch, "lsn": lsn, "ordinal": ordinal}
            cells = None if found.row is None else [_document(cell) for cell in found.row]
            document = {"_partition": found.partition, "_offset": found.offset, "left": found.left, "cells": cells}
            yield (json.dumps(document | {"position": position}),)

    def _document(cell: mirror_rule.Cell) -> dict[str, object]:
        found = cell._asdict()
        if cell.moved_at is not None:
            epoch, lsn, ordinal = cell.moved_at
            found["moved_at"] = {"epoch": epoch, "lsn": lsn, "ordinal": ordinal}
        return found

    return apply


def _followed(outcome: DataFrame, changes: DataFrame, names: list[str]) -> DataFrame:
    """Give rows that came from another key the values that they had there."""
    moved = changes.where((fn.col("_op") == "c") & (fn.size("_unchanged") > 0)).select(
        fn.struct("_epoch", "_commit_lsn", "_ordinal").cast(_POSITION).alias("position")
    )
    rows = outcome.where("left").join(moved, "position", "left_semi").select("position", "cells").collect()
    left = {tuple(row["position"]): tuple(_cell(cell) for cell in row["cells"]) for row in rows}
    if not left:
        return outcome
    origins = [
        (at, [_found(mirror_rule.origin(cell, index, left)) for index, cell in enumerate(row)])
        for at, row in left.items()
    ]
    known = changes.sparkSession.createDataFrame(origins, _ORIGIN)
    for index, _ in enumerate(names):
        cell = fn.col("cells")[index]
        came = known.select(fn.col("at").alias("from"), fn.col("found")[index].alias(f"f{index}"))
        outcome = outcome.join(came, cell["moved_at"] == fn.col("from"), "left").drop("from")
    cells = [
        fn.coalesce(f"f{index}", _without_move(fn.col("cells")[index])).alias(f"c{index}")
        for index, _ in enumerate(names)
    ]
    return outcome.select(*_ID, "left", fn.when(fn.col("cells").isNotNull(), fn.array(*cells)).alias("cells"))


def _cell(found: Any) -> mirror_rule.Cell:
    moved_at = None if found["moved_at"] is None else tuple(found["moved_at"])
    return mirror_rule.Cell(found["partition"], found["offset"], moved_at, found["unsure"])


def _found(cell: mirror_rule.Cell) -> tuple[int, int, bool]:
    return cell.partition, cell.offset, cell.unsure


def _without_move(cell: Column) -> Column:
    return fn.struct(cell["partition"], cell["offset"], cell["unsure"])


def _borrowed(last: DataFrame, changes: DataFrame, names: list[str]) -> DataFrame:
    """Return rows with values of other records: for each name a struct ``v<index>``, null if the value is its own."""
    wanted = last.select(*_ID, fn.posexplode("cells").alias("index", "cell")).where(
        (fn.col("cell")["partition"] != fn.col("_partition")) | (fn.col("cell")["offset"] != fn.col("_offset"))
    )
    values = changes.select(
        fn.col("_partition").alias("partition"),
        fn.col("_offset").alias("offset"),
        *[fn.struct(fn.col("row")[name].alias("v")).alias(f"v{index}") for index, name in enumerate(names)],
    )
    found = wanted.select(*_ID, "index", "cell.partition", "cell.offset").join(values, ["partition", "offset"])
    return found.groupBy(*_ID).agg(
        *[
            fn.first(fn.when(fn.col("index") == index, fn.col(f"v{index}")), ignorenulls=True).alias(f"v{index}")
            for index, _ in enumerate(names)
        ]
    )
