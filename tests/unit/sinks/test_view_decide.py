"""Whether a view can be kept by keys is decided once, from its plan, its types and how Spark reads it."""

from __future__ import annotations

import pytest

from sinks.warehouse.planner.decide import decide
from sinks.warehouse.planner.plan import plan_view
from sinks.warehouse.planner.relations import Relation

T = {"t": Relation("t", {"id": "bigint", "k": "string", "x": "double"}, ("id",))}
GROUPED = "select K, count(*) as n from t group by k"


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("string", ""),
        ("decimal(10,2)", ""),
        ("timestamp_ntz", ""),
        ("double", "its key k has the type double, whose values are not exactly comparable"),
        ("struct<a:int>", "its key k has the type struct<a:int>, whose values are not exactly comparable"),
    ],
)
def test_key_must_be_exactly_comparable(kind: str, refused: str) -> None:
    assert decide(plan_view("v", GROUPED, T), {"K": kind, "n": "bigint"}, reads_same=True).refused == refused


def test_query_that_spark_reads_differently_is_refused_and_says_nothing_about_its_rows() -> None:
    plan = plan_view("v", GROUPED, T)

    found = decide(plan, {"K": "string", "n": "bigint"}, reads_same=False)

    assert (found.refused, found.unique) == ("the planner reads its SQL differently from Spark", ())
    assert decide(plan, {"K": "string", "n": "bigint"}, reads_same=True).unique == ("k",)


def test_query_without_a_plan_has_the_plans_reason() -> None:
    plan = plan_view("v", "select count(*) as n from t", T)

    assert plan.reason
    assert decide(plan, {"n": "bigint"}, reads_same=True).refused == plan.reason
    assert decide(plan, {"n": "bigint"}, reads_same=False).refused == plan.reason
