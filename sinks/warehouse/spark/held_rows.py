"""Rows that Spark has computed once and that are used several times: in the driver, or in the executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sinks.warehouse.lake.committer import Changes


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows and their number. `release` them after use."""

    rows: Changes
    count: int

    @classmethod
    def of(cls, frame: DataFrame, *, in_frames: bool) -> HeldRows:
        """Compute a frame. With `in_frames` its rows stay in the executors. Raises PySparkException."""
        if not in_frames:
            return cls.of_table(frame.toArrow())
        kept = frame.persist()
        return cls(kept, kept.count())

    @classmethod
    def of_table(cls, rows: pa.Table) -> HeldRows:
        """Return rows of the driver."""
        return cls(rows, rows.num_rows)

    def here(self) -> pa.Table:
        """Return the rows in the driver."""
        return self.rows if isinstance(self.rows, pa.Table) else self.rows.toArrow()

    def release(self) -> None:
        """Free memory and disk of executors."""
        if not isinstance(self.rows, pa.Table):
            self.rows.unpersist()
