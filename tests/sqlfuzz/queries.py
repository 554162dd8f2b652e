"""Generates queries: joins, subqueries, aggregates, grouping sets, windows, set operations, order and limit."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tests.sqlfuzz.expressions import Expressions, columns_of, merged
from tests.sqlfuzz.rules import ORDERED
from tests.sqlfuzz.tree import Node, filled, leaf, listed

CONSTRUCTS: Final = (
    *("inner join", "left join", "right join", "full join", "cross join", "join using", "lateral", "derived", "cte"),
    *("where", "in", "not in", "exists", "not exists", "scalar subquery", "correlated", "any", "all"),
    *("group by", "grouping sets", "rollup", "cube", "having", "filter", "no groups", "grouping()"),
    *("distinct", "distinct on", "window", "values", "unnest", "ordinality", "generate_series"),
    *("union", "union all", "intersect", "except", "intersect all", "except all"),
    *("order by", "limit", "nulls first", "nulls last", "offset"),
)
"""What a query may have besides expressions; `UNSOLVED` may name them too."""
_IDENTICAL: Final = frozenset(ORDERED.split()) - {"float4", "float8"}
"""Types of which equal values are the same value: 0 and -0 are equal, and so are 30 days and a month."""
_GROUPED: Final = ("int4", "text", "char", "bool", "date", "numeric", "int8")
_SET_TYPES: Final = ("int4", "text", "numeric", "bool", "date")


@dataclass(frozen=True, slots=True)
class _Source:
    """A FROM clause, the columns it offers, and a list of columns that identifies a row."""

    node: Node
    scope: dict[str, list[str]]
    key: str


class Queries:
    """Draws queries. `left_out` has names of rules and of `CONSTRUCTS`."""

    def __init__(self, drawn: random.Random, left_out: Collection[str] = (), rare: Collection[str] = ()) -> None:
        self._drawn = drawn
        self._left_out = frozenset(left_out)
        self._expressions = Expressions(drawn, left_out, rare)
        self._alias = 0
        self._ctes: list[Node] = []

    def query(self) -> Node:
        """Return a query."""
        self._alias = 0
        self._ctes = []
        shapes: list[tuple[Callable[[], tuple[Node, list[str]]], float]] = [
            (self._plain, 3),
            (self._grouped, 3),
            (self._windowed, 2),
            (self._set_operation, 2),
            (self._distinct_on, 0.5 if self._may("distinct on") else 0),
            (self._unnested, 0.5),
            (self._values, 0.2 if self._may("values") else 0),
        ]
        make = self._drawn.choices([shape for shape, _ in shapes], [weight for _, weight in shapes])[0]
        node, kinds = make()
        node = self._ordered(node, kinds)
        if self._ctes:
            node = filled("query", "with {0} {1}", [listed("ctes", self._ctes), node])
        return node

    def _may(self, construct: str) -> bool:
        return construct not in self._left_out

    def _chance(self, construct: str, share: float) -> bool:
        return self._may(construct) and self._drawn.random() < share

    def _pick(self, *constructs: str) -> str:
        return self._drawn.choice([one for one in constructs if self._may(one)] or [""])

    def _new_alias(self) -> str:
        self._alias += 1
        return f"r{self._alias}"

    # FROM

    def _source(self, depth: int = 1) -> _Source:
        first = self._table(depth)
        if self._drawn.random() < 0.5:
            return first
        second = self._table(depth)
        kind = self._pick("inner join", "left join", "right join", "full join", "cross join", "lateral")
        both = merged([first.scope, second.scope])
        if kind in {"", "lateral"}:
            return self._lateral(first) if kind else first
        if kind == "cross join":
            joined = filled("join", "{0} cross join {1}", [first.node, second.node], kind)
            return _Source(joined, both, f"{first.key}, {second.key}")
        shared = [
            kind
            for kind in ("int4", "text", "char", "date", "numeric")
            if kind in first.scope.keys() & second.scope.keys()
        ]
        pairs = self._drawn.choice(shared or ["int4"])
        on = filled(
            "bool",
            self._drawn.choice(
                ["{0} = {1}", "{0} = {1}", "{0} = {1}", "{0} < {1}"] if kind != "full join" else ["{0} = {1}"]
            ),
            [self._expressions.column(pairs, first.scope), self._expressions.column(pairs, second.scope)],
        )
        if kind != "full join" and self._drawn.random() < 0.3:
            on = filled("bool", "{0} and {1}", [on, self._expressions.of("bool", both, 1)])
        joined = filled("join", f"{{0}} {kind} {{1}} on {{2}}", [first.node, second.node, on], kind)
        return _Source(joined, both, f"{first.key}, {second.key}")

    def _table(self, depth: int) -> _Source:
        alias = self._new_alias()
        table = self._drawn.choices(["mild", "side", "wild"], [4, 4, 1])[0]
        if depth > 0 and self._chance("derived", 0.2):
            inner = self._table(0)
            kinds = ["int4", *self._drawn.sample([*_GROUPED[1:]], 3)]
            items = [
                filled("item", f"{{0}} as c{number}", [self._expressions.of(kind, inner.scope, 1)])
                for number, kind in enumerate(kinds)
            ]
            text = f"(select {inner.key} as id, {{0}} from {{1}}{{2}})"
            node = filled("derived", text, [listed("items", items), inner.node, self._where(inner.scope)], "derived")
            if self._chance("cte", 0.4):
                self._ctes.append(filled("cte", f"{alias}c as {{0}}", [node], "cte"))
                node = leaf("join", f"{alias}c as {alias}", "cte")
            else:
                node = filled("join", f"{{0}} as {alias}", [node])
            scope = {kind: [f"{alias}.c{number}"] for number, kind in enumerate(kinds)}
            return _Source(node, scope, f"{alias}.id")
        return _Source(leaf("join", f"{table} as {alias}"), columns_of(table, alias), f"{alias}.id")

    def _lateral(self, first: _Source) -> _Source:
        alias, inner = self._new_alias(), self._table(0)
        item = filled(
            "int4",
            "case when {0} then {1} end",
            [self._expressions.of("bool", merged([first.scope, inner.scope]), 1), leaf("int4", inner.key)],
        )
        text = f"{{0}} cross join lateral (select max({{1}}) as c0, count(*) as c1 from {{2}} where {{3}}) as {alias}"
        on = filled(
            "bool",
            "{0} = {1}",
            [self._expressions.column("int4", first.scope), self._expressions.column("int4", inner.scope)],
        )
        node = filled("join", text, [first.node, item, inner.node, on], "lateral")
        return _Source(node, merged([first.scope, {"int4": [f"{alias}.c0"], "int8": [f"{alias}.c1"]}]), first.key)

    # WHERE

    def _where(self, scope: dict[str, list[str]]) -> Node:
        if not self._chance("where", 0.5):
            return Node("where", ())
        return filled("where", " where {0}", [self._condition(scope)], "where", optional=True)

    def _condition(self, scope: dict[str, list[str]]) -> Node:
        if self._drawn.random() < 0.5:
            return self._expressions.of("bool", scope, 2)
        construct = self._pick("in", "not in", "exists", "not exists", "scalar subquery", "any", "all")
        alias = self._new_alias()
        inner = columns_of("side", alias)
        kind = self._drawn.choice(["int4", "text", "char", "numeric", "date"])
        outer, column = self._expressions.of(kind, scope, 1), self._expressions.column(kind, inner)
        where = Node("where", ())
        if self._chance("correlated", 0.5) or construct in {"exists", "not exists"}:
            pair = [self._expressions.column("int4", inner), self._expressions.column("int4", scope)]
            where = filled("where", " where {0} = {1}", pair, "correlated", optional=True)
        elif self._drawn.random() < 0.5:
            where = filled("where", " where {0}", [self._expressions.of("bool", inner, 1)], "where", optional=True)
        texts = {
            "in": f"{{0}} in (select {{1}} from side as {alias}{{2}})",
            "not in": f"{{0}} not in (select {{1}} from side as {alias}{{2}})",
            "exists": f"exists (select 1 from side as {alias}{{2}})",
            "not exists": f"not exists (select 1 from side as {alias}{{2}})",
            "scalar subquery": f"{{0}} > (select min({{1}}) from side as {alias}{{2}})",
            "any": f"{{0}} = any (select {{1}} from side as {alias}{{2}})",
            "all": f"{{0}} >= all (select {{1}} from side as {alias}{{2}})",
        }
        if not construct:
            return self._expressions.of("bool", scope, 1)
        return filled("bool", texts[construct], [outer, column, where], construct)

    # Shapes: each returns a query and the types of its columns.

    def _plain(self) -> tuple[Node, list[str]]:
        source = self._source()
        items = [self._expressions.any(source.scope, 2) for _ in range(self._drawn.randint(1, 4))]
        if self._chance("scalar subquery", 0.2):
            alias = self._new_alias()
            inner = columns_of("side", alias)
            pair = [self._expressions.column("int4", inner), self._expressions.column("int4", source.scope)]
            value = self._expressions.aggregate(inner, f"{alias}.id", 1)
            text = f"(select {{0}} from side as {alias} where {{1}} = {{2}})"
            items.append(filled(value.kind, text, [value, *pair], "scalar subquery"))
        distinct = self._chance("distinct", 0.2) and _IDENTICAL.issuperset(one.kind for one in items)
        return self._select(items, source, [self._where(source.scope)], "distinct " if distinct else "")

    def _grouped(self) -> tuple[Node, list[str]]:
        source = self._source()
        kinds = self._drawn.sample(_GROUPED, self._drawn.randint(0, 2))
        groups = [self._expressions.of(kind, source.scope, self._drawn.choice([0, 0, 1])) for kind in kinds]
        # A constant or a number in GROUP BY has another meaning.
        groups = [one for one in groups if any(name in str(one) for name in source.scope.get(one.kind, ()))]
        aggregates = [
            self._expressions.aggregate(source.scope, source.key, 1) for _ in range(self._drawn.randint(1, 3))
        ]
        tail = [self._where(source.scope)]
        if groups:
            construct = self._pick("group by", "group by", "grouping sets", "rollup", "cube")
            listing = ", ".join(f"{{{number}}}" for number in range(len(groups)))
            text = {
                "grouping sets": f" group by grouping sets (({listing}), ({{0}}), ())",
                "rollup": f" group by rollup ({listing})",
                "cube": f" group by cube ({listing})",
            }.get(construct, f" group by {listing}")
            tail.append(filled("group", text, groups, construct or "group by", optional=True))
        if self._chance("having", 0.2):
            tail.append(filled("having", " having count(*) > 1", [], "having", optional=True))
        return self._select([*groups, *aggregates], source, tail)

    def _windowed(self) -> tuple[Node, list[str]]:
        source = self._source()
        items = [self._expressions.window(source.scope, source.key, 1) for _ in range(self._drawn.randint(1, 2))]
        items.append(self._expressions.any(source.scope, 1))
        return self._select(items, source, [self._where(source.scope)])

    def _set_operation(self) -> tuple[Node, list[str]]:
        kinds = [self._drawn.choice(_SET_TYPES) for _ in range(self._drawn.randint(1, 3))]
        sides = []
        for _ in range(2):
            source = self._source(0)
            items = [self._expressions.of(kind, source.scope, 1) for kind in kinds]
            items = [filled(one.kind, f"({{0}})::{_cast(one.kind)}", [one]) for one in items]
            sides.append(self._select(items, source, [self._where(source.scope)])[0])
        construct = self._pick("union", "union all", "intersect", "except", "intersect all", "except all")
        if not construct:
            return sides[0], kinds
        return filled("query", f"{{0}} {construct} {{1}}", sides, construct), kinds

    def _distinct_on(self) -> tuple[Node, list[str]]:
        source = self._source()
        kind = self._drawn.choice([one for one in ("int4", "text", "bool", "date") if one in source.scope])
        on, item = self._expressions.column(kind, source.scope), self._expressions.any(source.scope, 1)
        text = f"select distinct on ({{0}}) {{0}} as x0, {{1}} as x1 from {{2}} order by {{0}}, {source.key}"
        inner = filled("query", text, [on, item, source.node], "distinct on")
        return filled("query", "select * from ({0}) as q", [inner]), [kind, item.kind]

    def _unnested(self) -> tuple[Node, list[str]]:
        construct = self._pick("unnest", "ordinality", "generate_series")
        source = self._table(0)
        alias = self._new_alias()
        text = {
            "unnest": f"{{0}} cross join lateral unnest({{1}}) as {alias}(x)",
            "ordinality": f"{{0}} cross join lateral unnest({{1}}) with ordinality as {alias}(x, o)",
            "generate_series": f"{{0}} cross join lateral generate_series(1, {{1}}) as {alias}(x)",
        }.get(construct)
        if text is None or "int4[]" not in source.scope:
            return self._plain()
        kind = "int4" if construct == "generate_series" else "int4[]"
        made = self._expressions.column(kind, {"int4": ["r1.k"], "int4[]": source.scope["int4[]"]})
        if construct == "generate_series":
            made = leaf("int4", f"{source.key.split('.')[0]}.k")
        node = filled("join", text, [source.node, made], construct)
        scope = merged([source.scope, {"int4": [f"{alias}.x"] * 4}])
        items = [leaf("int4", f"{alias}.x"), self._expressions.any(scope, 1)]
        if construct == "ordinality":
            items.append(leaf("int8", f"{alias}.o"))
        return self._select(items, _Source(node, scope, source.key), [])

    def _values(self) -> tuple[Node, list[str]]:
        rows = [
            filled("row", "({0}, {1})", [self._expressions.of("int4", {}, 1), self._expressions.of("text", {}, 1)])
            for _ in range(self._drawn.randint(1, 3))
        ]
        return filled("query", "select x0, x1 from (values {0}) as q(x0, x1)", [listed("rows", rows)], "values"), [
            "int4",
            "text",
        ]

    def _select(
        self, items: Sequence[Node], source: _Source, tail: Sequence[Node], head: str = ""
    ) -> tuple[Node, list[str]]:
        named = [filled("item", f"{{0}} as x{number}", [item]) for number, item in enumerate(items)]
        rest = "".join(f"{{{number + 2}}}" for number in range(len(tail)))
        text = f"select {head}{{0}} from {{1}}{rest}"
        node = filled("query", text, [listed("items", named), source.node, *tail], "distinct" if head else "")
        return node, [item.kind for item in items]

    def _ordered(self, node: Node, kinds: Sequence[str]) -> Node:
        """Add ORDER BY over all columns, and LIMIT where rows that are equal for it are the same."""
        if not self._chance("order by", 0.3):
            return node
        keys = []
        for number in range(len(kinds)):
            way = self._drawn.choice(["", "", " desc", " asc"])
            nulls = self._pick("nulls first", "nulls last") if self._drawn.random() < 0.3 else ""
            keys.append(leaf("key", f"x{number}{way} {nulls}".rstrip(), nulls))
        text, construct = "select * from ({0}) as q order by {1}", "order by"
        if _IDENTICAL.issuperset(kinds) and self._chance("limit", 0.8):
            text, construct = f"{text} limit {self._drawn.randint(0, 6)}", "limit"
            if self._chance("offset", 0.3):
                text, construct = f"{text} offset {self._drawn.randint(0, 3)}", "offset"
        listing = filled("keys", ", ".join(f"{{{number}}}" for number in range(len(keys))), keys)
        return filled("query", text, [node, listing], construct)


def _cast(kind: str) -> str:
    return {"char": "char(6)", "varchar": "varchar(12)"}.get(kind, kind)
