"""MATCH_RECOGNIZE in views: what is read, what is refused, and how a task matches Arrow rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from cdc.errors import ViewRefused
from sinks.warehouse.patterns.matcher import PatternFault
from sinks.warehouse.patterns.statement import Statement
from sinks.warehouse.patterns.task import FAULT, Task, matched, matching
from sinks.warehouse.planner.plan import plan_view
from sinks.warehouse.planner.relations import Relation
from sinks.warehouse.views.definition import BoundView, bind, parse_view
from sinks.warehouse.views.pattern_frames import fault_of, task_of
from sinks.warehouse.views.row_patterns import reading, relation_of

FILE: Final = Path("v.sql")
TABLES: Final = ["mirror/shop.ticks", "mirror/shop.other", "archive/shop.ticks"]
CLAUSE: Final = "partition by symbol order by at"
TICKS: Final = Relation("t", {"symbol": "string", "at": "timestamp", "price": "int"}, ("symbol", "at"))


def bound(sql: str) -> BoundView:
    return bind([parse_view(FILE, sql)], TABLES)[0]


def of_clause(clause: str) -> Statement:
    (pattern,) = parse_view(FILE, f"select * from ticks match_recognize ({clause})").patterns
    return pattern.statement


@pytest.mark.parametrize(
    ("read", "alias"),
    [
        ("ticks match_recognize ({}) m", " m"),
        ("ticks t match_recognize ({}) as m", " as m"),
        ("shop.ticks as t\n match_recognize ({})\n as m", "\n as m"),
        ("mirror.shop.`ticks` MATCH_RECOGNIZE({}) m", " m"),
        ("archive.ticks match_recognize ({}) m", " m"),
    ],
)
def test_clause_is_replaced_by_a_relation(read: str, alias: str) -> None:
    clause = f"{CLAUSE} measures last(B.at) as until pattern (A B) define B as price > prev(price)"
    view = bound(f"select m.symbol, o.id from {read.format(clause)} join other o on o.id = m.symbol")

    (name,) = view.patterns
    assert f"from `{name}` as `ticks`{alias}" in view.sql or f"from `{name}`{alias}" in view.sql
    assert "match_recognize" not in view.sql.lower()
    assert view.patterns[name].source in view.tables
    assert "price" in reading(view.sql, list(view.patterns.values()))


def test_another_clause_is_another_view() -> None:
    one, other = (
        bound(f"select * from ticks match_recognize ({CLAUSE} measures 1 as x pattern ({pattern}))")
        for pattern in ("A B", "A  B C")
    )

    assert one.sha != other.sha


def test_a_column_may_have_the_name_of_a_keyword() -> None:
    found = of_clause(
        "order by pattern measures A.define as measures, A.within as x pattern (A) define A as A.pattern > 1"
    )

    assert list(found.clause.measures) == ["measures", "x"]


REFUSED: Final = {
    "order by at pattern (A*)": "PATTERN can match without any row",
    "order by at pattern (A | B?)": "PATTERN can match without any row",
    "order by at pattern ((A?)* B)": "repeats without an end what can match no row",
    "order by at pattern (A B": "not closed",
    "order by at pattern (A ||)": "PATTERN expects a variable before |",
    "order by at pattern (A{3,2})": "invalid quantifier",
    "order by at pattern (A{2000})": "invalid quantifier",
    "order by at measures 1 as x pattern ((A{1000}){1000})": "more than 5,000 steps",
    "order by at pattern (A**)": "two quantifiers",
    "order by at pattern (PERMUTE(A, B))": "PERMUTE, which is not supported",
    "order by at pattern (A {- B -} C)": "exclusion",
    "order by at measures 1 as x": "no PATTERN",
    "partition by symbol measures 1 as x pattern (A)": "no ORDER BY",
    "order by at pattern (A)": "no column",
    "partition by upper(symbol) order by at pattern (A)": "PARTITION BY has something else than a column",
    "order by at measures 1 pattern (A)": "a measure has no name",
    "partition by symbol order by at measures 1 as SYMBOL pattern (A)": "two columns of MATCH_RECOGNIZE are named",
    "order by at measures 1 as x all rows per match with unmatched rows pattern (A)": "WITH UNMATCHED ROWS".lower(),
    "order by at measures 1 as x after match skip to B pattern (A)": "AFTER MATCH SKIP TO B".lower(),
    "order by at measures 1 as x pattern (A) subset U = (A) define A as true": "SUBSET is not supported",
    "order by at measures 1 as x pattern (A) define B as true": "B is not in PATTERN",
    "order by at desc measures 1 as x pattern (A) within interval '1' hour": "ascending order",
    "order by at pattern (A) measures 1 as x": "MEASURES is not in its place",
    "order by at measures 1 as x pattern (A B) define B as B.x - A.x < 3": "several rows on one side",
    "order by at measures 1 as x pattern (A B) define B as sum(A.x) * 2 < B.x": "an expression over sum()",
    "order by at measures 1 as x pattern (A B) define B as A.x like B.y": "not a comparison",
    "order by at measures 1 as x pattern (A B) define B as classifier() = 'A'": "CLASSIFIER() in DEFINE",
    "order by at measures 1 as x pattern (A B) define B as final last(A.x) > 1": "FINAL in DEFINE",
    "order by at measures sum(A.x + B.x) as x pattern (A B)": "SUM has columns of several variables",
    "order by at measures count(distinct A.x) as x pattern (A B)": "COUNT(distinct ...) is not supported",
    "order by at measures stddev(A.x) as x pattern (A B)": "stddev() within MATCH_RECOGNIZE",
    "order by at measures prev(prev(x)) as x pattern (A B)": "PREV of a function over rows",
    "order by at measures prev(x, -1) as x pattern (A B)": "offset of PREV is not a constant number",
    "order by at measures first(sum(x)) as x pattern (A B)": "SUM within FIRST is not supported",
    "order by at measures (select 1) as x pattern (A B)": "a subquery within MATCH_RECOGNIZE",
    "order by at measures row_number() over (order by x) as x pattern (A B)": "a window function",
    "order by at measures now() as x pattern (A)": "now() is the time of the computation",
    "order by at measures cast('today' as date) as x pattern (A)": "is the time of the computation",
    "order by at measures 1 as x pattern (A) define A as rand() > A.x": "rand() gives a different result",
    "order by at measures 1 as x pattern (A) define A as prev(cast('now' as timestamp) + (at - at)) > at": "'now' as a",
    "order by at measures max(cast('today' as date) + A.n) as x pattern (A)": "'today' as a time",
    "order by at measures percentile_cont(0.5) within group (order by x) as x pattern (A)": "calls percentile_cont()",
}


@pytest.mark.parametrize("clause", REFUSED)
def test_what_is_not_supported_is_refused_with_its_place(clause: str) -> None:
    with pytest.raises(ViewRefused) as caught:
        parse_view(FILE, f"select *\nfrom ticks match_recognize (\n  {clause}\n)")

    assert REFUSED[clause].lower() in caught.value.message.lower()
    assert caught.value.hint


def test_a_finding_has_line_and_column() -> None:
    with pytest.raises(ViewRefused) as caught:
        parse_view(FILE, "select *\nfrom ticks match_recognize (\n  order by at\n  pattern (A\n  B{0}))")

    assert (caught.value.facts["line"], caught.value.facts["column"]) == (5, 7)


@pytest.mark.parametrize("read", ["(select * from ticks)", "(select * from ticks) t", "values (1)"])
def test_a_query_as_its_input_is_refused(read: str) -> None:
    with pytest.raises(ViewRefused, match="does not follow the name of a table or view"):
        parse_view(FILE, f"select * from {read} match_recognize (order by at measures 1 as x pattern (A))")


def test_postgres_has_no_clause() -> None:
    with pytest.raises(ViewRefused, match="PostgreSQL has no MATCH_RECOGNIZE"):
        parse_view(FILE, "-- dialect: postgres\nselect x from ticks match_recognize (order by a pattern (A))")


def test_view_is_planned_without_spark() -> None:
    view = bound(f"select symbol, x from ticks match_recognize ({CLAUSE} measures 1 as x pattern (A)) where x > 0")
    (pattern,) = view.patterns.values()

    plan = plan_view("v", view.sql, {pattern.name: relation_of(pattern, TICKS)})

    assert (plan.reason, plan.key) == ("", ("symbol",))


def test_view_without_its_partition_is_kept_by_what_it_has() -> None:
    view = bound(f"select x from ticks match_recognize ({CLAUSE} measures 1 as x pattern (A))")
    (pattern,) = view.patterns.values()

    assert plan_view("v", view.sql, {pattern.name: relation_of(pattern, TICKS)}).key == ("x",)


def test_ties_are_ordered_by_the_key_or_by_all_columns() -> None:
    found, columns = (
        of_clause("order by at measures 1 as x pattern (A)"),
        [("at", "date"), ("Id", "int"), ("m", "map<a,b>")],
    )

    assert "(order by `at`, `Id`)" in found.rows_sql("t", columns, ["id"])
    assert "(order by `at`, `Id`)" in found.rows_sql("t", columns, [])


CONDITION: Final = (
    "partition by p order by n measures count(*) as x, A.v as v pattern (A+ B) define B as v > first(A.v)"
)


def a_task(clause: str, kinds: list[str], **more: Any) -> Task:
    found = task_of(of_clause(clause).typed(kinds), kinds)
    return Task(**{name: getattr(found, name) for name in Task.__slots__} | more)


def partitions(*each: list[Any]) -> pa.Array:
    rows = [[{"__n": n, "__c0": v} for n, v in enumerate(one, 1)][::-1] for one in each]
    kind = pa.list_(pa.struct([("__n", pa.int64()), ("__c0", pa.int32())]))
    return pa.array(rows, kind)


def test_partitions_of_a_batch_are_apart() -> None:
    found = matched(a_task(CONDITION, ["int"]), partitions([1, 2, 3], [], [5], [4, None, 9, 1, 2]))

    assert found.to_pylist() == [[{"__m0": 3, "__m1": 2}], [], [], [{"__m0": 3, "__m1": None}, {"__m0": 2, "__m1": 1}]]


@pytest.mark.parametrize("limit", [{"steps_max": 10}, {"found_max": 0}])
def test_a_limit_names_the_partition_and_no_value(limit: dict[str, int]) -> None:
    made = a_task(CONDITION, ["int"], **limit)
    with pytest.raises(PatternFault, match=f"{FAULT}a partition by p with 6 rows: .*more than") as caught:
        matched(made, partitions([7071, 7072, 7071, 7072, 7071, 7072]))

    fault = fault_of(caught.value)
    assert fault is not None
    assert "707" not in fault[0]
    assert "make the conditions" in fault[1]


def test_a_sum_out_of_range_is_a_fault() -> None:
    clause = "order by n measures sum(v) as x pattern (A+)"
    rows = pa.array(
        [[{"__n": n, "__c0": 2**62} for n in (1, 2)]], pa.list_(pa.struct([("__n", pa.int64()), ("__c0", pa.int64())]))
    )
    with pytest.raises(PatternFault, match="its only partition: a sum or an average is out of range"):
        matched(a_task(clause, ["bigint"]), rows)


def test_a_task_runs_where_this_package_is_missing(tmp_path: Path) -> None:
    """Executors have pyspark and pyarrow."""
    data = tmp_path / "task"
    data.write_bytes(cloudpickle.dumps((matching(a_task(CONDITION, ["int"])), partitions([1, 2, 3]))))  # type: ignore[no-untyped-call]
    text = f"import pickle; f, rows = pickle.load(open({str(data)!r}, 'rb')); print(f(rows).to_pylist())"
    site = next(path for path in sys.path if path.endswith("site-packages"))

    done = subprocess.run(
        [sys.executable, "-S", "-c", text],
        cwd=tmp_path,
        env={"PYTHONPATH": site},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.strip() == "[[{'__m0': 3, '__m1': 2}]]", done.stderr
