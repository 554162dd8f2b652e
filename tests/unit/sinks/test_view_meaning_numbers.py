"""Numbers, times and arrays in views in PostgreSQL's SQL: what is refused, with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot

from cdc.errors import ViewRefused
from sinks.warehouse.views.definition import bind, parse_view
from sinks.warehouse.views.meaning.intervals import Duration, read_interval
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.text_values import printed
from tests.fixtures.views.pg_columns import types_of_ddl

TYPES = types_of_ddl(
    "create table t (id int primary key, big bigint, name text, code char(5), price numeric(15,2), day date,"
    " at timestamp, placed timestamptz, ratio double precision, ok boolean, tags text[])"
)


def spark(select: str, *, header: str = "") -> str:
    return bind([parse_view(Path("v.sql"), f"-- dialect: postgres\n{header}{select}")], list(TYPES), TYPES)[0].sql


@pytest.mark.parametrize(
    ("item", "what", "hint"),
    [
        ("power(ratio, 2)", "power", "last digit"),
        ("stddev(id)", "stddev", "var_samp"),
        ("sum(ratio)", "sum(float8)", "order of rows"),
        ("min(ratio)", "min(float8)", "0 and -0"),
        ("sqrt(price)", "sqrt(numeric)", "x::float8"),
        ("ratio::text", "writes float8 as text", ""),
        ("ratio in (1, 2.5) and id # 1 | 2 = 0", "combines a bit operator", "parentheses"),
        ("~ id + 1", "combines ~", "parentheses"),
        ("id << 32", "shifts int4", "literal less than its bits"),
        ("age(at, at)", "age(timestamp, timestamp)", "extract(epoch"),
        ("at - at", "computes timestamp - timestamp", "extract(epoch"),
        ("interval '1 day'", "interval '1 day'", ""),
        ("day + interval '1.5 months'", "uses this interval", "numbers and units"),
        ("day + interval '1 day ago'", "uses interval '1 day ago'", "numbers and units"),
        ("day + interval '1 day 02:00'", "uses interval '1 day 02:00'", "numbers and units"),
        ("day + interval '- 1 day'", "uses interval '- 1 day'", "numbers and units"),
        ("day + interval 'P1D'", "uses interval 'P1D'", "numbers and units"),
        ("day + interval '1 fortnight'", "uses this interval", "numbers and units"),
        ("placed at time zone 'Europe/Berlin'", "rules differ", "-- time zones: same"),
        ("placed at time zone 'CET'", "uses this time zone", "'Europe/Berlin'"),
        ("to_char(day, 'Day')", "format of to_char()", "YYYY"),
        ("to_char(day, '%Y')", "uses % within to_char()", ""),
        ("to_char(at, 'SSSS')", "format of to_char()", "YYYY"),
        ("count(*) over (partition by tags order by id)", "lower bounds", "a[:] = b[:]"),
        ("tags[1]", "an element of a captured array", "(a[:])[1]"),
        ("tags[1:2]", "a slice of a captured array", "(a[:])[1]"),
        ("tags = tags", "lower bounds", "a[:] = b[:]"),
        ("unnest(tags)", "unnest() in the select list", "any(a)"),
        ("array[array[1]]", "makes an array of int4[]", ""),
        ("array_length(tags, 2)", "another dimension", "array_length(a, 1)"),
        ("percentile_disc(0.5) within group (order by ratio)", "percentile_disc() of float8", "numeric"),
        ("mode() within group (order by name)", "collation of the database", "collate"),
        ("count(distinct (id, ratio))", "counts rows with float8", ""),
        ("code::int", "casts char to int4", "cast it to text first"),
        ("nullif(at, at) is null and now() is null", "now()", "time from the rows"),
    ],
)
def test_what_is_not_known_is_refused_with_an_alternative(item: str, what: str, hint: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        spark(f"select {item} as x from t")

    assert what.lower() in refused.value.message.lower()
    assert hint in refused.value.hint


def test_a_float4_in_a_list_of_numbers_is_refused() -> None:
    types = {"mirror/public.t": {**TYPES["mirror/public.t"]}}
    with pytest.raises(ViewRefused, match="compares float4 with a list"):
        bind(
            [parse_view(Path("v.sql"), "-- dialect: postgres\nselect ratio::real in (0.1, 0.2) as x from t")],
            list(types),
            types,
        )


def test_declared_time_zones_are_translated() -> None:
    header = "-- time zones: same\n"

    assert "from_utc_timestamp(" in spark("select placed at time zone 'Europe/Berlin' as x from t", header=header)
    with pytest.raises(ViewRefused, match="unknown time zones: other"):
        spark("select id from t", header="-- time zones: other\n")


def test_an_argument_that_a_template_repeats_is_computed_once() -> None:
    assert spark("select ceil(sqrt(ratio)) as x from t").count(" sqrt(") == 1
    assert "named_struct(" not in spark("select ceil(ratio) as x from t")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 month 3 days", Duration(1, 3)),
        ("1 year -2 mons 36 hours", Duration(10, 0, 36 * 3_600_000_000)),
        ("-00:00:00.000001", Duration(0, 0, -1)),
        ("2 weeks 01:30", Duration(0, 14, 5_400_000_000)),
    ],
)
def test_intervals_are_read_in_parts(text: str, wanted: Duration) -> None:
    assert read_interval(sqlglot.parse_one(f"'{text}'::interval", read="postgres")) == wanted


@pytest.mark.parametrize("text", ["", "1", "1.5 days", "1 day ago", "P1D", "1 day 2", "0.0000001 seconds"])
def test_other_intervals_are_refused(text: str) -> None:
    with pytest.raises(NotProven):
        read_interval(sqlglot.parse_one(f"'{text}'::interval", read="postgres"))


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ("12:30", "time", "12:30:00"),
        ("12:30:00.500", "time", "12:30:00.5"),
        ("24:00", "time", None),
        ("192.168.0.1/32", "inet", "192.168.0.1"),
        ("192.168.0.1/24", "inet", "192.168.0.1/24"),
        ("::1", "inet", None),
        ("08:00:2B:01:02:03", "macaddr", "08:00:2b:01:02:03"),
        ("08002b010203", "macaddr", None),
        ("0102", "varbit", None),
        ("1", "money", None),
    ],
)
def test_literals_have_the_text_that_postgresql_prints(text: str, kind: str, wanted: str | None) -> None:
    assert printed(text, kind) == wanted


@pytest.mark.parametrize("item", ["big::float4 - id", "coalesce(big, 1::float4) - id"])
def test_a_float4_of_an_integer_is_no_cast_that_spark_joins_with_the_next(item: str) -> None:
    """Over files, Spark makes one cast of bigint to float and to double, and the value is not rounded to a float."""
    assert "cast(cast(`t`.`big` as decimal(19,0)) as float)" in spark(f"select {item} as x from t")
