"""Generates forms of queries from templates: joins, rows in FROM, grouping sets, windows, subqueries, set operations.

In a template, ``[a|b]`` is one of two texts, and ``<kind@names>`` an expression of a type over the columns of the
aliases: `a` is the table `mild`, `b` the table `side`. A result column is named x0, x1 and so on.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection
from typing import Final

from tests.sqlfuzz.expressions import Expressions, columns_of, merged
from tests.sqlfuzz.tree import Node, filled

_JOIN: Final = "[join|left join|right join|full join]"
_COMPARED: Final = "[=|<>|<|<=|>|>=]"
_FRAME: Final = (
    "[rows 1 preceding|rows between 1 preceding and 2 following|rows between unbounded preceding and 1 following"
    "|rows between 1 following and unbounded following|range unbounded preceding|]"
)
_SETS: Final = "[union|union all|intersect|intersect all|except|except all]"
_FORMS: Final = (
    (
        "using",
        "int4 int4 int4",
        f"select id as x0, <int4@a> as x1, <int4@b> as x2 from mild a {_JOIN} side b using (id)",
    ),
    ("using", "int4 int8", f"select k as x0, count(*) as x1 from mild a {_JOIN} side b using (k) group by k"),
    ("using", "int4 text", "select k as x0, <text@b> as x1 from mild a join side b using (id, k) where <bool@a>"),
    (
        *("natural", "int4 int4"),
        (
            f"select q as x0, p as x1 from (select id as q, <int4@a> as p from mild a) as a natural {_JOIN}"
            " (select id as q from side b where <bool@b>) as b"
        ),
    ),
    (
        *("nested join", "int4 int4"),
        (
            "select a.id as x0, c.id as x1 from mild a [join|left join] (side b [join|left join] side c on b.id = c.id)"
            " on a.id = b.id"
        ),
    ),
    ("column names", "int4 int4", "select q.p as x0, q.r as x1 from (select id, <int4@a> from mild a) as q(p, r)"),
    (
        "lateral values",
        "text int4",
        "select v.n as x0, v.x as x1 from mild a, lateral (values ('i', <int4@a>), ('k', a.k)) as v(n, x)",
    ),
    ("values", "int4 numeric", "select q.a as x0, q.b as x1 from (values (1, 2.5), (null, [1|null|-7.25])) as q(a, b)"),
    (
        "series",
        "int4 int4",
        "select a.id as x0, g.x as x1 from mild a, generate_series(a.id, [3|5|a.id + 2|a.k]) as g(x)",
    ),
    (
        *("series", "int4 int4 int8"),
        (
            "select a.id as x0, g.x as x1, g.o as x2 from mild a left join lateral"
            " generate_series([1|a.k|4], 5, [1|2|-1]) with ordinality as g(x, o) on true"
        ),
    ),
    (
        *("series", "timestamp"),
        (
            "select g.x as x0 from generate_series(timestamp '2024-02-28', timestamp '2024-03-02 05:00:00',"
            " interval '[1 day|7 hours|90 minutes]') as g(x)"
        ),
    ),
    (
        *("unnest", "int4 int8"),
        (
            "select u.x as x0, u.o as x1 from (select k, array_agg(i4 order by id) as l from mild group by k) as q,"
            " unnest(q.l) with ordinality as u(x, o)"
        ),
    ),
    (
        *("grouping sets", "int4 text int8 int4"),
        (
            "select a.k as x0, a.s as x1, count(*) as x2, grouping(a.k, a.s) as x3 from mild a"
            " group by [rollup (a.k, a.s)|cube (a.k, a.s)|grouping sets ((a.k), (a.s), ())|a.k, rollup (a.s)"
            "|grouping sets ((a.k, a.s), (a.k), (a.k))|rollup ((a.k, a.s))]"
            "[| having count(*) > 1| having grouping(a.k) = 0]"
        ),
    ),
    (
        *("grouping sets", "int4 int8 numeric"),
        (
            "select a.k % 2 as x0, sum(a.i4) as x1, avg(a.i4) filter (where <bool@a>) as x2 from mild a"
            " where [true|false|<bool@a>] group by [rollup (a.k % 2)|cube (1)|rollup (x0)]"
        ),
    ),
    ("group by name", "int4 int8", "select <int4@a> + a.k as x0, count(*) as x1 from mild a group by [x0|1]"),
    ("having", "int4 int8", "select 1 as x0, count(*) as x1 from mild a where <bool@a> having count(*) [>|<] 3"),
    (
        *("named window", "int4 int8 int8"),
        (
            f"select a.id as x0, sum(a.i4) over w as x1, count(a.k) over (v {_FRAME}) as x2 from mild a"
            " window w as (partition by a.k order by a.id), v as (partition by a.k)"
        ),
    ),
    (
        *("frames", "int4 int8 int4"),
        (
            f"select a.id as x0, count(<int4@a>) over (partition by a.k order by a.id {_FRAME}) as x1,"
            f" first_value(a.i4) over (order by a.id {_FRAME}) as x2 from mild a"
        ),
    ),
    (
        *("range frames", "int4 int8"),
        (
            "select a.id as x0, count(*) over (order by a.[i2|i4|i8|k] [|desc] [|nulls first|nulls last]"
            " range between [unbounded preceding|5 preceding|1 preceding|current row|1 following]"
            " and [unbounded following|5 following|3 following]) as x1 from mild a"
        ),
    ),
    (
        *("range frames", "int4 int8"),
        (
            "select a.id as x0, count(*) over (order by a.[d|ts|tz] range between interval '[1|40|400] days' preceding"
            " and [current row|interval '3 days' following]) as x1 from mild a"
        ),
    ),
    (
        *("window functions", "int4 int4 int4 float8"),
        (
            "select a.id as x0, ntile([1|3|50]) over (order by a.id) as x1, [lag|lead](a.i4, [0|1|2], a.id)"
            " over (order by a.id) as x2, [percent_rank|cume_dist]() over (partition by a.b order by a.k) as x3"
            " from mild a"
        ),
    ),
    (
        *("window filter", "int4 int8"),
        (
            "select a.id as x0, [sum|count](a.i4) filter (where <bool@a>) over (partition by a.k order by a.id) as x1"
            " from mild a"
        ),
    ),
    (
        *("rows", "int4 bool"),
        f"select a.id as x0, (a.k, <int4@a>) {_COMPARED} (a.i4, <int4@a>) as x1 from mild a",
    ),
    (
        "rows",
        "int4 bool",
        "select a.id as x0, (a.k, a.id) [in|not in] ((1, 2), (a.i4, null), (2, 3)) as x1 from mild a",
    ),
    (
        *("rows in", "int4 bool"),
        "select a.id as x0, (a.k, a.id) [in|not in] (select b.k, b.id from side b[| where <bool@b>]) as x1 from mild a",
    ),
    (
        *("in value", "int4 bool"),
        (
            "select a.id as x0, a.[k|i4|i8] [in|not in] (select b.[k|i4] from side b[| where <bool@b>"
            "| where b.id >= a.id| where b.k = a.k]) as x1 from mild a"
        ),
    ),
    (
        *("in filter", "int4"),
        (
            "select a.id as x0 from mild a where [|not] a.[k|i4] [in|not in] (select b.[k|i4] from side b"
            "[| where <bool@b>| where b.id >= a.id| where b.k = a.k]) [and|or] <bool@a>"
        ),
    ),
    (
        *("quantified", "int4 bool"),
        (
            f"select a.id as x0, a.[k|i4] {_COMPARED} [any|all] (select b.[k|i4] from side b[| where b.id > a.id"
            "| where false]) as x1 from mild a"
        ),
    ),
    (
        *("exists value", "int4 bool"),
        (
            "select a.id as x0, [exists|not exists] (select 1 from side b where b.[k|id] [=|<|<>] a.[k|id]"
            "[| and <bool@b>]) as x1 from mild a"
        ),
    ),
    (
        *("scalar aggregate", "int4 int8"),
        (
            "select a.id as x0, (select [count(*)|count(b.k) + 1|coalesce(max(b.i4), -5)|sum(b.i4)] from side b"
            " where b.[k|id] [=|<|>] a.[k|id][| having count(*) > 1]) as x1 from mild a"
        ),
    ),
    (
        *("limited subquery", "int4 int4"),
        (
            "select a.id as x0, (select b.id from side b where b.[k|id] [=|<|>] a.[k|id] order by b.id[| desc] limit 1"
            "[| offset 1]) as x1 from mild a"
        ),
    ),
    (
        *("several rows", "int4 int4"),
        "select a.id as x0, (select b.id from side b where b.k = [a.k|a.id]) as x1 from mild a",
    ),
    (
        *("aggregate in", "int4 bool"),
        "select a.id as x0, a.k [in|not in] (select count(*) from side b where b.id > a.id) as x1 from mild a",
    ),
    (
        "group subquery",
        "int4 int4",
        "select a.k as x0, (select max(b.id) from side b where b.k = a.k) as x1 from mild a group by a.k",
    ),
    (
        *("nested sets", "numeric"),
        f"select a.k as x0 from mild a {_SETS} ([select|select distinct] <int4@b> from side b {_SETS} select 1.5)",
    ),
    (
        "set types",
        "text",
        f"select a.[v|s] as x0 from mild a {_SETS} select a.[v|s] from mild a where a.id > 4 {_SETS} select [null|'a']",
    ),
    ("ties", "int4", "select a.k as x0 from mild a order by a.k[| desc] fetch first [1|3|] rows with ties"),
    (
        *("nested with", "int4 int4"),
        (
            "with q as [|materialized] (select a.id, <int4@a> as v from mild a), r(p, o) as (with q as"
            " (select b.id from side b) select id, id + 1 from q)"
            " select q.id as x0, r.o as x1 from q join r on r.p = q.id"
        ),
    ),
    (
        "distinct on",
        "int4 int4",
        ("select distinct on ([1|a.k]) a.k as x0, a.id as x1 from mild a order by 1[| desc], a.id"),
    ),
)
FEATURES: Final = tuple(dict.fromkeys(f"form: {form[0]}" for form in _FORMS))
_CHOICE: Final = re.compile(r"\[([^\[\]]*)\]")
_ARGUMENT: Final = re.compile(r"<(\w+)@(\w+)>")


class Forms:
    """Draws forms. `left_out` has names of `FEATURES`."""

    def __init__(self, drawn: random.Random, expressions: Expressions, left_out: Collection[str] = ()) -> None:
        self._drawn = drawn
        self._expressions = expressions
        self._forms = [form for form in _FORMS if f"form: {form[0]}" not in left_out]
        self._scopes = {"a": columns_of("mild", "a"), "b": columns_of("side", "b")}

    def query(self) -> tuple[Node, list[str]]:
        """Return a query, and the types of its columns."""
        name, kinds, template = self._drawn.choice(self._forms)
        text = _CHOICE.sub(lambda found: self._drawn.choice(found[1].split("|")), template)
        arguments = []
        for kind, aliases in _ARGUMENT.findall(text):
            scope = merged([self._scopes[alias] for alias in aliases])
            arguments.append(self._expressions.of(kind, scope, self._drawn.choice([0, 0, 1])))
        numbers = iter(range(len(arguments)))
        template = _ARGUMENT.sub(lambda _: f"{{{next(numbers)}}}", text)
        return filled("query", template, arguments, f"form: {name}"), kinds.split()
