"""Rows that Spark computes once and keeps: until they are released, or until computing them fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from sinks.warehouse.log.row_outputs import FrameRows
from sinks.warehouse.spark.held_rows import HeldRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

KEEPS: dict[str, Callable[[DataFrame], Any]] = {
    "rows and their number": lambda frame: HeldRows.of(frame, in_frames=True),
    "rows of a table": FrameRows.of,
    "rows of an archive of events": FrameRows.of_events,
}


def _frame(spark: SparkSession, value: str) -> DataFrame:
    """Rows with the columns that are counted; `value` is computed with each row."""
    named = ["cast(0 as int) as _partition", "cast(null as array<string>) as _unchanged", "0 as _unfit"]
    return spark.range(100).repartition(2).selectExpr(*named, f"{value} as v").where(fn.col("v") >= 0)


@pytest.mark.parametrize("what", KEEPS)
def test_rows_whose_computation_fails_take_no_room_in_the_session(quick: SparkSession, what: str) -> None:
    frame = _frame(quick, "id div (id - 50)")
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        KEEPS[what](frame)
    assert not frame.storageLevel.useMemory


def test_rows_stay_until_they_are_released(quick: SparkSession) -> None:
    frame = _frame(quick, "id")
    rows = HeldRows.of(frame, in_frames=True)
    assert (rows.count, frame.storageLevel.useMemory) == (100, True)
    rows.release()
    assert not frame.storageLevel.useMemory
