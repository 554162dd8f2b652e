"""Random SQL as a view and on PostgreSQL, with a fixed seed. `make sql-fuzz` is the full run, with fresh seeds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from sqlglot import exp, parse_one

from sinks.warehouse.views.meaning.nullness import is_never_null
from tests.sqlfuzz.as_view import Views
from tests.sqlfuzz.batches import statement
from tests.sqlfuzz.expressions import Expressions, columns_of
from tests.sqlfuzz.fuzz import Fuzz, refused_rules
from tests.sqlfuzz.on_postgres import Postgres
from tests.sqlfuzz.outcome import compared
from tests.sqlfuzz.report import report
from tests.sqlfuzz.rules import SCALARS, Rule
from tests.sqlfuzz.unsolved import UNSOLVED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.running_servers import Database

_SEED: Final = 20261124
_EXPRESSIONS: Final = 1000
_QUERIES: Final = 30
_EQUAL_SHARE: Final = 0.7  # a fuzzer whose every query is refused proves nothing
_FAMILIES_LEAST: Final = 300
_INVALID_MOST: Final = 3  # a random query may be one that PostgreSQL does not accept

_FOUND_ONCE: Final = (
    "select (nullif('ab', c))::char(6) as x from side",
    "select (nullif(c, 'ab'))::char(6) as x, c::char(6) as y from side",
    "select string_agg(s, ',' order by id) as x, count(distinct v) filter (where i2 > 0) as n from mild",
    "select string_agg(s, ',' order by id) as x, count(distinct v) as n, count(distinct t) as m from mild",
    "select string_agg(s, ',' order by id) as x, count(distinct v) as n, sum(distinct i2) filter (where b) from mild",
    "select id, (array[id, (i2 * i4)] is not null) as x from wild where id = 1",
    "select id, (e = coalesce(nullif(v, v), 'ab '::varchar)) as x from mild",
    "select id, case ((1, mod(i8, i8)) < (k, i8)) when true then 1 else 3 end as x from mild where id = 3",
    "select id, least(0::float8, f8) as a, least(f8, 0::float8) as b, greatest(0::float8, f8) as c from mild",
    "select id, (i8 + (i2 + 10000000000)) as x from wild where id = 2",
    "select id, ((k, i8) < (-7, cast(''::text as int8))) as x from mild",
    "select id, (nullif(i2, i2) = cast('a'::text as int2)) as x from mild",
    "select id, (u in (u, cast(''::text as uuid))) as x from mild",
    "select id, (coalesce(date '1999-12-31', d) in (make_date(2024, 10, i4), date '1999-12-31')) as x from wild",
    "select id, (((i2 % i2))::numeric(10,2) is distinct from -2.50) as x from wild where id = 4",
    "select id, ((0.00001 = (t)::numeric(12,3)) is true) as x from mild where id = 1",
    "select id, (e = any(array[''::text, 'ab '])) as x from wild",
    "select id, (e in (''::text, 'ab ')) as x from wild",
    "select id, (e = any(array['ab ', 'c'])) as x from wild",
    "select id, -(-2147483648) as x, -2147483648 - 1 as y, i4 = -2147483648 as z from wild",
    "select id, -2147483648 - 1 as x from wild",
    "select id, (nullif(i2, i2) # cast('NaN'::float4 as int2)) as x, 7::int2 as y, -7::int8 as z from mild",
    "select i8 = -9223372036854775808 as x, -9223372036854775808 / 2 as y from wild",
    "select id, make_date(case when false then i4 end, 1, (id - i4)) as x from wild where id = 2",
    "select id, make_date(nullif(1, 1), 1, (id - i4)) as x from wild where id = 2",
    "select id, (id - i4)::float8 * null::float8 as x from wild where id = 2",
    "select id, case when ((k, t) = (k, s)) then '-0'::float8 else 0::float8 end as x from mild",
    "select id, case when b then round(-0.4::float8) else 0::float8 end as x from mild",
    "select id, case when b then -(0::float8) else 0::float8 end as x from mild",
    "select id, case when b then -('0e5'::float8) else 0::float8 end as x from mild",
    "select id, (e = greatest(v, nullif(v, v))) as x from mild",
    "select id, e = coalesce(t, v) as x, e = coalesce(v, t) as y, e = case when b then t else v end as z from mild",
    "select tz at time zone 'Asia/Tokyo' as x from wild where tz > '9999-12-01'",
    "select count(i4) filter (where tz is distinct from tz) over (partition by k order by id) as x from mild",
    "select string_agg(t, ',' order by id) as x, count(distinct 10) as y from wild",
    "select id, (m * nullif(-7, n)) as x from wild",
    "select k, count(distinct 10 / i4) filter (where i4 <> 0) as x from mild group by k",
    "select sum(10 / i4) filter (where i4 <> 0) as x, count(distinct t) as y, count(distinct id) as z from mild",
    "select id, sum(10 / i4) filter (where i4 <> 0) over (order by id) as x from mild",
    "select id, (position('' in s) not in ((k % i4), 1, null)) as x from wild where id = 5",
    "select id, k in (1 / i4, 1, 2, 3) as x from wild",
    "select id, k = any(array[k, 1 / i4]) as x from wild",
    "select id, case when (j ->> 'a')::bool then (1.5::float4)::float4 else 1.5::float4 end as x from wild",
    "select id, case when 1 / i4 > 0 then 2 else 1 + 1 end as x from wild",
    "select id, upper(to_hex(i4)) as x, lower(to_hex(i4)) as y, initcap(to_hex(i4)) as z from mild",
    "select id from wild where case when 1 / i4 > 0 then b else b end",
    "select id, (10 is not distinct from case jsonb_array_length(j) when id then 1 else 3 end) as x from mild",
)
_FLOATS_FOUND: Final = (
    *("f8 = 0", "f8 is not distinct from 0::float8", "f8 in (0::float8, 7::float8)", "f4 = 0::float4"),
    *("f8 = 'NaN'", "f4 = 'NaN'::float4", "f8 > 'Infinity'", "f8 > 5", "not f8 <= 5", "f8 <> 1"),
)


@pytest.fixture
def postgres(database: Database) -> Iterator[Postgres]:
    session = Postgres(database.dsn)
    yield session
    session.close()


@pytest.fixture
def views(spark: SparkSession, postgres: Postgres, tmp_path: Path) -> Iterator[Views]:
    made = Views(spark, postgres, tmp_path)
    yield made
    made.close()


def test_accepted_view_gives_postgresqls_rows(postgres: Postgres, views: Views) -> None:
    refused = refused_rules(views)
    fuzz = Fuzz(postgres, views, seed=_SEED, left_out=UNSOLVED, refused=refused)

    fuzz.run(expressions=_EXPRESSIONS, queries=_QUERIES)

    assert not fuzz.differences.cases, report(fuzz, _SEED)
    assert fuzz.invalid.total() <= _INVALID_MOST, report(fuzz, _SEED)
    assert fuzz.expressions.results["equal"] >= _EQUAL_SHARE * _EXPRESSIONS
    assert fuzz.queries.results["equal"] >= _EQUAL_SHARE * _QUERIES


def test_query_that_once_differed_is_equal_or_refused(postgres: Postgres, views: Views) -> None:
    results = {sql: compared(postgres, views, sql).result for sql in _FOUND_ONCE}

    assert {sql: found for sql, found in results.items() if found not in {"equal", "raised", "refused"}} == {}


def test_error_in_a_value_compared_with_a_query_without_rows_is_loud(postgres: Postgres, views: Views) -> None:
    texts = (
        "select id, (10 / (id - id) = any (select id from side where id < 0)) as x from mild where id = 1",
        "select id, 10 / (id - id) in (select id from side where id < 0) as x from mild where id = 1",
    )

    assert {compared(postgres, views, sql).result for sql in texts} == {"gives up"}


def test_error_in_a_row_that_a_window_function_does_not_need_is_loud(postgres: Postgres, views: Views) -> None:
    texts = (
        "select id, lag(10 / (id - 23)) over (order by id) as x from mild",
        "select id, sum(10 / (id - 1)) over (order by id rows between 1 following and 2 following) as x from mild",
    )

    assert {compared(postgres, views, sql).result for sql in texts} == {"gives up"}


def test_time_in_another_zone_after_the_year_9999_is_an_error(postgres: Postgres, views: Views) -> None:
    found = compared(
        postgres, views, "select ts at time zone 'America/New_York' as x from wild where ts > '9999-12-01'"
    )

    assert found.result == "gives up"
    assert "outside of the years 1 to 9999" in found.detail


def test_float_is_found_whatever_the_statistics_of_its_file_say(postgres: Postgres, views: Views) -> None:
    with views.product():
        results = {test: compared(postgres, views, f"select id from wild where {test}") for test in _FLOATS_FOUND}

    assert {test: found for test, found in results.items() if found.result != "equal"} == {}


def test_expression_that_spark_knows_is_never_null_is_known_to_the_translation(views: Views) -> None:
    """`is null` of it is refused then: Spark answers without computing it, and its errors are lost."""
    drawn, scope = Expressions(random.Random(_SEED)), columns_of("mild")
    unknown, seen = [], 0
    for rules in _by_family(SCALARS).values():
        for rule in random.Random(_SEED).sample(rules, min(3, len(rules))):
            sql = statement("mild", drawn.probe(rule, scope))
            view = views.read(sql)
            if isinstance(view, str):
                continue
            seen += 1
            item = parse_one(sql, dialect="postgres").expressions[1].unalias()
            if not views.is_nullable(view) and not is_never_null(item) and _columns(item) - {"id"}:
                unknown.append(sql)

    assert unknown == []
    assert seen > _FAMILIES_LEAST


def _by_family(rules: Sequence[Rule]) -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        found.setdefault(rule.family, []).append(rule)
    return found


def _columns(item: exp.Expr) -> set[str]:
    return {column.name for column in item.find_all(exp.Column)}
