"""Views in PostgreSQL's SQL are translated by the types of their columns, or refused with line and alternative."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ViewRefused
from sinks.warehouse.views.definition import BoundView, bind, load_views, parse_view
from tests.fixtures.views.pg_columns import types_of_ddl
from tests.tpch import tables as tpch

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
    types = tpch.types()

    assert len(types) == 8
    assert len(bind(load_views(tpch.VIEWS), list(types), types)) == 22


def test_a_group_key_can_be_ordered_by_collation_c() -> None:
    ranked = 'row_number() over (order by count(*) desc, name collate "C") as place'
    assert "row_number()" in bound(f"select name, {ranked} from t group by name").sql
    assert bound('select name from t group by name order by name collate "C" limit 1').sql


@pytest.mark.parametrize(
    ("item", "written"),
    [
        ("code = 'a'", "(rtrim(`code`) = 'a')"),
        ("code::char(5)", "`code`"),
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
        ("select g as x from generate_series(1, 3) as g(t)", "column g does not exist", 2),
        ("select * from generate_series(1.5, 3) as g(t)", "generate_series(numeric, int4)", 2),
        ("select avg(ratio) as x from t", "avg(float8)", 2),
        ("select sum(ratio) as x from t", "sum(float8)", 2),
        ("select name as x from t order by name limit 1", "collation of the database", 2),
        ("select min(name) as x from t", "collation of the database", 2),
        ("select id as x from t where name < 'b'", "collation of the database", 2),
        ("select lower(name) as x from t", "lower(), which follows the collation", 2),
        ("select id as x from t where doc = '{}'", "compares values of type jsonb", 2),
        ("select missing as x from t", "column missing does not exist", 2),
        ("select t.id as x from t join t u on t.id = u.id where id = 1", "ambiguous", 2),
        ("select id as x from t full join t u on t.id < u.id", "joins full with a condition", 2),
        (
            "select id as x from t where id in (select count(*) from t u where u.id > t.id having true)",
            "exists or in",
            2,
        ),
        ("select id as x from t where id = 'a'", "is not known to mean the same int4", 2),
        ("select id as x from t where name = 1", "uses text and int4 together", 2),
        ("with recursive a as (select id from t) select id as x from a", "with recursive", 2),
        ("select ratio % 2 as x from t", "computes % of float8", 2),
        ("select ratio::text as x from t", "writes float8 as text", 2),
        (
            "select sum(id) over (order by id groups 1 preceding) as x from t",
            "a frame with groups",
            2,
        ),
        ("select id = big = ok as x from t", "without parentheses", 2),
        ("select distinct ratio as x from t", "makes rows distinct by float8", 2),
        ("select price / price / price as x from t", "divides a quotient", 2),
        ("select at at time zone 'Europe/Zurich' as x from t", "a time zone other than UTC", 2),
        ("select date_part('year', day) as x from t", "date_part()", 2),
        ("select t.id, (select u.big from t u where u.big = t.id order by u.id limit 1) as x from t", "with limit", 2),
        ("select case when ok then code else name end as x from t", "combines char(n) with text", 2),
        ("select nullif(code, name) as x from t", "uses nullif() of char and text", 2),
        ("select nullif('ab', code)::char(5) as x from t", "casts to char(n)", 2),
        ("select 1 in (id, 1) as x from t", "compares a constant with constants and other values", 2),
        ("select (id + 1) is distinct from (id + 1) as x from t", "an expression with itself", 2),
        ("select id as x from t where (id + 1) = (id + 1)", "an expression with itself", 2),
        (
            "select sum(1 / id) filter (where id > 0) over (order by id) as x from t",
            "a computed value over a window",
            2,
        ),
        ("select count(distinct 1 / id) filter (where id > 0) as x from t", "a computed value beside", 2),
        ("select sum(1 / id) filter (where ok) as x, count(distinct id) as n from t", "a computed value beside", 2),
        ("select percentile_cont(0.1) within group (order by id) as x from t", "percentile_cont(0.1)", 2),
    ],
)
def test_what_is_not_known_to_be_equal_is_refused(select: str, what: str, line: int) -> None:
    error = refusal(select)

    assert what.lower() in error.message.lower()
    assert error.facts["line"] == line
    assert error.hint


@pytest.mark.parametrize(
    "item",
    [
        "sum(1 / id) filter (where id > 0)",
        "sum(id) filter (where id > 0) over (order by id)",
        "count(*) filter (where id > 0) over (order by id)",
        "count(distinct id) filter (where id > 0)",
        "count(distinct case when id > 0 then 1 / id end)",
    ],
)
def test_filter_is_accepted_where_other_rows_are_not_computed(item: str) -> None:
    assert bound(f"select {item} as x from t").sql


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


def test_a_named_window_has_the_order_of_its_definition() -> None:
    named = "select first_value(id) over w as x from t window w as ({})"

    assert "order by `t`.`id`" in bound(named.format("order by id")).sql
    assert "arbitrary row" in refusal(named.format("partition by ok")).message


def test_order_by_without_limit_is_checked_and_left_out() -> None:
    assert "order by" not in bound("select id from t order by id desc").sql
    assert "without limit" in refusal("select id from t order by 1 / id").message


def test_several_grouping_sets_have_a_row_for_the_empty_set() -> None:
    found = bound("select ok, count(*) as n, grouping(ok) as g from t group by rollup (ok)").sql

    assert found.count(" union all ") == 1
    assert "cast(null as boolean) as `k0`, 1 as `g0`" in found
