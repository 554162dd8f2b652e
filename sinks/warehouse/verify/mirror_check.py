"""Compares each mirror of a lake with its topic, at the newest cut of the lake, for `cdc verify`.

Reads the topic from its beginning to the offsets of the manifest, computes the expected rows by a rule of its own
(`sinks.warehouse.verify.mirror_rule`), and joins them with the mirror's pinned version. It uses the driver's parser of
records (`sinks.warehouse.log.span_batch`), but must not share the driver's folding, merging, writing or cutting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.kafka.log_reader import LogReader
from cdc.patterns import matches
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import Manifest
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.log import span_batch
from sinks.warehouse.log.cut_reader import read_schemas
from sinks.warehouse.log.lake_columns import LakeTable, form_of
from sinks.warehouse.spark.spark_errors import translating_spark_errors
from sinks.warehouse.verify.expected_rows import expected_rows

_EXAMPLES_MAX: Final = 5
_RAW: Final = ("topic", "partition", "offset", "key", "value")
_KINDS: Final = ("missing", "extra", "stale", "different")


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """The result for one mirror.

    Attributes:
        compared: keys in the topic or the mirror.
        missing: keys only in the topic.
        extra: keys only in the mirror.
        stale: keys whose row is of another event than the topic's last one.
        different: keys of the same event with different content.
        examples: kind -> some keys.
    """

    table: str
    compared: int
    missing: int = 0
    extra: int = 0
    stale: int = 0
    different: int = 0
    examples: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.extra or self.stale or self.different)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What to verify, and the means."""

    spark: SparkSession
    location: Location
    name: str
    kafka_options: Callable[[], Mapping[str, str]] = field(repr=False)
    tables: Sequence[str]
    types: Mapping[str, Mapping[str, str]]


def verify_mirrors(wanted: Verification, manifest: Manifest, reader: LogReader) -> list[MirrorReport]:
    """Compare every mirror of the manifest with its topic. Raises what reading Kafka or Spark raises."""
    comparing = _Comparing(wanted, manifest, reader)
    return [
        comparing.compare(table, layout.mirror(*layout.split_table(table, topic)))
        for table, topic in sorted({(record.table, record.topic) for record in comparing.schemas.values()})
        if matches(table, wanted.tables) and layout.mirror(*layout.split_table(table, topic)) in manifest.tables
    ]


class _Comparing:
    def __init__(self, wanted: Verification, manifest: Manifest, reader: LogReader) -> None:
        self.schemas = read_schemas(reader, wanted.name)
        self._wanted = wanted
        self._manifest = manifest
        self._reader = reader

    def compare(self, table: str, mirror: str) -> MirrorReport:
        state = self._manifest.tables[mirror]
        with translating_spark_errors(f"verify {table}"):
            have = frame_of(self._wanted.spark, self._wanted.location, mirror, state.version)
            newest = self._form(table, state.schema_id)
            ranges = _ranges(newest.topic, self._manifest, self._reader)
            if not ranges:
                count = have.count()
                return MirrorReport(table, compared=count, extra=count)
            raw = self._records(newest.topic, ranges).persist()
            try:
                return self._compared(raw, newest, have)
            finally:
                raw.unpersist()

    def _records(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> DataFrame:
        options = {
            **self._wanted.kafka_options(),
            "kafka.isolation.level": "read_committed",
            "kafka.max.poll.records": "5000",
            "kafka.max.partition.fetch.bytes": str(4 << 20),
            "failOnDataLoss": "true",
            "assign": json.dumps({topic: sorted(ranges)}),
            "startingOffsets": json.dumps({topic: {str(at): begin for at, (begin, _) in ranges.items()}}),
            "endingOffsets": json.dumps({topic: {str(at): end for at, (_, end) in ranges.items()}}),
        }
        return self._wanted.spark.read.format("kafka").options(**options).load().select(*_RAW)

    def _compared(self, raw: DataFrame, newest: LakeTable, have: DataFrame) -> MirrorReport:
        found = span_batch.survey(raw).schemas.get(newest.topic, ())
        older = [self._form(newest.table, schema_id) for schema_id in found if schema_id != newest.schema_id]
        parsed = span_batch.parse(raw, [*older, newest]).persist()
        try:
            with expected_rows(parsed, newest, span_batch.check(parsed, newest)) as want:
                return _report(newest, _joined(newest, want, have))
        finally:
            parsed.unpersist()

    def _form(self, table: str, schema_id: str) -> LakeTable:
        return form_of(self.schemas[(table, schema_id)], self._wanted.types)


def _ranges(topic: str, manifest: Manifest, reader: LogReader) -> dict[int, tuple[int, int]]:
    """Return partition -> (first available offset, offset of the manifest); empty partitions are left out."""
    ends = {index: end for (name, index), (end, _) in manifest.position.accounts.items() if name == topic}
    begins = {at: low for (_, at), (low, _) in reader.end_offsets([topic]).items()}
    return {at: (begins.get(at, 0), end) for at, end in ends.items() if begins.get(at, 0) < end}


def _joined(table: LakeTable, want: DataFrame, have: DataFrame) -> DataFrame:
    """Return one row per key: its columns, and its kind of `_KINDS`; null if both agree."""
    names = [column.name for column in table.columns]
    left = want.select(
        "unsure",
        *[fn.col("row")[key].alias(f"k{index}") for index, key in enumerate(table.key)],
        fn.struct("_epoch", "_commit_lsn", "_ordinal").alias("lp"),
        fn.struct(*[fn.col("row")[name].alias(f"c{index}") for index, name in enumerate(names)]).alias("lc"),
    )
    right = have.select(
        *[have[quoted(key)].alias(f"k{index}") for index, key in enumerate(table.key)],
        fn.struct(have["_epoch"], have["_commit_lsn"], have["_ordinal"]).alias("rp"),
        fn.struct(*[have[quoted(name)].alias(f"c{index}") for index, name in enumerate(names)]).alias("rc"),
    )
    agrees = [
        fn.col("lc")[f"c{index}"].eqNullSafe(fn.col("rc")[f"c{index}"]) | fn.array_contains("unsure", name)
        for index, name in enumerate(names)
    ]
    kind = (
        fn.when(fn.col("rp").isNull(), "missing")
        .when(fn.col("lp").isNull(), "extra")
        .when(fn.col("lp") != fn.col("rp"), "stale")
        .when(reduce(or_, [~one for one in agrees]), "different")
    )
    keys = [f"k{index}" for index in range(len(table.key))]
    return left.join(right, keys, "full_outer").select(*keys, kind.alias("kind"))


def _report(table: LakeTable, compared: DataFrame) -> MirrorReport:
    frame = compared.persist()
    try:
        counts = {row["kind"]: row["count"] for row in frame.groupBy("kind").count().collect()}
        examples = {
            kind: [
                dict(zip(table.key, row[: len(table.key)], strict=True))
                for row in frame.where(fn.col("kind") == kind).limit(_EXAMPLES_MAX).collect()
            ]
            for kind in _KINDS
            if counts.get(kind)
        }
    finally:
        frame.unpersist()
    found = {kind: counts.get(kind, 0) for kind in _KINDS}
    return MirrorReport(table.table, sum(counts.values()), **found, examples=examples)
