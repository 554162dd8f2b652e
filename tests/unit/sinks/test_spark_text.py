"""Texts of plans have the functions of the view, as it wrote them."""

from __future__ import annotations

import pytest

from sinks.warehouse.planner.plan import plan_view
from sinks.warehouse.planner.relations import Relation
from sinks.warehouse.planner.spark_text import tree_of

COLUMNS = {"id": "bigint", "g": "int", "s": "string", "at": "timestamp", "d": "date", "second": "int"}
T = {"t": Relation("t", COLUMNS, ("id",))}


@pytest.mark.parametrize(
    "call",
    [
        "DATE_TRUNC('day', at)",
        "DATE_TRUNC('MONTH', at)",
        "TRUNC(d, 'year')",
        "DATE_SUB(d, 1)",
        "DATE(at)",
        "INT(s)",
        "TO_DATE(s, 'yyyy-MM-dd')",
        "DATE_FORMAT(d, 'E')",
        "INSTR(s, 'a')",
        "LOG(id)",
        "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY id)",
        "TIMESTAMPDIFF(second, at, at)",
        "DATEDIFF(day, d, d)",
        "DATEDIFF(d, d)",
    ],
)
def test_call_is_written_as_it_was_read(call: str) -> None:
    assert tree_of(f"SELECT {call} AS x FROM t").sql("spark") == f"SELECT {call} AS x FROM t"


def test_unit_is_never_taken_for_a_column_of_that_name() -> None:
    plan = plan_view("v", "select id, timestampdiff(second, at, at) as x, second from t", T)

    assert "TIMESTAMPDIFF(second, `a0`.`at`, `a0`.`at`)" in plan.whole_sql()
    assert "`a0`.`second` AS `second`" in plan.whole_sql()


@pytest.mark.parametrize(
    "sql",
    [
        "select date_trunc('day', at) as day, count(*) as n from t group by date_trunc('day', at)",
        "select date_trunc('day', at) as day, count(*) as n from t group by 1",
        "select date_trunc('day', at) as day, date_format(date_trunc('day', at), 'E') as name from t group by 1",
        "select g, date(max(at)) as newest from t group by g",
        "select g, percentile_cont(0.5) within group (order by id) as middle from t group by g",
    ],
)
def test_views_that_group_by_such_a_call_are_kept_by_keys(sql: str) -> None:
    plan = plan_view("v", sql, T)

    assert (plan.reason, len(plan.key)) == ("", 1)
