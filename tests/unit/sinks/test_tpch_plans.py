"""The table of TPC-H's queries in the documentation names the plan of each query."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from sinks.warehouse.planner.plan import ViewPlan, plan_view
from sinks.warehouse.planner.relations import Relation
from sinks.warehouse.views.definition import BoundView, bind, load_views
from sinks.warehouse.views.meaning.pg_types import PgType
from tests.fixtures.views.tpch_plans import RECOMPUTED
from tests.tpch.tables import KEYS, VIEWS, types

_ROOT: Final = Path(__file__).parents[3]
_TYPES: Final = types()
_VIEWS: Final = {view.name: view for view in bind(load_views(VIEWS), list(_TYPES), _TYPES)}
_ROW: Final = re.compile(r"^\| (q\d\d) \| (.*?) \| (.*?) \|", re.MULTILINE)
_DOCS: Final = (_ROOT / "docs/internals/views.md").read_text()
_SHOWN: Final = {query: (key, why) for query, key, why in _ROW.findall(_DOCS)}


def _spark(kind: PgType) -> str:
    if kind.name == "numeric":
        return f"decimal({kind.precision},{kind.scale})"
    return {"int4": "int", "date": "date"}.get(kind.name, "string")


def _plan(view: BoundView) -> ViewPlan:
    relations = {
        name: Relation(name, {one: _spark(kind) for one, kind in _TYPES[table].items()}, KEYS[table.partition(".")[2]])
        for name, table in view.tables.items()
    }
    return plan_view(view.name, view.sql, relations)


def _expected(view: BoundView, plan: ViewPlan) -> tuple[str, str]:
    if plan.reason:
        return "none", plan.reason
    constant = [table.partition(".")[2] for name, table in view.tables.items() if plan.constants_sql({name})]
    parts = [f"first {plan.top.limit} rows"] if plan.top is not None else []
    parts += [f"a value over {', '.join(sorted(constant))} stays"] if constant else []
    return ", ".join(plan.key), "; ".join(parts)


@pytest.mark.parametrize("name", sorted(_VIEWS))
def test_table_names_the_plan_of_each_query(name: str) -> None:
    plan = _plan(_VIEWS[name])

    assert _SHOWN[name] == _expected(_VIEWS[name], plan)
    assert RECOMPUTED.get(name, "") == plan.reason


def test_table_has_every_query() -> None:
    assert len(_VIEWS) == 22
    assert _SHOWN.keys() == _VIEWS.keys()
