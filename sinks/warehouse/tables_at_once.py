"""Writes several tables of a cut at once: each is a few Spark queries of fixed cost, and no two share a table."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pyspark.sql import SparkSession

AT_ONCE_MAX: Final = 8  # tables; each has a thread of the driver and queries in the executors
# Of the process: each thread that uses Spark has a thread of its own in the JVM, which does not end with it.
_POOL: Final = ThreadPoolExecutor(AT_ONCE_MAX, "lake-tables")


class TablesAtOnce:
    """Runs tasks in threads, at most `at_once` at a time, or in this one if that is 1. The block ends when all ended.

    After the first error, of a task or of the block, no task begins. It is raised when the others have ended.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._running: set[Future[object]] = set()

    def do(self, task: Callable[[], object]) -> None:
        """Run a task. May raise the error of an earlier one."""
        if self._at_once == 1:
            task()
            return
        while len(self._running) >= self._at_once:
            self._wait_for_one()
        self._running.add(_POOL.submit(task))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while error is None and self._running:
                self._wait_for_one()
        finally:
            wait(self._running)

    def _wait_for_one(self) -> None:
        done, self._running = wait(self._running, return_when=FIRST_COMPLETED)
        for one in done:
            one.result()


def at_once(spark: SparkSession) -> int:
    """Return how many tables are worth writing at once."""
    return max(1, min(AT_ONCE_MAX, spark.sparkContext.defaultParallelism))
