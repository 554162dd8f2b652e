"""`cdc views plan` and `explain`, over a lake without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from cdc.cli.main import run
from cdc.errors import EXIT_OK, EXIT_USAGE
from sinks.warehouse.lake.manifest import PlanRecord
from sinks.warehouse.lake.plan_run import Run
from sinks.warehouse.views.definition import bind, load_views
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
    (folder / "by_customer.sql").write_text("select customer, sum(cents) as cents from orders group by customer")
    return folder


def test_plan_shows_key_sources_and_what_was_decided(
    lake: SmallLake, views: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def planned(name: str) -> dict[str, Any]:
        assert run(["views", "plan", name, "--views", str(views), "--lake", str(lake.path), "--json"]) == EXIT_OK
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    def decided(refused: str | None, sha: str = "") -> dict[str, Any]:
        """As planned, when the sink recorded this about the SQL with this hash."""
        state = lake.views["regions"]
        assert state.plan is not None
        record = structs.replace(state.plan, refused=refused)
        lake.views["regions"] = structs.replace(state, sql_sha=sha, plan=record)
        lake.publish()
        affected: dict[str, Any] = planned("regions")["plans"]["affected"]
        return affected

    regions = planned("regions")
    assert (regions["key"], regions["wish"]) == (["region"], "affected")
    assert regions["plans"]["recompute"] == {"possible": True, "reason": None}
    assert regions["plans"]["affected"]["possible"] is None, "only Spark can confirm it"
    why = "it aggregates all rows into one: every change affects it"
    assert planned("total")["plans"]["affected"] == {"possible": False, "reason": why}
    assert planned("by_customer")["key"] == ["customer"]
    assert run(["views", "plan", "other", "--views", str(views), "--lake", str(lake.path)]) == EXIT_USAGE
    assert "known names: by_customer, regions, total" in capsys.readouterr().err

    sha = next(view.sha for view in bind(load_views(views), list(lake.tables)) if view.name == "regions")
    assert decided("", sha) == {"possible": True, "reason": None}
    assert decided("its key is a float", sha) == {"possible": False, "reason": "its key is a float"}
    assert decided(None, sha)["possible"] is None
    assert decided("", "of other SQL")["possible"] is None
    assert run(["views", "plan", "regions", "--views", str(views), "--lake", str(lake.path)]) == EXIT_OK
    assert "unknown" in capsys.readouterr().out


def test_explain_shows_the_last_plan_and_the_times_of_plans(
    lake: SmallLake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["views", "explain", "regions", "--lake", str(lake.path), "--json"]) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert (found["plan"], found["keys"], found["rows"], found["seconds"]) == ("affected", 3, 2, 0.21)
    assert found["plans"]["affected"]["possible"] is None, "the record is of a release that did not decide"
    assert found["runs"] == {"affected": [{"seconds": 0.2, "changes": 3}, {"seconds": 0.21, "changes": 1500}]}

    assert run(["views", "explain", "regions", "--lake", str(lake.path)]) == EXIT_OK
    shown = capsys.readouterr()
    assert "0.20 (3)  0.21 (1,500)" in shown.out
    assert "last updated by affected in 0.21 s: 3 keys, 2 rows; takes 0.20 s" in shown.err
