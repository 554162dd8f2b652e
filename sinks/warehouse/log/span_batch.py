"""Reads one span of the log in Spark, checks its counts, and parses it into typed rows.

Parsing stays in the JVM: one ``from_json`` per record, with every column as text, and then one cast per column. The
schema has only the fields that are read, because half of the cost of parsing is making values.

A frame of changes has, for every record:

    row         struct of the newest form of the table, typed; for a delete the key only
    _op         c, u, d, r; null for a tombstone, which has only partition and offset
    _unchanged  names of columns whose values are not the row's own: not sent, or read later than the row
    _epoch, _commit_lsn, _ordinal, _committed_at    position in the source's log
    _partition, _offset                             position in the topic
    _unfit      0, or what is wrong with the record; see `check`

The row is a struct so that no column name of a table can collide with one of ours. Names never appear in SQL text.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from cdc.errors import SinkGap, SinkUnfit
from sinks.warehouse.lake.cut_position import Partition
from sinks.warehouse.log import decoding
from sinks.warehouse.log.decoding import as_text, reading
from sinks.warehouse.log.lake_columns import LakeTable, compose, evolve
from sinks.warehouse.log.span import Span

ROW: Final = "row"
POSITION: Final = ("_epoch", "_commit_lsn", "_ordinal", "_committed_at")
UNFIT: Final = "_unfit"
_CORRUPT: Final = "_corrupt"
_PLAIN: Final = ("_partition", "_offset", "tombstone", "corrupt", "_op", "source")
_FETCHING: Final = {
    "kafka.fetch.max.wait.ms": "5",  # a range may end at a marker; there the broker would wait 500 ms for more
    # The client's defaults, 500 records and 1 MB, cost a third of the time: 1.0 s against 0.65 s for 300,000 records.
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
}
TASK_RECORDS: Final = 50_000  # half a second of parsing
_DELETE: Final = '"op":"d"'  # as capture writes it; within a value the quotes are escaped
_SOURCE: Final = StructType(
    [
        StructField("schema_id", StringType()),
        StructField("ts_us", LongType()),
        StructField("epoch", IntegerType()),
        StructField("commit_lsn", LongType()),
        StructField("ordinal", IntegerType()),
        StructField("unchanged", ArrayType(StringType())),
        StructField("reselected", ArrayType(StringType())),
    ]
)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a span contains.

    Attributes:
        records: of each partition, tombstones included.
        schemas: topic -> ids of its events' schemas, that of the newest event last.
    """

    records: Mapping[Partition, int]
    schemas: Mapping[str, tuple[str, ...]]


def read_span(
    spark: SparkSession,
    kafka_options: Mapping[str, str],
    span: Span,
    *,
    headers: bool = False,
    task_records: int = TASK_RECORDS,
) -> DataFrame:
    """Return the committed records of a span: topic, partition, offset, key, value, timestamp. Lazy.

    Args:
        spark: the session.
        kafka_options: as `sinks.warehouse.log.kafka_access.KafkaAccess.options` gives them.
        span: must have ranges.
        headers: whether to read the records' headers, too.
        task_records: a partition with more is read by several tasks, if there are more cores than partitions.
    """
    begins: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, index), (begin, end, _) in span.ranges.items():
        begins.setdefault(topic, {})[str(index)] = begin
        ends.setdefault(topic, {})[str(index)] = end
    options = {
        **_FETCHING,
        **kafka_options,
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        "includeHeaders": str(headers).lower(),
        "assign": json.dumps({topic: sorted(map(int, found)) for topic, found in begins.items()}),
        "startingOffsets": json.dumps(begins),
        "endingOffsets": json.dumps(ends),
    }
    tasks = min(spark.sparkContext.defaultParallelism, span.records // task_records)
    if tasks > len(span.ranges):
        options["minPartitions"] = str(tasks)  # Spark divides the largest ranges
    columns = ("topic", "partition", "offset", "key", "value", "timestamp", *(("headers",) if headers else ()))
    return spark.read.format("kafka").options(**options).load().select(*columns)


def survey(raw: DataFrame) -> Survey:
    """Count the records and find their schemas, in one pass over `raw`."""
    text = fn.col("value").cast("string")
    grouped = raw.groupBy("topic", "partition", _quoted_after(text, "schema_id").alias("schema_id")).agg(
        fn.count("*").alias("records"),
        fn.max(fn.struct(_number_after(text, "epoch"), _number_after(text, "commit_lsn"), fn.col("offset"))).alias(
            "at"
        ),
    )
    records: dict[Partition, int] = {}
    newest: dict[str, dict[str, tuple[int, ...]]] = {}
    for topic, partition, schema_id, count, at in grouped.collect():
        records[(topic, partition)] = records.get((topic, partition), 0) + count
        if schema_id is not None:
            of_topic = newest.setdefault(topic, {})
            of_topic[schema_id] = max(of_topic.get(schema_id, ()), tuple(at))
    schemas = {topic: tuple(sorted(found, key=lambda one: found[one])) for topic, found in newest.items()}
    return Survey(records, schemas)


def check_counts(found: Mapping[Partition, int], span: Span) -> None:
    """Compare the records read with the cut index. Raises SinkGap; a span that is not counted always passes.

    Args:
        found: records of each partition, tombstones included.
        span: the span that was read.
    """
    if not span.counted:
        return
    for (topic, partition), (begin, end, records) in span.ranges.items():
        count = found.get((topic, partition), 0)
        if count != records:
            raise SinkGap(
                f"{topic}-{partition} has {count} records between offsets {begin} and {end}, "
                f"but the cut index says {records}",
                hint="compaction or retention removed records before the lake read them, or another program "
                "writes to the topic",
                topic=topic,
                partition=partition,
                expected=records,
                found=count,
            )


def parse(raw: DataFrame, tables: Sequence[LakeTable]) -> DataFrame:
    """Return the changes of one table, see the head of this file. Lazy; `check` the frame, or `judge` its result.

    Args:
        raw: records of any topics, from `read_span`.
        tables: the forms of one table that `raw` has rows of, the newest last. Rows get the newest form.
    """
    newest = tables[-1]
    names = tuple(dict.fromkeys(column.name for table in tables for column in table.columns))
    image = StructType([StructField(name, reading(tables, name)) for name in names])
    keyless = [] if newest.key else [StructField("before", image)]
    envelope = StructType(
        [
            StructField("op", StringType()),
            StructField("after", image),
            *keyless,
            StructField("source", _SOURCE),
            StructField(_CORRUPT, StringType()),
        ]
    )
    # Key and value are parsed in one step, because each step that is not compiled copies the row. A delete's old row is
    # its key, if the table has one. The key of any other event is not read.
    text = fn.col("value").cast("string")
    key = fn.from_json(fn.when(fn.contains(text, fn.lit(_DELETE)), fn.col("key").cast("string")), image)
    parsed = raw.where(fn.col("topic") == newest.topic).select(
        fn.col("partition").alias("_partition"),
        fn.col("offset").alias("_offset"),
        fn.col("value").isNull().alias("tombstone"),
        fn.from_json(text, envelope, {"columnNameOfCorruptRecord": _CORRUPT}).alias("j"),
        key.alias("k"),
    )
    # By position from here on: after a rename, names may differ in case only.
    places = {name: f"a{index}" for index, name in enumerate(names)}
    old = "k.*" if newest.key else "j.before.*"
    corrupt = fn.col("j")[_CORRUPT].isNotNull()
    flat = parsed.select("_partition", "_offset", "tombstone", corrupt, "j.op", "j.source", "j.after.*", old).toDF(
        *_PLAIN, *places.values(), *[f"o{index}" for index in range(len(names))]
    )
    schema_id = fn.col("source")["schema_id"]
    merged = flat.select(
        *_PLAIN,
        *[
            as_text(_image(at, f"o{at[1:]}", keyed=bool(newest.key)), tables, name, schema_id).alias(at)
            for name, at in places.items()
        ],
    )
    return _typed(merged, tables, places)


def check(changes: DataFrame, table: LakeTable) -> frozenset[str]:
    """`judge` a frame of changes. Needs one pass over the frame, so persist it before."""
    worst, unchanged = changes.agg(
        fn.max(UNFIT), fn.array_distinct(fn.flatten(fn.collect_set("_unchanged")))
    ).collect()[0]
    return judge(worst, unchanged or (), table)


def judge(worst: int | None, unchanged: Collection[str], table: LakeTable) -> frozenset[str]:
    """Refuse changes that `table` cannot hold; else return the columns that need `sinks.warehouse.log.changes.fill`.

    Args:
        worst: the greatest `_unfit` of the changes.
        unchanged: all names in their `_unchanged`.
        table: the newest form.

    Raises:
        SinkUnfit: names the column, never a value.
    """
    if not worst:
        return frozenset(unchanged) & {column.name for column in table.columns if column.name not in table.key}
    if worst > len(table.columns):
        raise SinkUnfit(
            f"{table.topic} has a record that is not an event of a known schema",
            hint="only capture may write to this topic, and schema records must not be deleted",
            topic=table.topic,
        )
    column = table.columns[worst - 1]
    raise SinkUnfit(
        f"column {column.name!r} of {table.table} has a value that {column.type} cannot hold",
        hint="NaN, an infinity, a date BC, or digits beyond its scale: keep the column as text",
        command=f'types = {{ {json.dumps(table.table)} = {{ {json.dumps(column.name)} = "string" }} }}'
        "  # in [sinks.<name>]",
        table=table.table,
        column=column.name,
    )


def _image(after: str, old: str, *, keyed: bool) -> Column:
    """Return the new row, or the old row of a delete; an update of a table without a key has both."""
    before = fn.col(old) if keyed else fn.when(fn.col("_op") == "d", fn.col(old))
    return fn.coalesce(fn.col(after), before)


def _typed(texts: DataFrame, tables: Sequence[LakeTable], places: Mapping[str, str]) -> DataFrame:
    """Turn the texts of all columns of all forms, located by `places`, into the frame of changes."""
    newest = tables[-1]
    source = fn.col("source")
    schema_id = source["schema_id"]
    forms = _forms(tables)
    columns = list(enumerate(newest.columns))
    picked = texts.select(*_PLAIN, *[_pick(schema_id, forms, places, index).alias(f"t{index}") for index, _ in columns])
    rewritten = schema_id != newest.schema_id if len(forms) > 1 else None
    cast = picked.select(
        "*",
        *[
            decoding.cast(fn.col(f"t{index}"), column, _encodings(tables, forms, index), schema_id, rewritten).alias(
                f"c{index}"
            )
            for index, column in columns
        ],
    )
    # Nulls are subtracted, not compared: without branches Spark computes each cast once.
    misfits = [
        (fn.col(f"c{index}").isNull().cast("int") - fn.col(f"t{index}").isNull().cast("int")) * (index + 1)
        for index, column in columns
        if column.type != "string"
    ]
    known = fn.coalesce(schema_id.isin(list(forms)), fn.lit(0).cast("boolean"))
    there = [value.isNotNull() for value in (source["commit_lsn"], source["ordinal"], fn.col("_op"))]
    whole = reduce(and_, there, known & ~fn.col("corrupt"))
    return cast.select(
        fn.struct(*[fn.col(f"c{index}").alias(column.name) for index, column in columns]).alias(ROW),
        "_op",
        _unchanged(source, newest, forms).alias("_unchanged"),
        source["epoch"].alias("_epoch"),
        source["commit_lsn"].alias("_commit_lsn"),
        source["ordinal"].alias("_ordinal"),
        fn.timestamp_micros(source["ts_us"]).alias("_committed_at"),
        "_partition",
        "_offset",
        fn.greatest(fn.lit(0), (~whole & ~fn.col("tombstone")).cast("int") * (len(columns) + 1), *misfits).alias(UNFIT),
    )


def _forms(tables: Sequence[LakeTable]) -> dict[str, tuple[str | None, ...]]:
    """Return schema id -> for each column of the newest form its name in that schema, None if missing there."""
    newest = tables[-1]
    names: tuple[str | None, ...] = tuple(column.name for column in newest.columns)
    forms = {newest.schema_id: names}
    step = None
    for old, new in reversed(list(itertools.pairwise(tables))):
        step = compose(evolve(old, new), new, step)
        forms.setdefault(old.schema_id, names if step is None else tuple(source.name for source in step.sources))
    return forms


def _encodings(
    tables: Sequence[LakeTable], forms: Mapping[str, tuple[str | None, ...]], index: int
) -> dict[str, list[str]]:
    """Return encoding -> ids of the schemas that use it for a column of the newest form."""
    found: dict[str, list[str]] = {}
    for table in tables:
        name = forms[table.schema_id][index]
        column = None if name is None else table.column(name)
        if column is not None:
            found.setdefault(column.encoding, []).append(table.schema_id)
    return found


def _pick(
    schema_id: Column, forms: Mapping[str, tuple[str | None, ...]], places: Mapping[str, str], index: int
) -> Column:
    """Return the text of a column of the newest form, from the column that holds it in the row's own form."""
    names = {form[index] for form in forms.values()}
    if len(names) == 1:
        return _at(places, names.pop())
    picked = fn.lit(None).cast("string")
    for one, form in forms.items():
        picked = fn.when(schema_id == one, _at(places, form[index])).otherwise(picked)
    return picked


def _at(places: Mapping[str, str], name: str | None) -> Column:
    return fn.lit(None).cast("string") if name is None else fn.col(places[name])


def _unchanged(source: Column, newest: LakeTable, forms: Mapping[str, tuple[str | None, ...]]) -> Column:
    """Return names of columns that do not have the row's own value, spelled as in the newest form."""
    names = fn.concat(fn.coalesce(source["unchanged"], fn.array()), fn.coalesce(source["reselected"], fn.array()))
    for one, form in forms.items():
        renamed = {
            old: column.name for old, column in zip(form, newest.columns, strict=True) if old not in {None, column.name}
        }
        if renamed:
            renames = fn.create_map(*[fn.lit(name) for pair in renamed.items() for name in pair])
            names = fn.when(source["schema_id"] == one, _translated(names, renames)).otherwise(names)
    return fn.when(source["unchanged"].isNotNull() | source["reselected"].isNotNull(), names)


def _translated(names: Column, renames: Column) -> Column:
    return fn.transform(names, lambda name: fn.coalesce(renames[name], name))


def _quoted_after(text: Column, field: str) -> Column:
    """Return the text of the last field of that name. An unescaped quote ends it, because `source` has a fixed form."""
    return fn.when(text.isNotNull(), fn.substring_index(fn.substring_index(text, f'"{field}":"', -1), '"', 1))


def _number_after(text: Column, field: str) -> Column:
    return fn.substring_index(fn.substring_index(text, f'"{field}":', -1), ",", 1).try_cast("bigint").alias(field)
