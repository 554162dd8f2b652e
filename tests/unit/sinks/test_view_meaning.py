"""Views in PostgreSQL's SQL are translated by the types of their columns, or refused with line and alternative."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ViewRefused
from sinks.warehouse.views.definition import BoundView, bind, load_views, parse_view
from tests.fixtures.views.pg_columns import types_of_ddl
from tests.tidy.tree import ROOT

TPCH = ROOT / "tests" / "spark" / "meaning" / "tpch"
DDL = (
    "create table t (id int primary key, big bigint, name text, code char(5), price numeric(15,2), day date,"
    " at timestamp, placed timestamptz, ratio double precision, ok boolean, doc jsonb)"
)
TYPES = types_of_ddl(DDL)


def bound(select: str, *, header: str = "") -> BoundView:
    return bind([parse_view(Path("v.sql"), f"-- dialect: postgres\n{header}{select}")], list(TYPES), TYPES)[0]


def spark(item: str) -> str:
    return bound(f"select {item} as x from t").sql.removeprefix("select ").partition(" as `x`")[0]


def refusal(select: str, *, header: str = "") -> ViewRefused:
    with pytest.raises(ViewRefused) as refused:
        bound(select, header=header)
    return refused.value


def test_all_queries_of_tpch_are_accepted_with_its_own_tables() -> None:
    types = types_of_ddl((TPCH / "schema.sql").read_text())
    views = load_views(TPCH / "views")

    assert len(types) == 8
    assert len(bind(views, list(types), types)) == 22


@pytest.mark.parametrize(
    ("item", "written"),
    [
        ("code = 'a'", "(rtrim(`code`) = 'a')"),
        ("name is not null", "(not (`name` is null))"),
        ("name not like 'a'", "(not (`name` like 'a'))"),
        ("name not in ('a')", "(not (`name` in ('a')))"),
        ("day not between day and day", "(not ("),
        ("code = name", "(rtrim(`code`) = `name`)"),
        ("id / 2", "cast(`id` div 2 as int)"),
        ("id = big", "(`id` = `big`)"),
        ("name < 'b' collate \"C\"", "(`name` < 'b')"),
        ('upper(name collate "C")', "translate(`name`,"),
        ("day + 1", "then date_from_unix_date((unix_date(`day`) + 1))"),
        ("day >= '2024-02-29'", "(`day` >= date '2024-02-29')"),
        ("round(price, 1)", "cast(round("),
        ("price::int", "cast(round("),
        ("'it''s \\n'", "'it\\'s \\\\n'"),
    ],
)
def test_the_meaning_is_postgresqls(item: str, written: str) -> None:
    found = spark(item)
    assert written in found.replace("`t`.", "")


def test_a_quotient_of_numerics_has_a_division_for_each_scale() -> None:
    found = spark("avg(price)")

    assert "avg(" not in found
    assert "when 16 then" in found
    assert "when 20 then" in found


@pytest.mark.parametrize(
    ("select", "what", "line"),
    [
        ("select id,\n  soundex(name) as x\nfrom t", "SOUNDEX(name)", 3),
        ("select substring(name from 'a.*') as x from t", "substring(text, an untyped literal)", 2),
        ("select g as x from generate_series(1, 3) as g(t)", "reads from generate_series()", 2),
        ("select avg(ratio) as x from t", "avg(float8)", 2),
        ("select sum(ratio) as x from t", "sum(float8)", 2),
        ("select name as x from t order by name limit 1", "collation of the database", 2),
        ("select min(name) as x from t", "collation of the database", 2),
        ("select id as x from t where name < 'b'", "collation of the database", 2),
        ("select lower(name) as x from t", "lower(), which follows the collation", 2),
        ("select doc->>'a' as x from t", "uses doc ->> 'a', which is not known to be equal", 2),
        ("select id as x from t where name ~ '^a'", "uses name ~ '^a', which is not known to be equal", 2),
        ("select id as x from t where doc = '{}'", "is not known to mean the same jsonb", 2),
        ("select missing as x from t", "column missing does not exist", 2),
        ("select t.id as x from t join t u on t.id = u.id where id = 1", "ambiguous", 2),
        ("select id as x from t join t u using (id)", "using", 2),
        ("select id as x from t where id = 'a'", "is not known to mean the same int4", 2),
        ("select id as x from t where name = 1", "uses text and int4 together", 2),
        ("with recursive a as (select id from t) select id as x from a", "with recursive", 2),
        ("select ratio * 2 as x from t", "computes * of float8", 2),
        ("select ratio::text as x from t", "writes float8 as text", 2),
        (
            "select sum(id) over (order by id range between 1 preceding and current row) as x from t",
            "frame of range",
            2,
        ),
        ("select id = big = ok as x from t", "without parentheses", 2),
        ("select distinct ratio as x from t", "makes rows distinct by float8", 2),
        ("select price / price / price as x from t", "divides a quotient", 2),
        ("select at at time zone 'Europe/Zurich' as x from t", "a time zone other than UTC", 2),
        ("select date_part('year', day) as x from t", "date_part()", 2),
        ("select ok, count(*) as n from t group by rollup (ok)", "the empty set", 2),
        ("select case when ok then code else name end as x from t", "combines char(n) with text", 2),
        ("select percentile_cont(0.1) within group (order by id) as x from t", "percentile_cont(0.1)", 2),
    ],
)
def test_what_is_not_known_to_be_equal_is_refused(select: str, what: str, line: int) -> None:
    error = refusal(select)

    assert what.lower() in error.message.lower()
    assert error.facts["line"] == line
    assert error.hint


def test_a_declared_collation_orders_text() -> None:
    header = "-- collation: C\n"

    assert "order by `" in bound("select name as x from t order by name limit 1", header=header).sql
    assert "translate(" in bound("select lower(name) as x from t", header=header).sql
    assert "unknown collation: de_DE" in refusal("select id from t", header="-- collation: de_DE\n").message


def test_types_of_a_view_are_those_of_its_columns() -> None:
    first = parse_view(Path("a.sql"), "-- dialect: postgres\nselect code, count(*) as n from t group by code")
    second = parse_view(Path("b.sql"), "-- dialect: postgres\nselect n from a where code = 'x'")

    assert "rtrim(" in bind([first, second], list(TYPES), TYPES)[1].sql


def test_a_column_of_a_view_in_spark_sql_has_the_type_of_its_use_and_a_run_checks_it() -> None:
    first = parse_view(Path("a.sql"), "select id, upper(name) as name from t")
    second = parse_view(Path("b.sql"), "-- dialect: postgres\nselect a.name from a join t on a.id = t.id")

    found = bind([first, second], list(TYPES), TYPES)[1]

    assert {"id": "int"} in found.relies_on.values()


def test_a_table_whose_types_are_not_known_yet_is_refused() -> None:
    with pytest.raises(ViewRefused, match="not known yet"):
        bind([parse_view(Path("v.sql"), "-- dialect: postgres\nselect id from t")], list(TYPES))
