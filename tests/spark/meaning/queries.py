"""Queries that cover aggregates, window functions and clauses, over the tables of hostile values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sinks.warehouse.views.meaning import known, known_aggregates
from tests.spark.meaning import query_forms, subquery_forms, text_cases
from tests.spark.meaning.hostile import COLUMNS

_TYPES: Final = {"numeric": "numeric(15,2)", "bpchar": "char(5)", "enum": "mood", "bit": "bit(3)"}

_LATERAL: Final = (
    "select l.n, t.n as m from c_int4 l left join lateral (select r.n from c_int2 r"
    " where r.c_int2 < l.c_int4 order by r.c_int2 limit 2) as t on true"
)
_PLAIN: Final = (
    "select distinct c_text from c_text",
    "select distinct c_char_5 from c_char_5",
    "select distinct on (a.c_bool) a.c_bool, b.c_int4 from c_bool a, c_int4 b order by a.c_bool, b.c_int4 desc",
    "select c_int4 from c_int4 order by c_int4 limit 3",
    "select c_int4 from c_int4 order by c_int4 desc limit 3 offset 1",
    'select c_text from c_text order by c_text collate "C" limit 9',
    'select c_text as x from c_text order by c_text collate "C" desc nulls last limit 9',
    "select c_float8 from c_float8 order by c_float8 desc limit 4",
    "select c_int4 as x from c_int4 union select c_int8 from c_int8",
    "select c_int4 as x from c_int4 union all select c_int8 from c_int8",
    "select c_int4 as x from c_int4 intersect select c_int2 from c_int2",
    "select c_int4 as x from c_int4 except select c_int2 from c_int2",
    "select 1 as x from c_int4 intersect all select 1 from c_int2",
    "select 1 as x from c_int4 except all select 1 from c_bool",
    "select c_text as x from c_text union select 'a' from c_bool",
    "select n from c_int4 where c_int4 not in (select c_int2 from c_int2)",
    "select n from c_int4 where c_int4 not in (select c_int2 from c_int2 where c_int2 is not null)",
    "select n from c_int4 where c_int4 in (select c_int8 from c_int8)",
    "select n from c_text where c_text in (select c_char_5 from c_char_5)",
    "select n from c_char_5 where c_char_5 in (select c_char_5 from c_char_5 where n < 4)",
    "select l.n from c_int4 l where exists (select 1 from c_int2 r where r.c_int2 = l.c_int4)",
    "select l.n from c_int4 l where not exists (select 1 from c_int2 r where r.c_int2 = l.c_int4)",
    "select l.n, (select count(*) from c_int2 r where r.c_int2 = l.c_int4) as k from c_int4 l",
    "select l.n, (select max(r.c_int2) from c_int2 r where r.c_int2 = l.c_int4) as k from c_int4 l",
    "select l.n, r.n as m from c_int4 l full join c_int8 r on l.c_int4 = r.c_int8",
    "select l.n, r.n as m from c_text l left join c_char_5 r on l.c_text = r.c_char_5",
    "select l.n, r.n as m from c_varchar_6 l join c_char_5 r on l.c_varchar_6 = r.c_char_5",
    "select l.n, r.n as m from c_bool l, c_int2 r where l.c_bool",
    _LATERAL,
    "with a as (select n, c_int4 as x from c_int4), b (y) as (select x from a where x > 0) select y from b",
    "select count(*) as k, sum(c_int4) as s, avg(c_int4) as a, min(c_int4) as l from c_int4 where false",
    "select c_int4 % 3 as g, count(*) as k from c_int4 group by c_int4 % 3 having count(*) > 1",
    "select c_int4 as g, count(*) as k from c_int4 group by 1",
    "select c_bool, n, count(*) as k from c_bool group by grouping sets ((c_bool, n), (c_bool))",
    "select sum(n) filter (where c_bool) as s, count(*) filter (where not c_bool) as k from c_bool",
    "select array_agg(c_int4 order by c_int4 desc) as x from c_int4",
    "select array_agg(distinct c_int4 order by c_int4) as x from c_int4",
    'select array_agg(n order by c_text collate "C", n) as x from c_text',
    "select string_agg(c_text, '|' order by n) as x from c_text",
    "select string_agg(c_char_5, '|' order by n) as x from c_char_5",
    "select count(distinct (a.c_bool, b.c_text)) as x from c_bool a, c_text b where b.n < 4",
    "select count(distinct (c_bool, c_bool)) filter (where n < 9) as x from c_bool where n < 0",
    "select every(c_bool) as x, bool_or(c_bool) filter (where n > 0) as y from c_bool",
    "select bit_and(c_int4) as a, bit_or(c_int8) as o, bit_xor(c_int2) as x from c_int4, c_int8, c_int2 where false",
    "select var_samp(n) as v, variance(n) as w, var_pop(n) as p from c_int4",
    "select n, var_samp(c_int2) over (order by n rows between 2 preceding and current row) as v from c_int2",
    "select var_pop(c_numeric_6_4) as v, var_samp(c_numeric_6_4) filter (where n > 2) as w from c_numeric_6_4",
    "select var_samp(n) as v, var_pop(n) as w from c_int4 where n = 3",
    "select var_samp(n) as v, var_pop(n) as w from c_int4 where false",
    "select distinct c_inet from c_inet union select c_inet from c_inet",
    "select c_time as x, count(*) as k from c_time group by c_time",
    "select l.n, r.n as m from c_inet l join c_inet r on l.c_inet = r.c_inet",
    "select l.n, r.n as m from c_int4range l left join c_int4range r on l.c_int4range = r.c_int4range",
    "select c_time from c_time order by c_time desc limit 3",
    "select c_varbit from c_varbit order by c_varbit limit 4",
    "select n from c_int4_array where 3 = any(c_int4_array)",
    "select (array_agg(c_int4 order by n))[2] as x, (array_agg(n order by n))[2:3] as y from c_int4",
    "select cardinality(array_agg(n order by n)) as x, array_length(array_agg(n order by n), 1) as y from c_int4",
    "select n, array_agg(n order by n) = array[n] as x from c_int4 group by n",
    "select a.x, count(*) as k from (select c_int4_array[:] as x from c_int4_array) as a group by a.x",
    "select percentile_disc(0.3) within group (order by c_int4) as x from c_int4",
    "select percentile_disc(0.9) within group (order by c_int2) as x from c_int2",
    "select percentile_cont(0.25) within group (order by c_int2) as x from c_int2",
    "select avg(n) as a, avg(distinct n) as d, sum(distinct n) as s from c_int4",
    "select avg(c_numeric_15_2) * 0.2 as x from c_numeric_15_2 where n < 8",
    "select round(avg(c_int8), 3) as x from c_int8 where n < 6",
)


def _by_order() -> Iterator[tuple[str, str]]:
    """Percentiles and mode over every type, with ties, other orders and no rows."""
    for kind in known_aggregates.PICKED_BY_ORDER:
        column, c = COLUMNS[_TYPES.get(kind, kind)], ' collate "C"' if kind == "text" else ""
        for fraction, where in (("0.3", ""), ("0.9", ""), ("0", ""), ("1", "where n > 2"), ("0.5", "where false")):
            call = f"percentile_disc({fraction}) within group (order by {column}{c})"
            yield f"percentile_disc {kind}", f"select {call} as x from {column} {where}"
        call = f"percentile_disc(0.4) within group (order by {column}{c} desc) filter (where n > 1)"
        yield f"percentile_disc {kind}", f"select n % 2 as g, {call} as x from {column} group by n % 2"
        for direction in ("", " desc"):
            call = f"mode() within group (order by a.{column}{c}{direction})"
            yield f"mode {kind}", f"select {call} as x from {column} a, c_bool b where (a.n + b.n) % 3 <> 0"
            yield f"mode {kind}", f"select {call} as x from {column} a where a.n > 3"


def queries() -> Iterator[tuple[str, str]]:
    """Yield what each query covers, and the query."""
    for name, kinds in known.AGGREGATES.items():
        for kind in kinds:
            column = COLUMNS[_TYPES.get(kind, kind)]
            c = ' collate "C"' if kind in {"text", "bpchar"} and name in {"min", "max"} else ""
            yield f"{name} {kind}", f"select {name}({column}{c}) as x from {column} where n < 6"
            yield (
                f"{name} {kind}",
                f"select n % 2 as g, {name}({column}{c}) as x from {column} where n < 6 group by n % 2",
            )
            if name == "count":
                yield f"{name} {kind}", f"select count(distinct {column}) as x from {column}"
    yield from _by_order()
    for name in known.WINDOWS:
        yield name, f"select n, {name}() over (partition by n % 2 order by c_int4 desc) as x from c_int4"
        yield name, f'select n, {name}() over (order by c_text collate "C") as x from c_text where n < 12'
    for name in known.SHIFTED:
        yield name, f"select n, {name}(c_int4, 2) over (order by n) as x, {name}(n) over (order by n) as y from c_int4"
    for name in known.PICKED:
        call = f"{name}(c_int4, 2)" if name == "nth_value" else f"{name}(c_int4)"
        yield name, f"select n, {call} over (partition by n % 2 order by n) as x from c_int4"
    for name in known.COUNTED:
        yield name, f"select n, {name}(3) over (partition by n % 2 order by n) as x from c_int4"
    frames = ("rows between 1 preceding and 1 following", "rows unbounded preceding")
    for frame in ("", *frames, "range between unbounded preceding and unbounded following"):
        for call in ("sum(n)", "avg(c_int2)", "count(c_int2)", "min(c_int2)"):
            yield "window", f"select n, {call} over (partition by n % 2 order by c_int2 {frame}) as x from c_int2"
    for query in (*_PLAIN, *text_cases.QUERIES, *query_forms.FORMS, *subquery_forms.FORMS):
        yield "clause", query
