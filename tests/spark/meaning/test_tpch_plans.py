"""TPC-H kept by keys on Spark, cut by cut: equal to the query, by the plan that the documentation names."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from sinks.warehouse.views.definition import bind, load_views, temporary
from tests.fixtures.views.kept_views import KeptLake
from tests.fixtures.views.tpch_plans import RECOMPUTED
from tests.spark.meaning.test_tpch import rows
from tests.tpch.tables import KEYS, schemas, types
from tests.tpch.tables import VIEWS as FILES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TYPES: Final = types()
VIEWS: Final = {bound.name: bound.sql for bound in bind(load_views(FILES), list(TYPES), TYPES)}
Row = dict[str, Any]
Tables = dict[str, dict[tuple[Any, ...], Row]]
"""Table -> key -> row."""


def in_spark(sql: str) -> str:
    """The translated query over tables by their names."""
    for table in TYPES:
        sql = sql.replace(temporary(table), table.removeprefix("mirror/public."))
    return sql


def start() -> Tables:
    """Return the rows of all tables."""
    found: Tables = {}
    for table, values in rows(random.Random(7)).items():
        listed = (dict(zip(schemas()[table].names, row, strict=True)) for row in values)
        found[table] = {tuple(row[one] for one in KEYS[table]): row for row in listed}
    return found


def refresh(tables: Tables, chance: random.Random, *, is_small: bool) -> dict[str, tuple[list[Row], list[Row]]]:
    """Change tables as TPC-H's refresh functions do, and some other rows; return what to put and to delete.

    A small change leaves the average balance of q22 as it is, and mostly the total of q11.
    """
    orders, lines = tables["orders"], tables["lineitem"]
    gone = chance.sample(sorted(orders), 20)
    moved = {old: (1000 + chance.randrange(10**6),) for old in chance.sample(sorted(set(orders) - set(gone)), 30)}
    put: dict[str, list[Row]] = {"orders": [], "lineitem": []}
    for old, (new,) in moved.items():
        put["orders"].append({**orders[old], "o_orderkey": new})
        copies = [{**row, "l_orderkey": new} for key, row in lines.items() if key[0] == old[0]]
        put["lineitem"] += [{**row, "l_quantity": row["l_quantity"] + 90} for row in copies]
    out = {
        "orders": [orders[key] for key in gone],
        "lineitem": [row for key, row in lines.items() if (key[0],) in gone],
    }
    if is_small:
        stock = tables["partsupp"][chance.choice(sorted(tables["partsupp"]))]
        put["partsupp"] = [{**stock, "ps_availqty": stock["ps_availqty"] + 1}]
        supplier = tables["supplier"][chance.choice(sorted(tables["supplier"]))]
        is_bad = "Complaints" in supplier["s_comment"]
        put["supplier"] = [{**supplier, "s_comment": "x" if is_bad else "Customer Complaints"}]
    else:
        for table, column in (("customer", "c_acctbal"), ("partsupp", "ps_supplycost"), ("supplier", "s_acctbal")):
            chosen = (tables[table][key] for key in chance.sample(sorted(tables[table]), 12))
            put[table] = [{**row, column: row[column] + chance.randint(-5, 90)} for row in chosen]
    for table, found in put.items():
        for row in out.get(table, []):
            del tables[table][tuple(row[one] for one in KEYS[table])]
        tables[table] |= {tuple(row[one] for one in KEYS[table]): row for row in found}
    return {table: (found, out.get(table, [])) for table, found in put.items()}


def bag(found: pa.Table) -> Counter[str]:
    return Counter(map(repr, found.to_pylist()))


@pytest.mark.timeout(1800)
def test_tpch_is_kept_by_keys_and_equal_at_every_cut(quick: SparkSession, tmp_path: Path) -> None:
    lake = KeptLake(quick, tmp_path, {name: in_spark(sql) for name, sql in VIEWS.items()}, schemas(), KEYS)
    tables, chance = start(), random.Random(5)
    lake.cut({table: (list(found.values()), []) for table, found in tables.items()})
    plans: Counter[tuple[str, str]] = Counter()
    refused: dict[str, str] = {}
    reasons: dict[str, set[str]] = {}

    for number in range(6):
        manifest = lake.cut(refresh(tables, chance, is_small=number > 0), **dict.fromkeys(VIEWS, "affected"))
        for name in VIEWS:
            assert bag(lake.rows(name)) == bag(lake.recomputed(name)), name
            record = manifest.views[name].plan
            if record is not None and manifest.views[name].cut == manifest.cut:
                plans[(name, record.plan)] += 1
                refused[name] = record.refused or ""
                reasons.setdefault(name, set()).add(record.reason)

    assert {name: why for name, why in refused.items() if why} == RECOMPUTED
    by_keys = {name for name, plan in plans if plan == "affected"}
    # Nearly every change that matters to q11 also changes its total, which all of its rows are compared with.
    assert set(VIEWS) - by_keys - RECOMPUTED.keys() <= {"q11"}, reasons
