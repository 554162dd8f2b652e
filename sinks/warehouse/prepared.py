"""Plans of small spans, made once and run again and again.

To build, analyse and plan what `batch.parse` and `changes.sequenced` say takes several times as long as to run it over
a few thousand records, and it is the same in every cut. So the plan of a table's forms is kept, with a leaf that gives
whatever lies in a file of its own: a task of one process that hands the file's Arrow batches over as they are. There is
one partition, so nothing is shuffled. All types are decoded by Spark, as in a large span.

Only where the tasks run on this machine: `fits`. Elsewhere they would not find the file.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from sinks.warehouse import batch, changes
from sinks.warehouse.smallspan import RAW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.columns import LakeTable

_KEPT_MAX: Final = 256  # plans; some hundred KB of the JVM each
_RAW_DDL: Final = "topic string, partition int, offset bigint, key binary, value binary"


class PreparedPlans:
    """The plans of one session. Thread-safe, but for two runs of the same forms at once. `close` it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._folder = tempfile.TemporaryDirectory(
            prefix="tailrace-spans-", dir=_scratch(spark), ignore_cleanup_errors=True
        )
        self._plans: OrderedDict[tuple[LakeTable, ...], tuple[Path, DataFrame]] = OrderedDict()
        self._made = 0
        self._lock = Lock()

    def rows(self, records: pa.Table, tables: Sequence[LakeTable]) -> pa.Table:
        """The `sinks.warehouse.changes.sequenced` rows of records in the schema of `smallspan.RAW`.

        Args:
            records: of one topic, at least of one table's.
            tables: the forms of the table that there are rows of, the newest last.
        """
        file, plan = self._plan(tuple(tables))
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, RAW) as writer:
            writer.write_table(records)
        try:
            return plan.toArrow()
        finally:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the files; plans go with the session."""
        self._plans.clear()
        self._folder.cleanup()

    def _plan(self, tables: tuple[LakeTable, ...]) -> tuple[Path, DataFrame]:
        with self._lock:
            found = self._plans.get(tables)
            if found is None:
                self._made += 1
                file = Path(self._folder.name) / f"{self._made}.arrow"
                raw = self._spark.range(0, 1, 1, 1).mapInArrow(_handing_over(str(file)), _RAW_DDL)
                found = file, changes.sequenced(batch.parse(raw, tables), tables[-1])
                self._plans[tables] = found
                if len(self._plans) > _KEPT_MAX:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(tables)
            return found


def fits(spark: SparkSession) -> bool:
    """Whether the session's tasks run on this machine."""
    master = spark.sparkContext.master or ""
    return master == "local" or master.startswith("local[")


def _handing_over(file: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Of Spark's own row, which is there to start the task, nothing; of the file everything."""

    # A closure is sent as it is: the process that runs it has to find pyarrow, and not us.
    def hand_over(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in rows:
            with pa.memory_map(file) as source:
                opened = pa.ipc.open_file(source)
                for index in range(opened.num_record_batches):
                    yield opened.get_batch(index)

    return hand_over


def _scratch(spark: SparkSession) -> str | None:
    """Where Spark keeps what it spills, which goes when its process does; else where temporary files go."""
    folder = spark.conf.get("spark.local.dir", None)
    return folder if folder and Path(folder).is_dir() else None
