"""The translation from PostgreSQL to Spark keeps the meaning of order and percentiles."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from cdc.errors import ViewRefused
from sinks.warehouse.views.definition import parse_view, read_view
from tests.tidy.tree import ROOT


def spark(select: str) -> str:
    return parse_view(Path("a.sql"), f"-- dialect: postgres\nselect {select} from t").spark_sql


@pytest.mark.parametrize(
    ("key", "steps"),
    [
        # who is first where a key is null, and where both have one
        ("y", ("THEN 1", "THEN -1", "THEN -1", "THEN 1")),
        ("y desc", ("THEN -1", "THEN 1", "THEN 1", "THEN -1")),
        ("y desc nulls last", ("THEN 1", "THEN -1", "THEN 1", "THEN -1")),
        ("y nulls first", ("THEN -1", "THEN 1", "THEN -1", "THEN 1")),
    ],
)
def test_an_ordered_array_is_sorted_as_postgresql_sorts(key: str, steps: tuple[str, ...]) -> None:
    sql = spark(f"array_agg(x order by {key}) as a")

    assert "ARRAY_SORT(COLLECT_LIST(NAMED_STRUCT('k0', y, 'v', x))" in sql
    first, second, less, more = steps
    assert f"NOT r__.k0 IS NULL {first} WHEN NOT l__.k0 IS NULL AND r__.k0 IS NULL {second}" in sql
    assert f"l__.k0 < r__.k0 {less} WHEN l__.k0 > r__.k0 {more}" in sql


def test_filter_and_distinct_of_an_ordered_array_stay() -> None:
    sql = spark("array_agg(distinct x order by x) filter (where y > 1) as a")

    assert sql.count("FILTER(WHERE y > 1)") == 2  # of the values, and of their count
    assert "ARRAY_DISTINCT(TRANSFORM(ARRAY_SORT(" in sql


def test_an_array_without_an_order_is_refused_in_both_dialects() -> None:
    with pytest.raises(ViewRefused, match="without an order"):
        spark("array_agg(x) as a")
    with pytest.raises(ViewRefused, match="without an order"):
        parse_view(Path("a.sql"), "select array_agg(x order by y) as a from t")


def test_percentiles_stay_exact() -> None:
    sql = spark("percentile_cont(0.5) within group (order by x) as m, percentile_disc(0.9) within group (order by x) n")

    assert "APPROX" not in sql
    assert "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x NULLS LAST) AS m" in sql
    assert "PERCENTILE_DISC(0.9) WITHIN GROUP" in sql


def test_a_time_zone_is_written_as_spark_has_it_and_guards_its_type() -> None:
    sql = spark("t at time zone 'utc' as a, t at time zone 'Europe/Zurich' as b")

    assert "CASE WHEN TYPEOF(t) = 'timestamp' THEN FROM_UTC_TIMESTAMP(t, 'UTC') ELSE RAISE_ERROR(" in sql
    assert "FROM_UTC_TIMESTAMP(t, 'Europe/Zurich')" in sql


def test_a_slice_of_an_array_is_a_slice() -> None:
    assert "SLICE(x, 2, GREATEST(0, (4) + 1 - (2)))" in spark("x[2:4] as a")
    assert "SLICE(x, 1, GREATEST(0, (2) + 1 - (1)))" in spark("x[:2] as a")


def test_the_demos_views_are_read_and_have_a_query_for_postgresql() -> None:
    folder = ROOT / "cdc" / "demo" / "views"
    views = {file.stem: read_view(file) for file in sorted(folder.glob("*.sql"))}

    assert list(views) == ["daily_revenue", "order_document", "timeline", "top_customers"]
    for name, view in views.items():
        beside = folder / f"{name}.pgsql"
        assert (view.dialect == "postgres") != beside.exists()
        if name != "daily_revenue":  # sqlglot misreads its window
            text = beside.read_text() if beside.exists() else view.sql
            assert columns(text, "postgres") == columns(view.spark_sql, "spark")


def columns(text: str, dialect: str) -> list[str]:
    query = sqlglot.parse_one(text, read=dialect)
    assert isinstance(query, exp.Query)
    return query.named_selects
