"""A plan beyond its budget is cancelled on Spark, the view is recomputed in the same cut, and this is remembered."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from sinks.warehouse.views.budget import Budgets, OverBudget
from sinks.warehouse.views.keeper import ViewKeeper
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.views.kept_views import KeptLake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMAS: Final = {"t": pa.schema([("id", pa.int64()), ("g", pa.int64()), ("x", pa.int64())])}
ROWS: Final = [{"id": n, "g": n % 8, "x": n} for n in range(8 * 100)]
TRIPLE: Final = (
    "select a.g, count(*) as n from t a join t b on a.g = b.g join t c on b.g = c.g "
    "where sqrt(a.x + b.x + c.x) >= 0 group by a.g"
)
ENDLESS: Final = "select count(*) as n from range(10000000) a cross join range(10000000) b where sqrt(a.id + b.id) < 0"


class Impatient(ManualClock):
    """A clock that jumps whenever Spark is seen at work."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._tracker = spark.sparkContext.statusTracker()

    def monotonic_s(self) -> float:
        jobs = self._tracker.getActiveJobsIds()
        if jobs and threading.current_thread().name.startswith("budget-"):
            self.now_s += 1000
        return self.now_s


def changed(number: int) -> dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    return {"t": ([{**row, "x": row["x"] + number} for row in ROWS[:8]], [])}


def test_triple_self_join_is_cancelled_and_recomputed_in_the_same_cut(spark: SparkSession, tmp_path: Path) -> None:
    lake = KeptLake(spark, tmp_path, {"triple": TRIPLE}, SCHEMAS, {"t": ("id",)})
    lake.cut({"t": (ROWS, [])})
    lake.keeper = ViewKeeper(spark, tmp_path, lake.parsed, Impatient(spark))

    with capture_logs() as logs:
        manifest = lake.cut(changed(1), triple="affected")

    record = manifest.views["triple"].plan
    assert record is not None
    assert (record.plan, record.reason) == ("recompute", "its run by keys was cancelled after 2.0 s")
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert [line["view"] for line in logs if line["event"] == "view_plan_cancelled"] == ["triple"]
    assert sorted(lake.rows("triple").to_pylist(), key=str) == sorted(lake.recomputed("triple").to_pylist(), key=str)

    lake.restart()
    again = lake.cut(changed(2)).views["triple"].plan
    assert again is not None
    assert [len(runs) for runs in record.cancelled.values()] == [1]
    assert again.cancelled == record.cancelled
    assert "affected" not in again.runs

    completed = lake.cut(changed(3), triple="affected").views["triple"].plan
    assert completed is not None
    assert (completed.plan, completed.cancelled) == ("affected", {})


def test_keys_are_not_tried_where_much_of_the_tables_changed(spark: SparkSession, tmp_path: Path) -> None:
    lake = KeptLake(spark, tmp_path, {"rows": "select id, x from t where x >= 0"}, SCHEMAS, {"t": ("id",)})
    rows = [{"id": n, "g": 0, "x": n} for n in range(5_500)]
    lake.cut({"t": (rows, [])})

    rows = [{**row, "x": row["x"] + 1} for row in rows]
    few = lake.cut({"t": (rows[:1_001], [])}, rows="affected").views["rows"].plan
    rows = [{**row, "x": row["x"] + 1} for row in rows]
    many = lake.cut({"t": (rows[:1_101], [])}, rows="affected").views["rows"].plan

    assert few is not None
    assert few.plan == "affected"
    assert many is not None
    assert (many.plan, many.reason) == ("recompute", "1,101 rows changed, of 5,500 rows that it reads")


def test_runs_in_several_threads_do_not_cancel_each_other(spark: SparkSession) -> None:
    budgets = Budgets(Impatient(spark), {"short": 2.0, "long": 1e12})
    found: dict[str, object] = {}

    def run(view: str, query: str) -> None:
        try:
            with budgets.of(spark, view):
                found[view] = spark.sql(query).toArrow().to_pylist()
        except OverBudget as error:
            found[view] = str(error)

    threads = [
        threading.Thread(target=run, args=("short", ENDLESS)),
        threading.Thread(target=run, args=("long", "select count(*) as n from range(30000000) where sqrt(id) >= 0")),
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert not spark.sparkContext.statusTracker().getActiveStageIds(), "tasks of the endless query go on"
    assert found == {"short": "its run by keys was cancelled after 2.0 s", "long": [{"n": 30_000_000}]}


def test_error_within_the_budget_stays_what_it_is(spark: SparkSession) -> None:
    clock = ManualClock()

    def run(budgets: Budgets, takes_s: float) -> None:
        with budgets.of(spark, "v") as budget:
            clock.now_s += takes_s
            budget.check()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(Budgets(clock, {"v": 2.0}), 1.9)
    with pytest.raises(OverBudget):
        run(Budgets(clock, {"v": 2.0}), 2.0)
    with pytest.raises(ZeroDivisionError):
        run(Budgets(clock), 1e9)
