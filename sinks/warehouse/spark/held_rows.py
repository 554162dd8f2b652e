"""Rows that Spark has computed once and that are used several times: in the driver, or in the executors."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from sinks.warehouse.lake.committer import Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.lake.committer import Changes

Either: TypeAlias = "pa.Table | DataFrame"
"""Rows in the driver or in the executors."""


def kept(frame: DataFrame) -> tuple[DataFrame, Callable[[], object]]:
    """Persist a frame. Returns its rows under a plan of one node, and what frees them.

    A persisted frame still has the plan that it was made by. Spark analyses it again in every query that uses the
    frame, and compares its parts with all persisted plans. Views over views use such frames in each other, so plans
    would grow with each of them. Lost rows are computed again, unlike those of a checkpoint.
    """
    held = frame.persist()
    with freed_on_error(held.unpersist):
        rows = _leaf(held.select("*"), held.sparkSession)  # adaptive execution may compute the rows here
    return rows, held.unpersist


@contextmanager
def freed_on_error(free: Callable[[], object]) -> Iterator[None]:
    """Free rows if the block fails: the session outlives an outage, and Spark keeps persisted rows as long."""
    try:
        yield
    except BaseException:
        free()
        raise


def _leaf(frame: DataFrame, spark: SparkSession) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    # As `checkpoint` does. Its statistics are those of the persisted rows, so small frames are still broadcast.
    sql = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]  # noqa: SLF001
    rows = frame._jdf.queryExecution().toRdd()  # noqa: SLF001
    node = getattr(getattr(sql.execution, "LogicalRDD$"), "MODULE$")
    plan = node.fromDataset(rows, frame._jdf, False)  # noqa: FBT003, SLF001
    return ClassicFrame(sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001


def collected(rows: Either) -> pa.Table:
    """Return rows in the driver."""
    return rows if isinstance(rows, pa.Table) else rows.toArrow()


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows and their number. `release` them after use."""

    rows: Either
    count: int
    free: Callable[[], object] = lambda: None

    @classmethod
    def of(cls, frame: DataFrame, *, in_frames: bool) -> HeldRows:
        """Compute a frame. With `in_frames` its rows stay in the executors. Raises PySparkException."""
        if not in_frames:
            return cls.of_table(frame.toArrow())
        rows, free = kept(frame)
        with freed_on_error(free):
            count = rows.count()
        return cls(rows, count, free)

    @classmethod
    def of_table(cls, rows: pa.Table) -> HeldRows:
        """Return rows of the driver."""
        return cls(rows, rows.num_rows)

    @property
    def changes(self) -> Changes:
        """The rows as a committer takes them."""
        return self.rows if isinstance(self.rows, pa.Table) else Frame(self.rows, self.count)

    def here(self) -> pa.Table:
        """Return the rows in the driver."""
        return collected(self.rows)

    def release(self) -> None:
        """Free memory and disk of executors."""
        self.free()
