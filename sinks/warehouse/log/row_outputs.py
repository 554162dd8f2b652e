"""The events of one table in one cut, and what archive, mirror and history take of them.

`ArrowRows` has them in the driver, for a local committer. `FrameRows` leaves them in the executors and applies the same
rules as Spark's expressions, lazily.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark.sql import functions as fn

from sinks.warehouse.lake.committer import DELETED, VALID_TO, VALID_TO_LSN, Frame
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.log import table_outputs
from sinks.warehouse.log.changes import CLOSES
from sinks.warehouse.log.lake_columns import HISTORY_COLUMNS, MIRROR_COLUMNS, LakeTable
from sinks.warehouse.log.span_batch import UNFIT, judge
from sinks.warehouse.log.table_outputs import BEGINS, FOR_OTHERS
from sinks.warehouse.spark.frames import frame_of_rows
from sinks.warehouse.spark.held_rows import freed_on_error, kept

if TYPE_CHECKING:
    from contextlib import ExitStack

    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.lake.committer import Changes


class RowOutputs(Protocol):
    """Rows of `sinks.warehouse.log.changes.sequenced`. `release` them after use."""

    def has_unknown_schemas(self, table: LakeTable) -> bool:
        """Whether some record has none of the forms it was parsed with."""

    def checked(self, table: LakeTable) -> tuple[RowOutputs, frozenset[str]]:
        """Return the events, and the columns that need earlier values. Raises what `span_batch.judge` raises."""

    def filled(self, fill: Callable[[DataFrame], DataFrame]) -> RowOutputs:
        """Return the events after `fill`, which takes and returns `sequenced` rows."""

    def archive(self) -> Changes:
        """Return every event unchanged."""

    def mirror(self, table: LakeTable) -> Changes:
        """Return the newest event of each key, for `TableWrites.merge`."""

    def history(self, table: LakeTable) -> tuple[Changes, Changes]:
        """Return the rows that end and the rows that begin, for `TableWrites.close_and_append`."""

    def release(self) -> None:
        """Free memory and disk of executors."""

    def released_by(self, used: ExitStack) -> None:
        """Let `used` release the rows."""


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Implements `RowOutputs` in the driver."""

    rows: pa.Table
    spark: SparkSession

    def has_unknown_schemas(self, table: LakeTable) -> bool:
        """See `RowOutputs`."""
        return table_outputs.has_unknown_schemas(self.rows, table)

    def checked(self, table: LakeTable) -> tuple[RowOutputs, frozenset[str]]:
        """See `RowOutputs`."""
        events, columns = table_outputs.checked(self.rows, table)
        return ArrowRows(events, self.spark), columns

    def filled(self, fill: Callable[[DataFrame], DataFrame]) -> RowOutputs:
        """See `RowOutputs`."""
        return ArrowRows(fill(frame_of_rows(self.spark, self.rows)).toArrow(), self.spark)

    def archive(self) -> pa.Table:
        """See `RowOutputs`."""
        return table_outputs.archive(self.rows)

    def mirror(self, table: LakeTable) -> pa.Table:
        """See `RowOutputs`."""
        return table_outputs.mirror(self.rows, table)

    def history(self, table: LakeTable) -> tuple[pa.Table, pa.Table]:
        """See `RowOutputs`."""
        return table_outputs.history(self.rows, table)

    def release(self) -> None:
        """See `RowOutputs`."""

    def released_by(self, used: ExitStack) -> None:
        """See `RowOutputs`. There is nothing to release, and `used` must not keep the rows in memory."""


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Implements `RowOutputs` in the executors.

    Attributes:
        frame: persisted; with tombstones.
        counts: partition -> records, tombstones included.
        worst: the greatest `_unfit`.
        unchanged: all names in `_unchanged`.
        free: frees them.
    """

    frame: DataFrame
    counts: Mapping[int, int]
    worst: int | None
    unchanged: frozenset[str]
    free: Callable[[], object]

    @classmethod
    def of(cls, frame: DataFrame) -> FrameRows:
        """Compute and persist rows. Only counts reach the driver."""
        held, free = kept(frame)
        named = fn.array_distinct(fn.flatten(fn.collect_set("_unchanged"))).alias("unchanged")
        found = held.groupBy("_partition").agg(fn.count("*").alias("count"), fn.max(UNFIT).alias("worst"), named)
        with freed_on_error(free):
            parts = found.collect()
        worst = [row["worst"] for row in parts if row["worst"] is not None]
        unchanged = frozenset(name for row in parts for name in row["unchanged"] or ())
        return cls(held, {row["_partition"]: row["count"] for row in parts}, max(worst, default=None), unchanged, free)

    @classmethod
    def lazy(cls, frame: DataFrame) -> FrameRows:
        """Return checked rows that are not computed yet, and each time that an output is used."""
        return cls(frame, {}, None, frozenset(), lambda: None)

    @classmethod
    def of_events(cls, frame: DataFrame) -> FrameRows:
        """Compute and persist rows of an archive of outbox events: only `frame` and `counts` have a meaning."""
        held, free = kept(frame)
        with freed_on_error(free):
            counts = {row["_partition"]: row["count"] for row in held.groupBy("_partition").count().collect()}
        return cls(held, counts, None, frozenset(), free)

    def release(self) -> None:
        """See `RowOutputs`."""
        self.free()

    def released_by(self, used: ExitStack) -> None:
        """See `RowOutputs`."""
        used.callback(self.release)

    def has_unknown_schemas(self, table: LakeTable) -> bool:
        """See `RowOutputs`."""
        return (self.worst or 0) > len(table.columns)

    def checked(self, table: LakeTable) -> tuple[RowOutputs, frozenset[str]]:
        """See `RowOutputs`."""
        return self, judge(self.worst, self.unchanged, table)

    def filled(self, fill: Callable[[DataFrame], DataFrame]) -> RowOutputs:
        """See `RowOutputs`. The result is persisted on its own."""
        return FrameRows.of(fill(self._events))

    def archive(self) -> Frame:
        """See `RowOutputs`."""
        return self._output(self._events.drop(*FOR_OTHERS))

    def mirror(self, table: LakeTable) -> Frame:
        """See `RowOutputs`."""
        newest = self._events.where(fn.col(VALID_TO_LSN).isNull())
        return self._output(newest.select(*_names(table), *MIRROR_COLUMNS, (fn.col("_op") == "d").alias(DELETED)))

    def history(self, table: LakeTable) -> tuple[Frame, Frame]:
        """See `RowOutputs`."""
        lsn, at = table_outputs.closed_at(self.frame.columns)
        closes = self._events.where(fn.col(CLOSES)).select(
            *map(quoted, table.key), fn.col(lsn).alias(VALID_TO_LSN), fn.col(at).alias(VALID_TO)
        )
        own = [fn.col(BEGINS.get(name, name)).alias(name) for name in HISTORY_COLUMNS]
        versions = self._events.where(fn.col("_op") != "d").select(*_names(table), *own)
        return self._output(closes), self._output(versions)

    def _output(self, rows: DataFrame) -> Frame:
        return Frame(rows, sum(self.counts.values()) if self.counts else None)

    @property
    def _events(self) -> DataFrame:
        return self.frame.where(fn.col("_op").isNotNull())


def _names(table: LakeTable) -> Collection[str]:
    return [quoted(column.name) for column in table.columns]
