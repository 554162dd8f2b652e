"""Spark reads the planner's text of a view as it reads the view, whichever functions it uses."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlglot.errors import SqlglotError

from sinks.warehouse.planner.plan import plan_view
from sinks.warehouse.planner.relations import Relation
from sinks.warehouse.planner.spark_text import tree_of
from sinks.warehouse.planner.tree import is_aggregate
from sinks.warehouse.views.same_query import same_query

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS: Final = {
    "id": "bigint",
    "g": "int",
    "s": "string",
    "at": "timestamp",
    "ntz": "timestamp_ntz",
    "d": "date",
    "n": "int",
    "x": "double",
    "m": "decimal(12,2)",
    "b": "boolean",
    "arr": "array<int>",
    "st": "struct<a:int,b:string>",
    "mp": "map<string,int>",
    "bin": "binary",
}
OF_TIME: Final = """
date_trunc('day', at); date_trunc('HOUR', ntz); date_trunc('week', d); trunc(d, 'month'); date(at); at::date;
to_date(s); to_date(s, 'yyyy-MM-dd'); to_timestamp(s); to_timestamp(s, 'yyyy'); timestamp(s); date_format(d, 'E');
extract(hour from at); date_part('year', d); datediff(d, d); datediff(month, d, d); date_diff(day, d, d);
date_add(d, 1); date_sub(d, 1); d + 1; d - interval 1 day; at + interval '1' hour; at - interval '2 days'; at - at;
add_months(d, 1); next_day(d, 'mon'); year(d); quarter(d); dayofweek(d); hour(at); second(at); unix_timestamp(at);
unix_micros(at); unix_date(d); from_unixtime(id); timestamp_millis(id); from_utc_timestamp(at, 'Europe/Zurich');
convert_timezone('UTC', 'Europe/Zurich', ntz); timestampdiff(second, at, at); timestampadd(hour, 1, at);
dateadd(day, 1, d); make_date(n, 1, 1); date '2026-01-01'
"""
OF_TEXTS: Final = """
concat(s, 'a'); s || 'a'; concat_ws('-', s, s); substring(s, 1, 2); substring(s from 2 for 3); substr(s, 2);
left(s, 2); upper(s); initcap(s); trim(s); trim(both 'x' from s); length(s); len(s); char_length(s); split(s, ',')[0];
split_part(s, ',', 1); regexp_replace(s, 'a', 'b'); regexp_extract(s, '(a)', 1); regexp_like(s, 'a'); s like 'a%';
s ilike 'a%'; s rlike 'a'; s not like 'a%'; s in ('a', 'b'); replace(s, 'a', 'b'); lpad(s, 3, 'x'); reverse(s);
repeat(s, 2); instr(s, 'a'); locate('a', s); position('a' in s); contains(s, 'a'); space(n); md5(s); sha2(s, 256);
base64(bin); hex(n); format_string('%d', n); to_char(m, '999.99'); string(n); get_json_object(s, '$.a');
from_json(s, 'a int'); to_json(st); parse_url(s, 'HOST'); translate(s, 'ab', 'cd'); soundex(s); ascii(s); chr(n)
"""
OF_NUMBERS: Final = """
cast(s as int); try_cast(s as int); s::int; int(s); bigint(s); double(n); boolean(n); cast(n as decimal(10,2));
round(m, 1); bround(m, 1); floor(x); ceil(x); abs(n); mod(n, 2); n % 2; n div 2; n / 2; pmod(n, 2); -n; m / 3;
greatest(n, 1); pow(n, 2); sqrt(x); exp(x); ln(x); log(x); log(2, x); log10(x); log2(x); sign(n); signum(n);
width_bucket(x, 0, 1, 10); n & 1; n | 1; ~n; n << 1; isnan(x); try_divide(n, 2); coalesce(n, 0); nvl(n, 0);
ifnull(n, 0); nvl2(n, 1, 2); nullif(n, 0); if(b, 1, 2); case when b then 1 else 2 end; case n when 1 then 'a' end;
decode(n, 1, 'a', 'b'); n between 1 and 2; n <=> 1; n is distinct from 1; not b; b is true; array(1, n)[0];
element_at(arr, 1); size(arr); array_contains(arr, 1); array_join(array(s), ','); sort_array(arr); sequence(1, n);
transform(arr, a -> a + 1); filter(arr, a -> a > 1); aggregate(arr, 0, (a, v) -> a + v); st.a; struct(n, s);
struct(n as k); named_struct('k', n); mp['a']; map('a', n); map_keys(mp); 1.5; 1e3; 2L; true; 'it\\'s'; null
"""
OF_GROUPS: Final = """
count(*); count(distinct n, s); count_if(b); count(*) filter (where b); sum(m); sum(distinct n); avg(n); min(s);
max(at); max_by(s, n); stddev(x); corr(x, x); bool_and(b); every(b); bit_or(n); sort_array(collect_list(n));
percentile(n, 0.5); percentile_cont(0.5) within group (order by n);
percentile_disc(0.5) within group (order by n desc); median(n); mode() within group (order by n);
approx_count_distinct(n); regr_slope(x, x); theta_sketch_estimate(theta_sketch_agg(n)); try_sum(n); sum(n) / count(*);
max(struct(at, s)).s; date_trunc('day', max(at)); datediff(day, min(d), max(d)); int(sum(n)); to_date(min(s), 'yyyy')
"""
OF_WINDOWS: Final = """
row_number() over (partition by g order by n, id); rank() over (partition by g order by n desc nulls last);
lag(n, 2, 0) over (partition by g order by id); first_value(n) over (partition by g order by id);
sum(n) over (partition by g order by id rows between 2 preceding and current row);
n - lag(n) over (partition by g order by id);
avg(n) over (partition by g order by at range between interval 1 hour preceding and current row);
count(*) over (partition by g)
"""
KINDS: Final = {
    "time": ("select id, {} from t", OF_TIME),
    "texts": ("select id, {} from t", OF_TEXTS),
    "numbers": ("select id, {} from t", OF_NUMBERS),
    "groups": ("select g, {} from t group by g", OF_GROUPS),
    "windows": ("select g, {} from t", OF_WINDOWS),
    "keys": ("select {}, count(*) as n from t group by all_of_them", "date_trunc('day', at); date(ntz); int(s)"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_usual_functions_leave_a_view_its_plan(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    spark = spark.newSession()  # temporary views are its own
    place = str(tmp_path / "t")
    spark.createDataFrame([], ", ".join(f"{name} {of}" for name, of in COLUMNS.items())).write.parquet(place)
    spark.read.parquet(place).createOrReplaceTempView("t")
    query, texts = KINDS[kind]
    calls = [one.strip() for one in texts.split(";")]
    sql = query.format(", ".join(f"{call} as c{number}" for number, call in enumerate(calls)))
    sql = sql.replace("all_of_them", ", ".join(calls))

    plan = plan_view("v", sql, {"t": Relation("t", COLUMNS, ("id",))})

    assert plan.reason == ""
    assert same_query(spark.sql(sql), spark.sql(plan.whole_sql()))


def test_planner_knows_every_aggregate_of_spark(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    registry = catalyst.analysis.FunctionRegistry.builtin()
    names = [found.funcName() for found in jvm.scala.jdk.javaapi.CollectionConverters.asJava(registry.listFunction())]
    groups = {name: registry.lookupFunction(catalyst.FunctionIdentifier(name)).get().getGroup() for name in names}
    aggregates = [name for name, group in groups.items() if group == "agg_funcs" and name.isidentifier()]

    assert len(aggregates) > 80
    assert [name for name in aggregates if not is_known(name)] == []


def is_known(name: str) -> bool:
    """Whether the planner takes a call for an aggregate, however many arguments the parser accepts."""
    found = []
    for arguments in ("a", "a, b", "a, b, c", ""):
        with suppress(SqlglotError):
            found.append(any(map(is_aggregate, tree_of(f"select {name}({arguments}) as x from t").walk())))
    return bool(found) and all(found)
