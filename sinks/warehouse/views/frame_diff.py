"""Finds the changes between two versions of a view in Spark's executors, in order of the key.

Executors convert rows to the bytes of records and compare their digests. The driver gets the differences only, some
thousand at a time: a Kafka transaction has one producer, which is the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as fn

from cdc.errors import ViewRefused
from sinks.warehouse.delta.stored_types import plain
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.spark.arrow_tasks import in_python, table_of_structs
from sinks.warehouse.views.version_diff import Pin, Versions, digest
from sinks.warehouse.views.view_records import Difference, RowForm

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame, SparkSession

_PART_ROWS: Final = 20_000  # differences that are in the driver at once
_PART_BYTES: Final = 4 << 20
_FORM: Final = "key binary, row binary, digest binary, problem string"


@dataclass(frozen=True)
class FrameVersions(Versions):
    """Two versions of a view, compared in the executors. `release` them after use.

    Each run gives the same differences in the same order, which is that of the keys' bytes.
    """

    spark: SparkSession

    def differences(self) -> Iterator[Difference]:
        """Yield keys that are new, changed or gone. Raises ViewRefused, LakeDamaged, PySparkException."""
        found, parts = self._compared
        refused = found.where(fn.col("problem").isNotNull()).select("problem").limit(1).collect()
        if refused:
            raise ViewRefused(
                refused[0]["problem"],
                hint="a topic holds dates and times of the years 1 to 9999; cast others to text",
                view=self.view,
            )
        for row in found.repartitionByRange(parts, "key").sortWithinPartitions("key").toLocalIterator():
            yield Difference(row["op"], bytes(row["key"]), None if row["row"] is None else bytes(row["row"]))

    def release(self) -> None:
        """Free memory and disk of executors."""
        if "_compared" in self.__dict__:
            self._compared[0].unpersist()

    @cached_property
    def _compared(self) -> tuple[DataFrame, int]:
        """The differences: `op`, `key`, `row`, and `problem` for rows without a form; and in how many parts to send."""
        shared = self.shared_files
        now = self._formed(self.new, shared, self.form)
        if self.old is None:
            found = now.select(fn.lit("c").alias("op"), "key", "row", "problem")
        else:
            before = self._formed(self.old, shared, self.form_before).where(fn.col("key").isNotNull())
            before = before.select(fn.col("key").alias("old_key"), fn.col("digest").alias("old_digest"))
            both = now.join(before, now["key"] == before["old_key"], "full_outer")
            op = (
                fn.when(fn.col("problem").isNotNull() | fn.col("old_key").isNull(), "c")
                .when(fn.col("key").isNull(), "d")
                .otherwise("u")
            )
            same = fn.coalesce(fn.col("digest") == fn.col("old_digest"), fn.lit(0).cast("boolean"))
            key = fn.coalesce("key", "old_key").alias("key")
            found = both.where(~same).select(op.alias("op"), key, "row", "problem")
        found = found.persist()
        size = fn.coalesce(fn.sum(fn.length("key") + fn.coalesce(fn.length("row"), fn.lit(0))), fn.lit(0))
        ((count, total),) = found.agg(fn.count("*"), size).collect()
        return found, max(1, -(-count // _PART_ROWS), -(-total // _PART_BYTES))

    def _formed(self, pin: Pin, shared: AbstractSet[str], form: RowForm) -> DataFrame:
        files = self.files_of(pin) - shared
        rows = frame_of(self.spark, self.location, *pin, only=files)
        row = fn.struct(*map(quoted, rows.columns))
        return rows.select(in_python(_forming(form), _FORM)(row).alias("formed")).select("formed.*")


def _forming(form: RowForm) -> Callable[[pa.Array], pa.Array]:
    """Return a function from rows to `_FORM`. A batch with a value without a form is one problem."""

    def formed(rows: pa.Array) -> pa.Array:
        try:
            pairs = list(form.rows(plain(table_of_structs(rows))))
        except ViewRefused as error:
            nothing = pa.nulls(len(rows), pa.binary())
            problems = pa.array([error.message] * len(rows), pa.string())
            return pa.StructArray.from_arrays([nothing] * 3 + [problems], ["key", "row", "digest", "problem"])
        columns = [
            pa.array([key for key, _ in pairs], pa.binary()),
            pa.array([row for _, row in pairs], pa.binary()),
            pa.array([digest(row) for _, row in pairs], pa.binary()),
            pa.nulls(len(rows), pa.string()),
        ]
        return pa.StructArray.from_arrays(columns, ["key", "row", "digest", "problem"])

    return formed
