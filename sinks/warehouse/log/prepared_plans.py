"""Keeps the Spark plans of small spans and runs them again for every cut.

To build, analyse and plan `span_batch.parse` and `changes.sequenced` takes several times as long as to run them over a
few thousand records, and the result is the same in every cut. So the plan of a table's forms is kept. Its leaf reads a
file of its own: one task, which gets the file's Arrow records from a Python process of Spark. Spark decodes all types,
as in a large span.

A plan that runs again computes everything again, except for shuffled data: Spark keeps that, and would return the rows
of an earlier cut. So there is one partition and no shuffle, which is verified before a plan is kept.

This works only where tasks run on this machine (`fits`). Elsewhere they would not find the file.
"""

from __future__ import annotations

import errno
import re
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as fn
from pyspark.sql.pandas.functions import arrow_udf

from cdc.errors import InvariantError, LakeUnready
from sinks.warehouse.log import changes, span_batch
from sinks.warehouse.log.small_spans import RAW
from sinks.warehouse.spark.cluster_faults import disk_fault
from sinks.warehouse.spark.spark_session import beside, is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.log.lake_columns import LakeTable

_KEEPS: Final = re.compile("Exchange|QueryStage|InMemory|Subquery|Adaptive")  # steps that keep rows of a run
_KEPT_MAX: Final = 256  # plans; a few hundred KB of the JVM each
_RAW_DDL: Final = "array<struct<topic string, partition int, offset bigint, key binary, value binary>>"


class PreparedPlans:
    """The plans of one session. Thread-safe, except for two runs of the same forms at once. `close` it after use."""

    def __init__(self, spark: SparkSession) -> None:
        # Adaptive plans change while they run, and there is nothing to adapt to.
        self._spark = beside(spark, {"spark.sql.adaptive.enabled": "false"})
        self._folder = tempfile.TemporaryDirectory(
            prefix="tailrace-spans-", dir=_scratch(spark), ignore_cleanup_errors=True
        )
        self._plans: OrderedDict[tuple[LakeTable, ...], tuple[Path, DataFrame]] = OrderedDict()
        self._made = 0
        self._lock = Lock()

    def rows(self, records: pa.Table, tables: Sequence[LakeTable]) -> pa.Table:
        """Return the `sinks.warehouse.log.changes.sequenced` rows of records in the schema of `small_spans.RAW`.

        Args:
            records: of one table's topic, at least one.
            tables: the forms of the table that the records have, the newest last.
        """
        file, plan = self._plan(tuple(tables))
        try:
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, RAW) as writer:
                writer.write_table(records)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            fault = disk_fault()
            raise LakeUnready(f"{fault.what}: {self._folder.name}", hint=fault.hint) from error
        try:
            rows = plan.toArrow()
        finally:
            file.unlink(missing_ok=True)
        if rows.num_rows != records.num_rows or pc.sum(rows["_offset"]) != pc.sum(records["offset"]):
            raise InvariantError(f"a plan for {tables[-1].topic} gave rows of other records")
        return rows

    def close(self) -> None:
        """Remove the files. The plans end with the session."""
        self._plans.clear()
        self._folder.cleanup()

    def _plan(self, tables: tuple[LakeTable, ...]) -> tuple[Path, DataFrame]:
        with self._lock:
            found = self._plans.get(tables)
            if found is None:
                self._made += 1
                file = Path(self._folder.name) / f"{self._made}.arrow"
                # Annotations give the kind of function: naming it causes a warning, the stubs do not allow to omit it.
                taken = arrow_udf(_handing_over(str(file)), _RAW_DDL)  # type: ignore[call-overload]
                # Evaluating a Python function loses the fact that there is one partition.
                raw = self._spark.range(0, 1, 1, 1).select(fn.inline(taken("id"))).coalesce(1)
                found = file, _rerunnable(changes.sequenced(span_batch.parse(raw, tables), tables[-1]))
                self._plans[tables] = found
                if len(self._plans) > _KEPT_MAX:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(tables)
            return found


def fits(spark: SparkSession) -> bool:
    """Whether the session's tasks run on this machine with this Python, which has pyarrow."""
    return is_local(spark.sparkContext.master or "") and spark.sparkContext.pythonExec == sys.executable


def _rerunnable(plan: DataFrame) -> DataFrame:
    """Return the plan itself, after verifying that it keeps nothing of a run."""
    kept = [name for name in _steps(plan._jdf.queryExecution().executedPlan()) if _KEEPS.search(name)]  # noqa: SLF001
    if kept:
        raise InvariantError(f"a plan of small spans keeps rows: {', '.join(kept)}")
    return plan


def _steps(plan: Any) -> Iterator[str]:
    """Yield the names of the steps of a physical plan."""
    yield str(plan.nodeName())
    children = plan.children()
    for index in range(children.size()):
        yield from _steps(children.apply(index))


def _handing_over(file: str) -> Callable[[pa.Array], pa.Array]:
    """Return a function that replaces the one row that starts the task by all records of the file, in one list."""

    # The closure is sent by value: its process must find pyarrow, and need not find this package. (`mapInArrow` would
    # need no list, but it requires pandas, which nothing else here needs.)
    def hand_over(_: pa.Array) -> pa.Array:
        with pa.memory_map(file) as source:
            records = pa.ipc.open_file(source).read_all().to_struct_array().combine_chunks()
        return pa.ListArray.from_arrays([0, len(records)], records)

    return hand_over


def _scratch(spark: SparkSession) -> str | None:
    """Return the folder where Spark spills, which goes with its process; None for the system's temporary folder."""
    folder = spark.conf.get("spark.local.dir", None)
    return folder if folder and Path(folder).is_dir() else None
