"""Cancels a plan that takes longer than its budget: a thread watches the clock and cancels Spark's jobs.

The jobs of a run have a tag of their own. A tag belongs to the thread that starts the jobs, so runs in several threads
do not cancel each other, and Spark passes it on to the threads that compute broadcasts and subqueries. Work of the
driver is not interrupted: the run checks the clock between its steps (`Budget.check`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

from cdc.clock import Clock
from cdc.telemetry import log
from sinks.warehouse.planner.relations import Unplannable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S: Final = 0.05
_numbers = count()


class OverBudget(Unplannable):
    """The plan took longer than its budget."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The time that plans of views may take: view -> seconds; unlimited if it is missing."""

    clock: Clock
    seconds: Mapping[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, spark: SparkSession, view: str) -> Iterator[Budget]:
        """Run a block within the budget of a view. Raises OverBudget in place of the error of a cancelled job."""
        seconds = self.seconds.get(view)
        budget = Budget(self.clock, view, seconds)
        if seconds is None:
            yield budget
            return
        context, tag, done = spark.sparkContext, f"tailrace-plan-{next(_numbers)}", threading.Event()

        def watch() -> None:
            # Again and again: the run may be between two jobs.
            while not done.wait(_POLL_S):
                if budget.is_spent():
                    context.cancelJobsWithTag(tag)

        watcher = threading.Thread(target=watch, name=f"budget-{view}", daemon=True)
        context.addJobTag(tag)
        watcher.start()
        try:
            yield budget
        except Exception as error:
            if isinstance(error, Unplannable) or not budget.is_spent():
                raise
            raise budget.spent() from error
        finally:
            done.set()
            watcher.join()
            context.removeJobTag(tag)


@dataclass(slots=True)
class Budget:
    """The budget of one run; `seconds` is None if it is unlimited."""

    clock: Clock
    view: str
    seconds: float | None
    _began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._began_s = self.clock.monotonic_s()

    def is_spent(self) -> bool:
        """Whether the time is over."""
        return self.seconds is not None and self.clock.monotonic_s() - self._began_s >= self.seconds

    def check(self) -> None:
        """Raises OverBudget if the time is over."""
        if self.is_spent():
            raise self.spent()

    def spent(self) -> OverBudget:
        """Return the error, and log it."""
        seconds = self.seconds or 0.0
        log.get().warning("view_plan_cancelled", view=self.view, plan="affected", budget_seconds=round(seconds, 3))
        return OverBudget(f"its run by keys was cancelled after {seconds:.1f} s")
