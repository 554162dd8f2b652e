"""`cdc views plan`, `cdc views explain` and the sink name the same plans for a view, and the same reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.read.planning_report import planned
from tests.fixtures.views.kept_views import KeptLake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sinks.warehouse.lake.manifest import Manifest

SCHEMAS: Final = {
    "orders": pa.schema([("id", pa.int64()), ("ratio", pa.float64()), ("status", pa.string()), ("day", pa.date32())])
}
ORDERS: Final = [{"id": number, "ratio": number / 4, "status": "ab"[number % 2], "day": None} for number in range(9)]
REFUSED: Final = {
    "of_floats": ("select ratio, count(*) as n from orders group by ratio", "its key ratio has the type double"),
    "nested": ("select named_struct('s', status) as s, count(*) as n from orders group by 1", "its key s has the type"),
    "read_differently": ("select id, to_unix_timestamp(day) as s from orders", "the planner reads its SQL differently"),
    "one_row": ("select count(*) as n from orders", "it aggregates all rows into one"),
}
ALLOWED: Final = {
    "by_status": "select status, count(*) as n from orders group by status",
    "over": "select n, count(*) as statuses from by_status group by n",
    "of_whole": "select o.id, w.n from orders o join whole w on w.status = o.status",
}
VIEWS: Final = {
    "whole": "-- plan: recompute\nselect status, count(*) as n from orders group by status",
    **{name: sql for name, (sql, _) in REFUSED.items()},
    **ALLOWED,
}


def said(lake: KeptLake, manifest: Manifest, name: str) -> tuple[bool | None, str | None]:
    found = planned(Lake(lake.folder), manifest, lake.parsed, name).document()["plans"]["affected"]
    return found["possible"], found["reason"]


def ran(manifest: Manifest, name: str) -> tuple[str, str]:
    record = manifest.views[name].plan
    assert record is not None
    return record.plan, record.reason


@pytest.mark.parametrize("forced", [True, False])
def test_plan_names_what_the_sink_does(forced: bool, spark: SparkSession, tmp_path: Path) -> None:
    lake = KeptLake(spark, tmp_path, VIEWS, SCHEMAS, {"orders": ("id",)})
    lake.cut({"orders": (ORDERS, [])})
    wish = dict.fromkeys({**REFUSED, **ALLOWED}, "affected") if forced else {}

    for number in (1, 2):
        manifest = lake.cut(
            {"orders": ([{**ORDERS[number], "status": "c"}, {**ORDERS[number], "id": 100 + number}], [])}, **wish
        )

        for name, (_, reason) in REFUSED.items():
            possible, why = said(lake, manifest, name)
            plan, recorded = ran(manifest, name)
            assert (name, possible, plan) == (name, False, "recompute")
            assert reason in (why or "")
            assert recorded == why, name
        for name in ALLOWED:
            possible, why = said(lake, manifest, name)
            assert (name, possible, why) == (name, True, None)
            if forced:
                assert ran(manifest, name)[0] == "affected", (name, ran(manifest, name))
        lake.restart()
