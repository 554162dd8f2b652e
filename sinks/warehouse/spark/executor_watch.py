"""Watches the executors of a cluster: whether there are any, and how many cores they have.

Spark waits for executors without a limit, and says nothing to the program.

Without an executor a session does not begin, and a running job is cancelled after a while. Both become an error that
names the cause, and the sink waits in state WAITING instead of hanging.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import LakeUnready
from cdc.telemetry import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN_S: Final = 180.0
"""For the first executor. A node of Kubernetes may have to pull the image."""
GONE_S: Final = 60.0
"""For another executor while a job waits. A worker that starts again takes ten seconds."""
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_TASKS_PER_CORE: Final = 2  # so that the slowest task of a shuffle holds up less than one for each core would
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
_POLL_S: Final = 0.1
_LOOK_S: Final = 2.0


def executor_count(spark: SparkSession) -> int:
    """Return the number of executors that the driver knows."""
    known: int = _context(spark).getExecutorMemoryStatus().size()
    return known - 1  # the driver is one of them


def await_executors(spark: SparkSession, *, within_s: float = BEGIN_S) -> None:
    """Wait for the first executor. Raises LakeUnready if there is none in time, or the cluster gives up.

    With dynamic allocation, executors may start only when a job waits for them: there is nothing to wait for.
    """
    if spark.sparkContext.getConf().get(_DYNAMIC, "false") == "true":
        return
    end_s = time.monotonic() + within_s
    while not executor_count(spark):
        if _context(spark).isStopped():
            raise _none(spark, "the cluster has ended the application")
        if time.monotonic() > end_s:
            raise _none(spark, f"no executor has started within {within_s:.0f} s")
        time.sleep(_POLL_S)


def follow_cores(spark: SparkSession) -> None:
    """Set the number of tasks of a shuffle by the cores of the executors, unless the user has set it.

    Spark's default is 200, which takes longer than a small cut itself. With dynamic allocation the cores of the moment
    say nothing about those of the next job, so the default stays.
    """
    settings = spark.sparkContext.getConf()
    if settings.get(SHUFFLE_PARTITIONS) is not None or settings.get(_DYNAMIC, "false") == "true":
        return
    tasks = str(_TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    if spark.conf.get(SHUFFLE_PARTITIONS) != tasks:
        spark.conf.set(SHUFFLE_PARTITIONS, tasks)


class ExecutorWatch:
    """Cancels jobs if no executor is left to run them, and follows the number of cores. A thread; `stop` ends it."""

    def __init__(self, spark: SparkSession, *, gone_s: float = GONE_S, look_s: float = _LOOK_S) -> None:
        self._spark = spark
        self._gone_s = gone_s
        self._look_s = look_s
        self._done = threading.Event()
        self.reason = ""
        """Why jobs were cancelled; empty if they were not."""
        threading.Thread(target=self._run, name="executor-watch", daemon=True).start()

    def stop(self) -> None:
        """End the watch."""
        self._done.set()

    def _run(self) -> None:
        from py4j.protocol import Py4JError

        missing_s = 0.0
        while not self._done.wait(self._look_s):
            try:
                follow_cores(self._spark)
                missing_s = missing_s + self._look_s if self._is_stuck() else 0.0
                if missing_s >= self._gone_s and not self.reason:
                    self.reason = f"the cluster has had no executor for {self._gone_s:.0f} s"
                    log.get().warning("executors_gone", master=self._spark.sparkContext.master, seconds=missing_s)
                if missing_s >= self._gone_s:  # again and again: the driver may be between two jobs
                    self._spark.sparkContext.cancelAllJobs()
            except (Py4JError, OSError, AttributeError):
                return  # the session is closed, or its JVM has ended; the driver's own call fails, too

    def _is_stuck(self) -> bool:
        """Whether a job waits for executors; without a job, a cluster may have none (dynamic allocation)."""
        return executor_count(self._spark) == 0 and bool(self._spark.sparkContext.statusTracker().getActiveJobsIds())


def _none(spark: SparkSession, what: str) -> LakeUnready:
    settings = spark.sparkContext.getConf()
    memory, host = settings.get("spark.executor.memory", "1g"), settings.get("spark.driver.host", "")
    return LakeUnready(
        f"the Spark cluster {spark.sparkContext.master} has no executor: {what}",
        hint=f"it needs a free core and {memory} of memory on a worker, and each worker must reach the driver at "
        f"{host}:{settings.get('spark.driver.port', '')}; the page and the logs of the cluster show more",
        master=spark.sparkContext.master or "",
    )


def _context(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc()  # noqa: SLF001 - pyspark has no other word for it
