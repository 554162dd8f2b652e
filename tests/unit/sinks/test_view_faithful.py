"""A query that would change its meaning when it is rewritten has no plan; other queries do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlglot
from sqlglot import exp

from sinks.warehouse.planner.plan import plan_view
from sinks.warehouse.planner.relations import Relation
from sinks.warehouse.views.definition import bind, load_views
from tests.fixtures.views.pg_columns import types_of_ddl
from tests.fixtures.views.view_workload import SCHEMA
from tests.tidy.tree import ROOT

T = {"t": Relation("t", {"a": "int", "b": "string", "x": "double"}, ("a",))}


@pytest.mark.parametrize(
    ("column", "named"),
    [
        ("max(collate(b, 'UTF8_LCASE'))", "collate()"),
        ("bool_or(rlike(b, 'a'))", "rlike()"),
        ("max('it''s')", "doubled"),
        ("max('a' 'b')", "adjacent"),
    ],
)
def test_what_would_become_something_else_is_recomputed(column: str, named: str) -> None:
    plan = plan_view("v", f"select b, {column} as c from t group by b", T)

    assert named in plan.reason


@pytest.mark.parametrize(
    "column",
    [
        "max(nvl(b, 'x'))", "max(substr(b, 2))", "max(pow(x, 2))", "max(instr(b, 'a'))", "max(named_struct('k', a))",
        "max(mod(a, 2))", "max(ceiling(x))", "count(distinct a)", "sum(a) filter (where b in ('p', 'q'))",
        "max(case when a > 1 then 'y' else b end)", "max(cast(b as int))", "percentile(a, 0.5)", "median(a)",
        "sort_array(collect_list(struct(a, b)))", "max(to_timestamp(b))", "max(b || 'it\\'s')",
        "percentile_cont(0.5) within group (order by a)", "percentile_disc(0.5) within group (order by a desc)",
        "max(to_char(a, '99'))", "max(log10(x))", "max(date_trunc('day', to_timestamp(b)))",
    ],
)  # fmt: skip
def test_other_names_for_the_same_are_planned(column: str) -> None:
    assert plan_view("v", f"select b, {column} as c from t group by b", T).reason == ""


def test_every_shape_of_the_proof_is_planned_or_says_why_not() -> None:
    columns = {
        "customers": ("id", "region", "tier"),
        "products": ("sku", "label", "manual"),
        "orders": ("id", "customer_id", "status", "cents", "placed_at", "note"),
        "lines": ("order_id", "line", "sku", "qty", "price"),
        "posts": ("id", "author", "body", "posted_at"),
        "follows": ("follower", "followed", "since"),
    }
    keys = {"lines": ("order_id", "line"), "follows": ("follower", "followed"), "products": ("sku",)}
    known = {name: Relation(name, dict.fromkeys(found, ""), keys.get(name, ("id",))) for name, found in columns.items()}
    reasons = {}
    views, types = load_views(ROOT / "tests" / "spark" / "viewshapes" / "views"), types_of_ddl(*SCHEMA)
    for view in bind(views, list(types), types):
        read = {name: known[table.rpartition(".")[2]] for name, table in view.tables.items()}
        read |= {name: known[other] for name, other in view.views.items()}
        plan = plan_view(view.name, view.sql, {name: replace(one, name=name) for name, one in read.items()})
        reasons[view.name] = plan.reason
        query = sqlglot.parse_one(view.sql, read="spark")
        assert isinstance(query, exp.Query)
        names = query.named_selects
        known[view.name] = Relation(view.name, dict.fromkeys(names, ""), plan.unique)

    recomputed = {name for name, reason in reasons.items() if reason}
    assert recomputed == {"lateral_top", "whole_table"}
