"""Queries that cover subqueries, comparisons of rows, set operations, WITH, ORDER BY and DISTINCT ON."""

from __future__ import annotations

from typing import Final

_AS_VALUES: Final = (
    (
        "select l.n, l.c_int4 in (select c_int2 from c_int2) as x, l.c_int4 not in (select c_int2 from c_int2) as y"
        " from c_int4 l"
    ),
    (
        "select l.n, l.c_int4 in (select c_int2 from c_int2 where false) as x,"
        " l.c_int4 not in (select c_int2 from c_int2 where false) as y from c_int4 l"
    ),
    "select l.n from c_int4 l where (l.c_int4 in (select c_int2 from c_int2)) is null",
    "select l.n from c_int4 l where l.n > 7 or l.c_int4 not in (select c_int2 from c_int2 where n > 3)",
    "select l.n from c_int4 l where not (l.n > 7 and l.c_int4 in (select c_int2 from c_int2))",
    "select n from c_int4 where ((n in (select n from c_bool))) and not (n in (select n from c_bool where n = 1))",
    "select l.n from c_int4 l where l.c_int4 not in (select r.c_int2 from c_int2 r where r.n >= l.n)",
    "select l.n, l.c_int4 not in (select r.c_int2 from c_int2 r where r.n >= l.n) as x from c_int4 l",
    (
        "select l.n, case when l.c_int4 in (select r.c_int2 from c_int2 r) then 'y'"
        " when l.c_int4 not in (select r.c_int2 from c_int2 r) then 'n' else 'u' end as x from c_int4 l"
    ),
    "select l.n, l.n in (values (1), (null)) as x from c_int4 l",
    (
        "select l.n, exists (select 1 from c_int2 r where r.n > l.n) as x,"
        " not exists (select 1 from c_int2 r where r.n > l.n) as y from c_int4 l"
    ),
)
_ROWS: Final = (
    "select l.n from c_int4 l where (l.n, l.c_int4) in (select r.n, r.c_int2 from c_int2 r)",
    "select l.n from c_int4 l where (l.n, l.c_int4) not in (select r.n, r.c_int2 from c_int2 r)",
    (
        "select l.n, (l.n, l.c_int4) in (select r.n, r.c_int2 from c_int2 r) as x,"
        " (l.n, l.c_int4) not in (select r.n, r.c_int2 from c_int2 r) as y from c_int4 l"
    ),
    (
        "select l.n, (l.n, l.c_int4) in ((1, 0), (2, null), (3, -1)) as x,"
        " (l.n, l.c_int4) not in ((1, 0), (2, null), (3, -1)) as y from c_int4 l"
    ),
    (
        "select l.n, r.n as m, (l.n, l.c_int4) = (r.n, r.c_int2) as a, (l.n, l.c_int4) <> (r.n, r.c_int2) as b"
        " from c_int4 l, c_int2 r"
    ),
    (
        "select l.n, r.n as m, (l.c_int4, l.n) < (r.c_int2, r.n) as a, (l.c_int4, l.n) <= (r.c_int2, r.n) as b,"
        " (l.c_int4, l.n) > (r.c_int2, r.n) as c, (l.c_int4, l.n) >= (r.c_int2, r.n) as d from c_int4 l, c_int2 r"
    ),
    (
        "select l.n, r.n as m, row(l.c_int4, l.n) is distinct from row(r.c_int2, r.n) as a,"
        " row(l.c_int4, l.n) is not distinct from row(r.c_int2, r.n) as b from c_int4 l, c_int2 r"
    ),
    "select l.n, r.n as m, row(l.n, l.c_int4, 1) < row(r.n, r.c_int2, 2) as a from c_int4 l, c_int2 r",
)
_QUANTIFIED: Final = (
    (
        "select l.n, l.c_int4 = any (select c_int2 from c_int2) as a, l.c_int4 <> all (select c_int2 from c_int2) as b,"
        " l.c_int4 = some (select c_int2 from c_int2 where n > 1) as c from c_int4 l"
    ),
    (
        "select l.n, l.c_int4 > any (select c_int2 from c_int2) as a, l.c_int4 >= all (select c_int2 from c_int2) as b,"
        " l.c_int4 <= all (select c_int2 from c_int2 where n > 1) as c,"
        " l.c_int4 <> any (select c_int2 from c_int2) as d,"
        " l.c_int4 = all (select c_int2 from c_int2 where n > 8) as e from c_int4 l"
    ),
    "select l.n from c_int4 l where l.c_int4 > any (select c_int2 from c_int2 r where r.n = l.n + 1)",
    "select l.n from c_int4 l where l.c_int4 < all (select c_int2 from c_int2 r where r.n > l.n)",
)
_IN: Final = (
    (
        "select n from c_text where c_text in (select c_char_5 from c_char_5 where n < 4"
        " union all select c_char_5 from c_char_5 where n > 6)"
    ),
    "select n from c_varchar_6 where c_varchar_6 in (select distinct c_char_5 from c_char_5)",
    "select n from c_text where c_text not in (select c_char_5 from c_char_5 where c_char_5 is not null)",
    "select n, c_text in (select c_char_5 from c_char_5) as x from c_text",
    "select n from c_numeric_15_2 where c_numeric_15_2 in (select c_int8 from c_int8)",
    "select n from c_int4 where n in (select c_int2 from c_int2 order by c_int2 limit 5)",
    "select l.n from c_int4 l where l.n in (select count(*) from c_int2 r where r.n > l.n)",
    (
        "select l.n, l.n not in (select count(*) from c_int2 r where r.n > l.n) as x,"
        " l.n >= all (select max(n) from c_int2 r where r.n < l.n) as y from c_int4 l"
    ),
)
_EXISTS: Final = (
    "select l.n from c_int4 l where exists (select 1 from c_int2 r where (r.n, r.c_int2) = (l.n, l.c_int4))",
    (
        "select l.n from c_int4 l where exists (select 1 from c_int2 r where r.n = any (select b.n from c_bool b)"
        " and r.n = l.n)"
    ),
    "select l.n from c_int4 l where exists (select 1 from c_int2 r where r.n > l.n and r.c_int2 <> l.c_int4)",
    "select l.n from c_int4 l where not exists (select 1 from c_int2 r where r.n > l.n and r.c_int2 < l.c_int4)",
    "select l.n from c_int4 l where exists (select * from c_int2 r where r.n > l.n order by r.n limit 1 offset 3)",
    (
        "select l.n from c_int4 l where exists (select 1 from c_int2 r where r.n > l.n"
        " union all select 2 from c_bool b where b.n = l.n)"
    ),
    (
        "select l.n from c_int4 l where exists (select r.n % 2 from c_int2 r where r.n < l.n group by r.n % 2"
        " having count(*) > 2)"
    ),
    "select l.n from c_int4 l where l.n = 1 or exists (select 1 from c_int2 r where r.n = l.n + 2)",
    (
        "select l.n from c_int4 l where exists (select 1 from c_int2 r where r.n = l.n"
        " and exists (select 1 from c_bool b where b.n = r.n))"
    ),
    (
        "select l.n from c_int4 l where exists (select 1 from c_bool b"
        " where (select count(*) from c_int2 r where r.n > b.n) = b.n)"
    ),
    "select x from generate_series(1, 3) as g(x) where exists (select 1 from c_int4 l where l.n = x)",
)
_SCALAR: Final = (
    "select l.n from c_int4 l where 0 = (select count(*) from c_int2 r where r.n > l.n)",
    "select l.n, (select count(*) + 1 from c_int2 r where r.n < l.n - 6) as x from c_int4 l",
    "select l.n, (select coalesce(max(r.n), 77) from c_int2 r where r.n = l.n + 6) as x from c_int4 l",
    (
        "select l.n, (select case when count(*) = 0 then 'none' else 'some' end from c_int2 r where r.n < l.n - 6) as x"
        " from c_int4 l"
    ),
    "select l.n, (select count(*) from c_int2 r where r.n = l.n + 6 having count(*) < 1) as x from c_int4 l",
    "select l.n, (select count(*) from c_int2 r where r.n = l.n group by r.n) as x from c_int4 l",
    "select l.n, (select k + 1 from (select count(*) as k from c_int2 r where r.n > l.n) q) as x from c_int4 l",
    "select l.n, (select r.n from c_int2 r where r.n = l.n) as x from c_int4 l",
    "select l.n, (select r.n from c_int2 r where r.n < l.n order by r.n desc limit 1 offset 1) as x from c_int4 l",
    "select l.n, (select r.c_int2 from c_int2 r where r.n = l.n order by r.n limit 1) as x from c_int4 l",
    "select l.n, (select c_int2 from c_int2 where n = 100) as x from c_int4 l",
    (
        "select l.n, (select r.n from (select n, c_int2::int as c from c_int2) r"
        " where r.c = l.c_int4 order by r.n limit 1) as x from c_int4 l"
    ),
    "select l.n from c_int4 l where l.n > (select avg(r.n) from c_int2 r where r.n <> l.n)",
    "select (select 'a') || 'b' as x, (select null) is null as y, (select 'a') = 'a' as z",
    "select n, (select max(n) from c_int2) as m from c_int4 order by (select max(n) from c_int2), n limit 3",
)
_WITH: Final = (
    "with a as (select n from c_int4), b as (select n from a where n > 2) select a.n, b.n as m from a join b using (n)",
    (
        "with a as materialized (select n from c_int4), b as not materialized (select n from a)"
        " select count(*) as k from a, b"
    ),
    "with a as (select 1 as x) select * from (with a as (select 2 as x) select * from a) b, a as c(y)",
    "with a as (select 1 as x) select * from (with a as (select x + 1 as x from a) select * from a) b",
    (
        "with a as (select n from c_int4)"
        " select n from c_bool where n in (with b as (select n from a where n > 0) select n from b)"
    ),
    "with c_int4 as (select 5 as n) select n from c_int4",
    "with a(x) as (select n from c_int4 union select 100) select x from a where x > 5",
    "with unused as (select n from c_int4) select 1 as x",
)
_SETS: Final = (
    "select 1 as x union select 2.5 union select null",
    "select 1 as x union all select 1 union select 1",
    "select 1 as x union all (select 1 union select 1)",
    "select n as x from c_int4 union all (select n from c_int4 except all select n from c_bool)",
    "select 1 as x union select 2 intersect select 2",
    "select 1 as x except (select 2 union select 1)",
    (
        "select c_int8 as x from c_int8 union select c_int4 from c_int4"
        " union all select c_numeric_15_2 from c_numeric_15_2"
    ),
    "select c_int8 as x from c_int8 union select 9223372036854775806 union all select c_float8 from c_float8",
    "select distinct c_int8 as x from c_int8 union all select c_float8 from c_float8",
    "select c_varchar_6 as x from c_varchar_6 union select c_text from c_text",
    "select c_varchar_6 as x from c_varchar_6 union all select 'lit' union all select null",
    "select null as x, 'a' as y union select 1, null",
    "select c_date as x from c_date union select c_timestamp from c_timestamp",
    "select n as x from c_int4 union select c_int4 from c_int4 order by 1 nulls first limit 3 offset 1",
    "select n + 1, 2 from c_int4 union select 3, 4 order by 1, 2 limit 3",
    "(select n as x from c_int4 order by n limit 2) union all (select n from c_int4 order by n desc limit 2)",
    "select c_text collate \"C\" as x from c_text union select 'b' order by x limit 3",
    "select c_char_5 as x from c_char_5 union select c_char_5 from c_char_5",
    "select x, count(*) as k from (select n % 3 as x from c_int4 union all select n % 2 from c_int4) t(x) group by x",
)
_ORDER: Final = (
    "select c_int4 as x from c_int4 order by c_int4 fetch first 3 rows with ties",
    (
        "select c_bool, n % 2 as g from (select c_bool, n from c_bool union all select c_bool, n from c_bool) t"
        " order by c_bool fetch first 3 rows with ties"
    ),
    "select n from c_int4 order by n fetch first row only",
    "select n from c_int4 order by n desc offset 2 rows fetch next 3 rows only",
    "select n from c_int4 order by n offset 4",
    "select count(*) as k, n % 3 as g from c_int4 group by n % 3 order by count(*) fetch first 1 rows with ties",
    "select distinct on (1) n % 2 as g, n from c_int4 order by 1, n desc",
    "select distinct on (g) n % 2 as g, n from c_int4 order by g desc, n",
    "select distinct on (n % 2, n % 3) n from c_int4 order by n % 3, n % 2, n desc",
    "select distinct on (n % 2) n % 2 as g, count(*) as k from c_int4 group by n % 2, n % 3 order by n % 2, n % 3 desc",
    "select distinct l.n % 2 as g from c_int4 l order by l.n % 2 desc limit 1",
    "select n from c_int4 order by c_int4 % 3, n limit 4",
    "select -n as n from c_int4 order by n limit 3",
    "select -n as n from c_int4 l order by l.n limit 3",
    "select n % 2 as g, count(*) as k from c_int4 group by 1 order by count(*) desc, 1 limit 1",
    "select n % 2 as g from c_int4 group by 1 order by max(c_int4), 1 limit 1",
)
FORMS: Final = (*_AS_VALUES, *_ROWS, *_QUANTIFIED, *_IN, *_EXISTS, *_SCALAR, *_WITH, *_SETS, *_ORDER)
FAILING: Final = (
    "select l.n, (select r.n from c_int2 r where r.n < l.n) as x from c_int4 l",
    "select l.n, (select c_int2 from c_int2) as x from c_int4 l",
    "select n from c_int4 where c_int4 > (select c_int2 from c_int2 where n > 2)",
)
"""Queries of which PostgreSQL raises an error when it runs them: a subquery has several rows."""
REFUSED: Final = (
    ("select n from c_int4 l where exists (select count(*) from c_int2 r where r.n > l.n)", "always true"),
    (
        "select n from c_int4 l where exists (select count(*) from c_int2 r where r.n > l.n having count(*) = 0)",
        "correlated aggregate",
    ),
    (
        (
            "select n from c_int4 l where exists"
            " (select 1 from (select count(*) as k from c_int2 r where r.n > l.n) q where q.k = 0)"
        ),
        "correlated aggregate",
    ),
    (
        "select l.n, (select r.c_int2 from c_int2 r where r.c_int2 = l.c_int4 order by r.n limit 1) as x from c_int4 l",
        "with limit",
    ),
    (
        (
            "select l.n, t.x from c_int4 l left join lateral"
            " (select r.n as x from c_int2 r where r.n = l.n + 1 order by r.n limit 1) t on true"
        ),
        "with limit",
    ),
    (
        "select l.n from c_int4 l where exists (select 1 from c_int2 r where r.c_int2 = l.c_int4 order by r.n limit 1)",
        "with limit",
    ),
    (
        (
            "select l.n from c_int4 l where exists (select 1 from c_int2 r where r.n = l.n"
            " and exists (select 1 from c_bool b where b.n = l.n))"
        ),
        "not directly around it",
    ),
    (
        "select l.n, (select max(r.n + l.n) from c_int2 r where r.n = l.n) as x from c_int4 l",
        "mixes columns of a subquery",
    ),
    (
        "select n, (select max(r.n) from c_int2 r where r.n = c_int4.n) as w from c_int4 group by rollup (n)",
        "a correlated subquery beside aggregates",
    ),
    (
        "select l.n, (select r.n from c_int2 r where r.n in (l.n + 1) order by r.n limit 1) as x from c_int4 l",
        "with limit",
    ),
    (
        "select l.n, (select r.n from c_int2 r where not r.n <> l.n + 1 order by r.n limit 1) as x from c_int4 l",
        "with limit",
    ),
    (
        "select l.n, (select r.n from c_int2 r where (r.n, 1) = (l.n + 1, 1) order by r.n limit 1) as x from c_int4 l",
        "with limit",
    ),
    ("select * from (select n, count(*) from c_int4 group by n) t", "a subquery with unnamed columns"),
    ("with t as (select n, count(*) from c_int4 group by n) select t.* from t", "a subquery with unnamed columns"),
    ("select n from c_int4 natural join (select n, count(*) from c_int4 group by n) t", "by natural join"),
    ("select s__.n from c_int4 as s__", "the name s__"),
    ("select n, count(*) over (order by n groups 1 preceding) as a from c_int4", "a frame with groups"),
    (
        "select n, sum(n) over (order by n rows 1 preceding exclude current row) as a from c_int4",
        "a frame with exclude",
    ),
    ("select n from c_int4 order by 1 / n", "an expression without limit"),
    ('select n as x, c_int4 as "X" from c_int4 as t', "two with the same"),
    ('select t.x from (select n as "X", n as x from c_int4) as t', "one name in Spark"),
)
"""Queries that PostgreSQL accepts and Spark cannot compute, or computes wrongly; with a part of the message."""
