"""`cdc views plan` and `explain`, over a lake without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from cdc.cli.main import run
from cdc.errors import EXIT_OK, EXIT_USAGE
from sinks.warehouse.lake.manifest import PlanRecord
from sinks.warehouse.lake.plan_run import Run
from tests.fixtures.lake.small_lakes import SmallLake

ORDERS, CUSTOMERS = "mirror/public.orders", "mirror/public.customers"


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """Two mirrors and a view `regions`, which was kept by keys."""
    made = SmallLake(tmp_path / "lake")
    made.write(ORDERS, pa.table({"id": [1], "Customer": [7], "cents": pa.array([5], pa.int32())}))
    made.write(CUSTOMERS, pa.table({"id": [7], "region": ["N"]}))
    for table in (ORDERS, CUSTOMERS):
        made.tables[table] = structs.replace(made.tables[table], key=("id",))
    made.view("regions", pa.table({"region": ["N"], "n": [1]}))
    runs: dict[str, tuple[Run, ...]] = {"affected": (Run(0.2, 3), Run(0.21, 1500))}
    record = PlanRecord(plan="affected", reason="takes 0.20 s", seconds=0.21, keys=3, rows=2, runs=runs)
    made.views["regions"] = structs.replace(made.views["regions"], plan=record)
    made.publish()
    return made


@pytest.fixture
def views(tmp_path: Path) -> Path:
    folder = tmp_path / "views"
    folder.mkdir()
    join = "from orders o left join customers c on c.id = o.customer"
    (folder / "regions.sql").write_text(
        f"-- plan: affected\nselect c.region, sum(o.cents) as n {join} group by c.region"
    )
    (folder / "total.sql").write_text("select count(*) as n from regions")
    (folder / "sums.sql").write_text("select customer, sum(cents) as cents from orders group by customer")
    return folder


def test_a_plan_tells_key_reads_and_why_not(lake: SmallLake, views: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def planned(name: str) -> dict[str, object]:
        assert run(["views", "plan", name, "--views", str(views), "--lake", str(lake.path), "--json"]) == EXIT_OK
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    regions = planned("regions")
    assert (regions["key"], regions["wish"]) == (["region"], "affected")
    assert regions["plans"] == {
        "recompute": {"possible": True, "reason": None},
        "affected": {"possible": True, "reason": None},
    }
    assert planned("total")["plans"] == {
        "recompute": {"possible": True, "reason": None},
        "affected": {"possible": False, "reason": "it aggregates all rows into one: every change affects it"},
    }
    assert run(["views", "plan", "other", "--views", str(views), "--lake", str(lake.path)]) == EXIT_USAGE
    assert "known views: regions, sums, total" in capsys.readouterr().err


def test_explain_tells_the_last_plan_and_what_plans_took(lake: SmallLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["views", "explain", "regions", "--lake", str(lake.path), "--json"]) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert (found["plan"], found["keys"], found["rows"], found["seconds"]) == ("affected", 3, 2, 0.21)
    assert found["runs"] == {"affected": [{"seconds": 0.2, "changes": 3}, {"seconds": 0.21, "changes": 1500}]}

    assert run(["views", "explain", "regions", "--lake", str(lake.path)]) == EXIT_OK
    shown = capsys.readouterr()
    assert "0.20 (3)  0.21 (1,500)" in shown.out
    assert "last updated by affected in 0.21 s: 3 keys, 2 rows; takes 0.20 s" in shown.err
