"""`cdc verify`: whether each mirror holds what its topic folds to, at the cut the lake is at (DESIGN section 8).

The topic is read once more from its beginning to the offsets of the manifest, parsed and folded by Spark in one pass,
and joined with the mirror's pinned version. It shares with the driver the parser and `sinks.warehouse.changes.fill`;
the merges, the files and the cuts it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as fn

from cdc.kafka.consumer import LogReader
from cdc.patterns import matches
from sinks.warehouse import batch, changes, layout
from sinks.warehouse.columns import LakeTable, form_of
from sinks.warehouse.cutreader import read_schemas
from sinks.warehouse.lake import frame_of
from sinks.warehouse.location import Location
from sinks.warehouse.manifest import Manifest
from sinks.warehouse.span import Mark, Span, partition_of
from sinks.warehouse.sparkfaults import sparked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_EXAMPLES_MAX: Final = 5
_KINDS: Final = ("missing", "extra", "stale", "different")


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What was found of one mirror.

    Attributes:
        compared: keys that topic or mirror has.
        missing: keys that only the topic has.
        extra: keys that only the mirror has.
        stale: keys whose row is of another event than the topic's last one.
        different: keys of the same event with another content.
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
    """What is verified and by what means."""

    spark: SparkSession
    location: Location
    name: str
    kafka_options: Mapping[str, str] = field(repr=False)
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
        with sparked(f"verify {table}"):
            have = frame_of(self._wanted.spark, self._wanted.location, mirror, state.version)
            newest = self._form(table, state.schema_id)
            span = _whole_topic(newest.topic, self._manifest, self._reader)
            if not span.ranges:
                count = have.count()
                return MirrorReport(table, compared=count, extra=count)
            group = f"{self._wanted.name}.verify"
            raw = batch.read_span(self._wanted.spark, self._wanted.kafka_options, span, group=group).persist()
            try:
                return self._folded(raw, newest, have)
            finally:
                raw.unpersist()

    def _folded(self, raw: DataFrame, newest: LakeTable, have: DataFrame) -> MirrorReport:
        found = batch.survey(raw).schemas.get(newest.topic, ())
        older = [self._form(newest.table, schema_id) for schema_id in found if schema_id != newest.schema_id]
        parsed = batch.parse(raw, [*older, newest]).persist()
        try:
            filled = changes.fill(parsed, None, newest, batch.check(parsed, newest))
            want = changes.collapse(filled, newest).where("not _deleted")
            return _report(newest, _joined(newest, want, have))
        finally:
            parsed.unpersist()

    def _form(self, table: str, schema_id: str) -> LakeTable:
        return form_of(self.schemas[(table, schema_id)], self._wanted.types)


def _whole_topic(topic: str, manifest: Manifest, reader: LogReader) -> Span:
    """From what is left of the beginning to where the manifest is. Not counted: compaction may have been there."""
    known = {partition_of(text): account for text, account in manifest.accounts.items()}
    accounts = {at: account for at, account in known.items() if at[0] == topic}
    begins = {at: (low, 0) for at, (low, _) in reader.end_offsets([topic]).items() if at in accounts}
    end = Mark(manifest.epoch, manifest.end_lsn, manifest.commit_lsn, 0, accounts, {}, 1)
    return Span(Mark(0, 0, 0, 0, begins, {}, 0), end, 1)


def _joined(table: LakeTable, want: DataFrame, have: DataFrame) -> DataFrame:
    """One row a key: its columns, and which of `_KINDS` it is; null when both agree."""
    names = [column.name for column in table.columns]
    left = want.select(
        *[_column(want, key).alias(f"k{index}") for index, key in enumerate(table.key)],
        fn.struct(_column(want, "_epoch"), _column(want, "_commit_lsn"), _column(want, "_ordinal")).alias("lp"),
        fn.struct(*[_column(want, name).alias(f"c{index}") for index, name in enumerate(names)]).alias("lc"),
    )
    right = have.select(
        *[_column(have, key).alias(f"k{index}") for index, key in enumerate(table.key)],
        fn.struct(_column(have, "_epoch"), _column(have, "_commit_lsn"), _column(have, "_ordinal")).alias("rp"),
        fn.struct(*[_column(have, name).alias(f"c{index}") for index, name in enumerate(names)]).alias("rc"),
    )
    kind = (
        fn.when(fn.col("rp").isNull(), "missing")
        .when(fn.col("lp").isNull(), "extra")
        .when(fn.col("lp") != fn.col("rp"), "stale")
        .when(~fn.col("lc").eqNullSafe(fn.col("rc")), "different")
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


def _column(frame: DataFrame, name: str) -> Column:
    quoted = name.replace("`", "``")
    return frame[f"`{quoted}`"]
