"""Generates queries: joins, subqueries, aggregates, grouping sets, windows, set operations, order and limit."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Final

from tests.sqlfuzz.drawing import Accepts, Drawing, Source
from tests.sqlfuzz.expressions import Expressions, columns_of, merged
from tests.sqlfuzz.kinds import ORDERED
from tests.sqlfuzz.query_forms import FEATURES, Forms
from tests.sqlfuzz.sources import GROUPED, Sources
from tests.sqlfuzz.tree import Node, filled, leaf, listed

CONSTRUCTS: Final = (
    *("inner join", "left join", "right join", "full join", "cross join", "join using", "lateral", "derived", "cte"),
    *("where", "in", "not in", "exists", "not exists", "scalar subquery", "correlated", "any", "all"),
    *("group by", "grouping sets", "rollup", "cube", "having", "filter", "over groups"),
    *("distinct", "distinct on", "values", "unnest", "ordinality", "generate_series", "first of group"),
    *("union", "union all", "intersect", "except", "intersect all", "except all"),
    *("order by", "limit", "nulls first", "nulls last", "offset"),
    *FEATURES,
)
"""What a query may have besides expressions; `UNSOLVED` may name them too."""
_IDENTICAL: Final = frozenset(ORDERED.split()) - {"float4", "float8"}
"""Types of which equal values are the same value: 0 and -0 are equal, and so are 30 days and a month."""
_SET_TYPES: Final = ("int4", "text", "numeric", "bool", "date", "int8", "timestamp", "char", "varchar")
_SETS: Final = ("union", "union all", "intersect", "except", "intersect all", "except all")
_WIDER: Final = {"int4": ("int4", "int8", "int2"), "int8": ("int8", "int4"), "text": ("text", "varchar")}

Shape = Callable[[], tuple[Node, list[str]]]
"""Returns a query and the types of its columns."""


class Queries:
    """Draws queries.

    Args:
        drawn: the source of chance.
        left_out: names of rules and of `CONSTRUCTS` that are not generated.
        rare: names of rules that are drawn seldom.
        accepts: whether a view is accepted; see `Drawing`.
    """

    def __init__(
        self,
        drawn: random.Random,
        left_out: Collection[str] = (),
        rare: Collection[str] = (),
        accepts: Accepts | None = None,
    ) -> None:
        self._drawn = drawn
        self._expressions = Expressions(drawn, left_out, rare)
        self._ = Drawing(drawn, self._expressions, frozenset(left_out), accepts)
        self._sources = Sources(self._)
        self._forms = Forms(drawn, self._expressions, left_out)

    def query(self) -> Node:
        """Return a query."""
        self._.begin()
        shapes: list[tuple[Shape, float]] = [
            (self._plain, 3),
            (self._grouped, 3),
            (self._windowed, 2),
            (self._set_operation, 2),
            (self._distinct_on, 0.5 if self._.may("distinct on") else 0),
            (self._first_of_group, 0.5 if self._.may("first of group") else 0),
            (self._over_groups, 0.7 if self._.may("over groups") else 0),
            (self._unnested, 0.3),
            (self._values, 0.1 if self._.may("values") else 0),
            (self._forms.query, 4),
        ]
        make = self._drawn.choices([shape for shape, _ in shapes], [weight for _, weight in shapes])[0]
        return self._.with_ctes(self._ordered(*make()))

    # Shapes: each returns a query and the types of its columns.

    def _plain(self) -> tuple[Node, list[str]]:
        source = self._sources.source()
        items = self._.items(source, lambda: self._expressions.any(source.scope, 2), 4)
        if self._.chance("scalar subquery", 0.2):
            items.append(self._.item(source, lambda: self._scalar(source)))
        distinct = self._.chance("distinct", 0.2) and _IDENTICAL.issuperset(one.kind for one in items)
        return _select(items, source, [self._sources.where(source)], "distinct " if distinct else "")

    def _scalar(self, source: Source) -> Node:
        alias, table = self._.alias(), self._drawn.choice(["side", "side", "bare"])
        inner = columns_of(table, alias)
        pair = [self._.column("int4", inner), self._.column("int4", source.scope)]
        value = self._expressions.aggregate(inner, f"{alias}.id", 1)
        text = f"(select {{0}} from {table} as {alias} where {{1}} = {{2}})"
        return filled(value.kind, text, [value, *pair], "scalar subquery")

    def _grouped(self) -> tuple[Node, list[str]]:
        source = self._sources.source()
        groups = self._groups(source)
        make = lambda: self._expressions.aggregate(source.scope, source.key, 1)  # noqa: E731  drawn several times
        aggregates = self._.items(source, make, 3)
        tail = [self._sources.where(source)]
        if groups:
            construct = self._.pick("group by", "group by", "grouping sets", "rollup", "cube")
            listing = ", ".join(f"{{{number}}}" for number in range(len(groups)))
            text = {
                "grouping sets": f" group by grouping sets (({listing}), ({{0}})"
                + (", ())" if self._drawn.random() < 0.3 else ")"),
                "rollup": f" group by rollup ({listing})",
                "cube": f" group by cube ({listing})",
            }.get(construct, f" group by {listing}")
            tail.append(filled("group", text, groups, construct or "group by", optional=True))
        if self._.chance("having", 0.2):
            tail.append(self._having(source))
        return _select([*groups, *aggregates], source, tail)

    def _groups(self, source: Source) -> list[Node]:
        kinds = self._drawn.sample(GROUPED, self._drawn.randint(0, 2))
        depth = self._drawn.choice([0, 0, 1])
        found = [
            self._.item(source, lambda kind=kind: self._expressions.of(kind, source.scope, depth))  # type: ignore[misc]
            for kind in kinds
        ]
        # A constant or a number in GROUP BY has another meaning.
        return [one for one in found if any(name in str(one) for name in source.scope.get(one.kind, ()))]

    def _having(self, source: Source) -> Node:
        value = self._.item(source, lambda: self._expressions.aggregate(source.scope, source.key, 0))
        condition = leaf("bool", "count(*) > 1")
        if value.kind in {"int4", "int8", "numeric"}:
            condition = filled("bool", "{0} > 1", [value])
        return filled("having", " having {0}", [condition], "having", optional=True)

    def _windowed(self) -> tuple[Node, list[str]]:
        source = self._sources.source()
        items = self._.items(source, lambda: self._expressions.window(source.scope, source.key, 1), 2)
        items.append(self._.item(source, lambda: self._expressions.any(source.scope, 1)))
        return _select(items, source, [self._sources.where(source)])

    def _over_groups(self) -> tuple[Node, list[str]]:
        """Return a window over the groups of an aggregate query."""
        source = self._sources.source()
        groups = [self._.column("int4", source.scope)]
        word = self._drawn.choice(["sum(count(*))", "max(count(*))", "rank()", "row_number()", "count(*)"])
        order = "order by {0}" if word.endswith("()") or self._drawn.random() < 0.5 else ""
        over = filled("int8" if "sum" not in word else "numeric", f"{word} over ({order})", groups, "over groups")
        return _select([*groups, over], source, [filled("group", " group by {0}", groups, "group by")])

    def _first_of_group(self) -> tuple[Node, list[str]]:
        """Return the first rows of each partition."""
        source = self._sources.source()
        part = self._.column(self._drawn.choice(["int4", "text", "char", "bool"]), source.scope)
        item = self._.item(source, lambda: self._expressions.any(source.scope, 1))
        text = (
            "select x0, x1 from (select {0} as x0, {1} as x1, row_number() over (partition by {0} order by "
            f"{source.key}) as p from {{2}}{{3}}) as q where p <= {self._drawn.randint(1, 2)}"
        )
        parts = [part, item, source.node, self._sources.where(source)]
        return filled("query", text, parts, "first of group"), [part.kind, item.kind]

    def _set_operation(self) -> tuple[Node, list[str]]:
        kinds = [self._drawn.choice(_SET_TYPES) for _ in range(self._drawn.randint(1, 3))]
        found = self._arm(kinds)
        for _ in range(self._drawn.choice([1, 1, 2])):
            construct = self._.pick(*_SETS)
            if not construct:
                break
            inner = f"({{0}}) {construct} {{1}}" if self._drawn.random() < 0.3 else f"{{0}} {construct} {{1}}"
            found = filled("query", inner, [found, self._arm(kinds)], construct)
        return found, kinds

    def _arm(self, kinds: Sequence[str]) -> Node:
        source = self._sources.source(0)
        items = []
        for kind in kinds:
            chosen = self._drawn.choice(_WIDER.get(kind, (kind,)))
            one = self._.item(source, lambda chosen=chosen: self._expressions.of(chosen, source.scope, 1))  # type: ignore[misc]
            bare = str(one).startswith("'") or one.kind == "char"  # a literal has no type yet
            items.append(filled(one.kind, f"({{0}})::{_cast(one.kind)}", [one]) if bare else one)
        return _select(items, source, [self._sources.where(source)])[0]

    def _distinct_on(self) -> tuple[Node, list[str]]:
        source = self._sources.source()
        kind = self._drawn.choice([one for one in ("int4", "text", "bool", "date") if one in source.scope])
        on = self._.column(kind, source.scope)
        item = self._.item(source, lambda: self._expressions.any(source.scope, 1))
        text = f"select distinct on ({{0}}) {{0}} as x0, {{1}} as x1 from {{2}} order by {{0}}, {source.key}"
        inner = filled("query", text, [on, item, source.node], "distinct on")
        return filled("query", "select * from ({0}) as q", [inner]), [kind, item.kind]

    def _unnested(self) -> tuple[Node, list[str]]:
        construct = self._.pick("unnest", "ordinality", "generate_series")
        source = self._sources.table(0)
        alias = self._.alias()
        text = {
            "unnest": f"{{0}} cross join lateral unnest({{1}}) as {alias}(x)",
            "ordinality": f"{{0}} cross join lateral unnest({{1}}) with ordinality as {alias}(x, o)",
            "generate_series": f"{{0}} cross join lateral generate_series(1, {{1}}) as {alias}(x)",
        }.get(construct)
        if text is None or "int4[]" not in source.scope:
            return self._plain()
        made = leaf("int4", f"{source.key.split('.')[0]}.k")
        if construct != "generate_series":
            made = self._.column("int4[]", source.scope)
        node = filled("join", text, [source.node, made], construct)
        made_of = Source(node, merged([source.scope, {"int4": [f"{alias}.x"] * 4}]), source.key)
        items = [
            leaf("int4", f"{alias}.x"),
            self._.item(made_of, lambda: self._expressions.any(made_of.scope, 1)),
        ]
        if construct == "ordinality":
            items.append(leaf("int8", f"{alias}.o"))
        return _select(items, made_of, [])

    def _values(self) -> tuple[Node, list[str]]:
        rows = [
            filled("row", "({0}, {1})", [self._expressions.of("int4", {}, 1), self._expressions.of("text", {}, 1)])
            for _ in range(self._drawn.randint(1, 3))
        ]
        node = filled("query", "select x0, x1 from (values {0}) as q(x0, x1)", [listed("rows", rows)], "values")
        return node, ["int4", "text"]

    def _ordered(self, node: Node, kinds: Sequence[str]) -> Node:
        """Add ORDER BY over all columns, and LIMIT where rows that are equal for it are the same."""
        if not self._.chance("order by", 0.3):
            return node
        keys = []
        for number, kind in enumerate(kinds):
            collation = ' collate "C"' if kind in {"text", "varchar", "char"} else ""
            way = self._drawn.choice(["", "", " desc", " asc"])
            nulls = self._.pick("nulls first", "nulls last") if self._drawn.random() < 0.3 else ""
            keys.append(leaf("key", f"x{number}{collation}{way} {nulls}".rstrip(), nulls))
        text, construct = "select * from ({0}) as q order by {1}", "order by"
        if _IDENTICAL.issuperset(kinds) and self._.chance("limit", 0.8):
            text, construct = f"{text} limit {self._drawn.randint(0, 6)}", "limit"
            if self._.chance("offset", 0.3):
                text, construct = f"{text} offset {self._drawn.randint(0, 3)}", "offset"
        listing = filled("keys", ", ".join(f"{{{number}}}" for number in range(len(keys))), keys)
        return filled("query", text, [node, listing], construct)


def _select(items: Sequence[Node], source: Source, tail: Sequence[Node], head: str = "") -> tuple[Node, list[str]]:
    named = [filled("item", f"{{0}} as x{number}", [item]) for number, item in enumerate(items)]
    rest = "".join(f"{{{number + 2}}}" for number in range(len(tail)))
    text = f"select {head}{{0}} from {{1}}{rest}"
    node = filled("query", text, [listed("items", named), source.node, *tail], "distinct" if head else "")
    return node, [item.kind for item in items]


def _cast(kind: str) -> str:
    return {"char": "char(6)", "varchar": "varchar(12)"}.get(kind, kind)
