"""Queries that cover joins, rows in FROM, grouping sets and windows, over the tables of hostile values."""

from __future__ import annotations

from typing import Final

JOINS: Final = (
    "select * from c_int4 join c_int2 using (n)",
    "select * from c_int4 left join c_int2 using (n)",
    "select n, c_int4, c_bool from c_bool right join c_int4 using (n)",
    "select n, c_int4, c_bool from c_bool full join c_int4 using (n)",
    "select * from c_bool full join c_int4 using (n) full join c_int8 using (n)",
    "select n, a.n as an, b.n as bn from c_bool a full join c_int4 b using (n) where n > 1",
    "select * from c_bool natural join c_int4",
    "select * from c_bool natural left join c_int4 natural join c_int2",
    "select a.*, b.c_int4 from c_bool a natural full join c_int4 b",
    "select * from (select n as x from c_bool) a natural join (select n as y from c_bool) b",
    "select x, y from c_int4 as a(x, y) join c_int2 as b(x, z) using (x)",
    "select x, c_int4 from c_int4 as a(x)",
    "select n, k from (select n, count(*) from c_int4 group by n) as t(n, k)",
    "select n, count(*) as k from c_bool join c_int4 using (n) group by n",
    "select k from (select c_int4 from c_int4) as a(k) join (select c_int8 from c_int8) as b(k) using (k)",
    "select k from (select c_varchar_6 from c_varchar_6) as a(k) join (select c_text from c_text) as b(k) using (k)",
    (
        "select k from (select c_int4 from c_int4) as a(k)"
        " full join (select c_numeric_15_2 from c_numeric_15_2) as b(k) using (k)"
    ),
    "select a.n, b.n as m from c_bool a join (c_int4 b join c_int2 c on b.n = c.n) on a.n = b.n",
    (
        "select a.n, b.n as m, c.n as o from c_bool a"
        " left join (c_int4 b left join c_int2 c on b.n = c.n + 1) on a.n = b.n"
    ),
    "select a.n, b.n as m, c.n as o from c_bool a left join c_int4 b left join c_int2 c on b.n = c.n + 1 on a.n = b.n",
    "select a.n, b.n as m from c_bool a, c_int4 b join c_int2 c on b.n = c.n",
    "select a.n, b.n as m from c_int4 a full join c_int2 b on a.n = b.n and a.c_int4 = b.c_int2",
    "select a.n, b.n as m from c_int4 a full join c_int2 b on a.n = b.n and a.n > 3",
    "select a.n, b.n as m from c_int4 a full join c_int2 b on true",
    "select count(*) as k from c_int4 a cross join c_int4 b cross join c_int4 c where a.n = b.n and b.n < c.n",
    "select a.n from c_int4 a join c_int2 b on a.n = b.n and a.n in (select n from c_bool)",
    "select a.n, l.m from c_bool a, lateral (select b.n as m from c_int4 b where b.n > a.n) l",
    (
        "select a.n, b.n as bn, l.m from c_bool a join c_int2 b on a.n = b.n,"
        " lateral (select count(*) as m from c_int4 b where b.n > a.n + 5) l"
    ),
    "select a.n, l.m from c_bool a left join lateral (select b.n as m from c_int4 b where b.n > a.n) l on l.m > 6",
    "select a.n, l.k from c_int4 a cross join lateral (select count(*) as k from c_int2 r where r.c_int2 = a.c_int4) l",
    (
        "select a.n, l.k from c_int4 a"
        " left join lateral (select count(*) as k from c_int2 r where r.n > a.n having count(*) > 2) l on true"
    ),
    "select a.n, l.x from c_int4 a cross join lateral (select a.n + 1 as x union all select a.n) l",
    (
        "select l.n, t.x from c_int4 l left join lateral"
        " (select r.n as x from c_int2 r where r.n = l.n order by r.n limit 1) t on true"
    ),
)
ROWS: Final = (
    "select * from (values (1, 'a'), (2, null)) as v(a, b)",
    "select a, b from (values (1, 'a'), (2.5, 'b')) as v(a, b)",
    "select column1, column2 from (values (1, true), (2, false)) as v",
    "with v(a) as (values (1), (2)) select a + 1 as b from v",
    "select l.n, v.k, v.x from c_int4 l cross join lateral (values ('n', l.n), ('c', l.c_int4)) as v(k, x)",
    "select n from c_int4 union values (100), (1)",
    "select l.n from c_int4 l where l.n in (values (1), (2))",
    "select v.d from (values (date '2024-02-29'), ('2024-01-01')) as v(d)",
    "select g from generate_series(1, 5) as g",
    "select g.x + 1 as y from generate_series(5, 1, -2) as g(x)",
    "select x from generate_series(3, 1) as g(x)",
    "select generate_series from generate_series(2, 3)",
    "select l.n, g.x from c_int4 l cross join generate_series(1, l.n) as g(x)",
    (
        "select l.n, g.x, g.o from c_int4 l left join lateral generate_series(l.n, 8, 3) with ordinality as g(x, o)"
        " on true"
    ),
    "select x from generate_series(2147483640, 2147483647, 5) as g(x)",
    "select x from generate_series(9223372036854775805, 9223372036854775807) as g(x)",
    "select x from generate_series(date '2024-02-27', date '2024-03-02', interval '1 day') as g(x)",
    (
        "select x from generate_series(timestamp '2024-02-27 12:00:00', timestamp '2024-03-02 00:00:00',"
        " interval '7 hours') as g(x)"
    ),
    (
        "select a.n, g.x from c_timestamp a,"
        " generate_series(a.c_timestamp, a.c_timestamp + interval '2 days', interval '1 day') as g(x)"
        " where a.n in (1, 2, 3)"
    ),
    (
        "select u.x, u.o from (select array_agg(n order by n desc) as a from c_int4) t,"
        " unnest(t.a) with ordinality as u(x, o)"
    ),
    (
        "select t.g, u from (select n % 2 as g, array_agg(c_int4 order by n) as a from c_int4 group by n % 2) t"
        " cross join unnest(t.a) as u"
    ),
    (
        "select unnest, ordinality from (select array_agg(n order by n) filter (where n > 100) as a from c_int4) t,"
        " unnest(t.a) with ordinality"
    ),
)
GROUPS: Final = (
    (
        "select c_bool, n % 2 as g, count(*) as k, sum(n) as s, grouping(c_bool, n % 2) as b from c_bool"
        " group by rollup (c_bool, n % 2)"
    ),
    (
        "select c_bool, n % 2 as g, count(*) as k, grouping(c_bool) as a, grouping(n % 2) as b from c_bool"
        " group by cube (c_bool, n % 2)"
    ),
    "select count(*) as k, sum(n) as s from c_bool where false group by rollup (c_bool)",
    "select c_bool, count(*) as k from c_bool where false group by grouping sets ((c_bool), ())",
    "select count(*) as k from c_bool where false group by grouping sets ((), ())",
    "select c_bool, n, count(*) as k from c_bool group by c_bool, rollup (n)",
    "select c_bool, n, count(*) as k from c_bool group by grouping sets (c_bool, rollup (n), (c_bool, n))",
    "select c_bool, count(*) as k from c_bool group by grouping sets ((c_bool), (c_bool), ())",
    "select c_bool, n, sum(n) as s from c_bool group by rollup (c_bool), cube (n)",
    "select n, sum(n) as s, sum(n + 1) as t from c_bool group by rollup (n)",
    "select n + 1 as m, (n + 1) * 2 as o, count(*) as k from c_bool group by rollup (n + 1)",
    "select n % 2 as g, count(*) as k, rank() over (order by count(*) desc) as r from c_int4 group by rollup (n % 2)",
    "select n % 2 as g, count(*) as k from c_int4 group by rollup (n % 2) having count(*) > 4",
    "select n % 2 as g, count(*) as k from c_int4 group by rollup (1) having grouping(n % 2) = 1",
    "select n % 2 as g, count(*) as k from c_int4 group by rollup (g) order by k desc, g limit 2",
    "select distinct count(*) as k from c_int4 group by cube (n, c_int4)",
    "select coalesce(n, -1) as w, count(*) as k from c_int4 group by rollup (n)",
    "select n, c_int4, count(*) filter (where c_int4 > 0) as k from c_int4 group by rollup ((n, c_int4))",
    "select 1 as x from c_int4 group by ()",
    "select count(*) as x from c_int4 where false group by ()",
    "select 1 as x from c_int4 having count(*) > 3",
    "select count(*) as x from c_int4 where false having count(*) = 0",
    "select 1 as x from c_int4 where false having true",
    "select n % 2 as g, count(*) as k from c_int4 group by g",
    "select n % 2 as n, count(*) as k from c_int4 group by n",
    "select n % 2 as g, count(*) as k, grouping(n % 2) as z from c_int4 group by 1",
    "select max(n) - min(n) as d, n % 3 as g from c_int4 group by n % 3 having max(n) > 6 and min(n) < 2",
    "select sum(count(*)) over () as x, n % 2 as g from c_int4 group by n % 2",
    "select g, (select max(r.n) from c_int2 r where r.n = g) as x from (select n % 2 as g from c_int4) l group by g",
    "select n % 2 as g, count(*) as k from c_int4 l group by n % 2 having count(*) > all (select r.n from c_bool r)",
    "select n % 2 as g, count(*) as k from c_int4 l group by n % 2 having count(*) in (select r.n from c_int2 r)",
    (
        "select g, count(*) as k from (select n, n % 2 as g from c_int4) l group by g"
        " having exists (select 1 from c_bool b where b.n = g) order by k desc, g limit 1"
    ),
)
WINDOWS: Final = (
    (
        "select sum(n) over w as x, rank() over w as r, count(*) over (w rows 1 preceding) as c from c_int4"
        " window w as (partition by n % 2 order by n)"
    ),
    "select sum(n) over v as x from c_int4 window w as (partition by n % 2), v as (w order by n desc)",
    "select n, count(*) over (order by c_int4 range between 7 preceding and 1 following) as g from c_int4",
    "select n, count(*) over (order by c_int4 desc range between 7 preceding and 1 following) as g from c_int4",
    (
        "select n, count(*) over (order by c_int4 nulls first range between 7 preceding and 100 following) as g"
        " from c_int4"
    ),
    "select n, sum(n) over (order by c_int8 range between 10 preceding and current row) as g from c_int8",
    (
        "select n, sum(n) over (order by c_int8 desc nulls last range between unbounded preceding and 3 following) as g"
        " from c_int8"
    ),
    "select n, sum(n) over (order by c_int2 range between 1 following and unbounded following) as g from c_int2",
    (
        "select n, count(*) over (order by c_date range between interval '7 days' preceding"
        " and interval '1 day' following) as g from c_date"
    ),
    (
        "select n, count(*) over (order by c_timestamp range between interval '40 days' preceding and current row) as g"
        " from c_timestamp"
    ),
    (
        "select n, count(*) over (order by c_timestamptz desc range between interval '40 days' preceding"
        " and interval '2 weeks' following) as g from c_timestamptz"
    ),
    (
        "select n, percent_rank() over (partition by n % 2 order by c_bool) as a,"
        " cume_dist() over (partition by n % 2 order by c_bool desc) as b from c_bool"
    ),
    "select n, cume_dist() over (order by c_int2 % 3) as b, percent_rank() over (order by c_int2 % 3) as a from c_int2",
    (
        "select n, ntile(4) over (order by n) as a, ntile(100) over (order by n) as b, ntile(1) over (order by n) as c"
        " from c_int4"
    ),
    (
        "select n, nth_value(c_int4, 2) over (order by n) as a,"
        " nth_value(n, 3) over (order by n rows between 1 preceding and 1 following) as b from c_int4"
    ),
    (
        "select n, nth_value(n, 2) over (order by n rows between unbounded preceding and unbounded following) as a"
        " from c_int4"
    ),
    (
        "select n, lag(n, 1, -1) over (order by n) as a, lead(n, 2, c_int4) over (order by n) as b,"
        " lag(c_int4, 0) over (order by n) as c from c_int4"
    ),
    "select n, lag(n, 1, 1.5) over (order by n) as a, lag(c_text, 1, 'none') over (order by n) as b from c_text",
    (
        "select n, lead(n) over (order by n rows between 1 preceding and current row) as a,"
        " rank() over (order by n rows 1 preceding) as b from c_int4"
    ),
    (
        "select n, first_value(c_int4) over (order by n rows between 1 preceding and current row) as a,"
        " last_value(c_int4) over (order by n rows between current row and 1 following) as b from c_int4"
    ),
    (
        "select n, first_value(n) over (order by n rows between 2 following and 3 following) as a,"
        " sum(n) over (order by n rows between 3 preceding and 2 preceding) as b from c_int4"
    ),
    (
        "select n, sum(n) filter (where n > 2) over (order by n) as a,"
        " count(*) filter (where c_int4 > 0) over (partition by n % 2) as b from c_int4"
    ),
    "select n, avg(c_int2) over (order by n rows between 2 preceding and current row) as a from c_int2",
    "select n, sum(n) over (order by n rows between 1 preceding and 1 following exclude no others) as a from c_int4",
    "select sum(n) over (order by n) as s from c_int4 order by sum(n) over (order by n) desc limit 2",
    "select distinct rank() over (order by n % 2) as r from c_int4",
)
FORMS: Final = (*JOINS, *ROWS, *GROUPS, *WINDOWS)
