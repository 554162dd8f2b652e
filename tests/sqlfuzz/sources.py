"""Draws FROM and WHERE: tables, joins of all kinds, derived tables, CTEs, lateral subqueries, and conditions."""

from __future__ import annotations

from typing import Final

from tests.sqlfuzz.drawing import Drawing, Source, empty, one_of
from tests.sqlfuzz.expressions import columns_of, merged
from tests.sqlfuzz.tree import Node, filled, leaf, listed

GROUPED: Final = ("int4", "text", "char", "bool", "date", "numeric", "int8")
_JOINED: Final = ("int4", "text", "char", "date", "numeric", "int8", "bool")
_JOINS: Final = ("inner join", "left join", "right join", "full join", "cross join", "join using", "lateral")
_ON: Final = ("{0} = {1}",) * 4 + ("{0} < {1}", "{0} is not distinct from {1}", "{0} <> {1}")


class Sources:
    """Draws sources and conditions."""

    def __init__(self, drawing: Drawing) -> None:
        self._ = drawing

    def source(self, depth: int = 1) -> Source:
        """Return a table, or up to three joined ones."""
        found = self.table(depth)
        for share in (0.55, 0.25):
            if self._.drawn.random() >= share:
                break
            before = found
            found = self._.joined(lambda before=before: self._join(before, depth))  # type: ignore[misc]
        return found

    def table(self, depth: int) -> Source:
        """Return a table, or a subquery over one."""
        if depth > 0 and self._.chance("derived", 0.25):
            return self._derived()
        alias = self._.alias()
        table = self._.drawn.choices(["mild", "side", "wild", "bare"], [5, 5, 1, 0.5])[0]
        return Source(leaf("join", f"{table} as {alias}"), columns_of(table, alias), f"{alias}.id")

    def where(self, source: Source, share: float = 0.5) -> Node:
        """Return a WHERE, or nothing."""
        if not self._.chance("where", share):
            return empty("where")
        found = self._.condition(source, lambda: self.condition(source.scope))
        return filled("where", " where {0}", [found], "where", optional=True)

    def condition(self, scope: dict[str, list[str]]) -> Node:
        """Return a condition, with a subquery in half of the cases."""
        drawn, made = self._.drawn, self._.expressions
        construct = self._.pick("in", "not in", "exists", "not exists", "scalar subquery", "any", "all")
        if drawn.random() < 0.5 or not construct:
            return made.of("bool", scope, 2)
        alias, table = self._.alias(), drawn.choice(["side", "side", "bare"])
        inner = columns_of(table, alias)
        kind = drawn.choice(["int4", "text", "char", "numeric", "date"])
        outer, column = made.of(kind, scope, 1), self._.column(kind, inner)
        where = empty("where")
        if self._.chance("correlated", 0.5) or construct in {"exists", "not exists"}:
            pair = [self._.column("int4", inner), self._.column("int4", scope)]
            where = filled("where", " where {0} = {1}", pair, "correlated", optional=True)
        elif drawn.random() < 0.5:
            where = filled("where", " where {0}", [made.of("bool", inner, 1)], "where", optional=True)
        texts = {
            "in": f"{{0}} in (select {{1}} from {table} as {alias}{{2}})",
            "not in": f"{{0}} not in (select {{1}} from {table} as {alias}{{2}})",
            "exists": f"exists (select 1 from {table} as {alias}{{2}})",
            "not exists": f"not exists (select 1 from {table} as {alias}{{2}})",
            "scalar subquery": f"{{0}} > (select min({{1}}) from {table} as {alias}{{2}})",
            "any": f"{{0}} = any (select {{1}} from {table} as {alias}{{2}})",
            "all": f"{{0}} >= all (select {{1}} from {table} as {alias}{{2}})",
        }
        found = filled("bool", texts[construct], [outer, column, where], construct)
        return filled("bool", "({0} or {1})", [found, made.of("bool", scope, 1)]) if drawn.random() < 0.1 else found

    def _join(self, first: Source, depth: int) -> Source:
        kind = self._.pick(*_JOINS)
        if kind in {"", "lateral"}:
            return self._lateral(first) if kind else first
        second = self.table(depth)
        both = merged([first.scope, second.scope])
        key = f"{first.key}, {second.key}"
        if kind == "cross join":
            return Source(filled("join", "{0} cross join {1}", [first.node, second.node], kind), both, key)
        if kind == "join using":
            return self._using(first, second)
        pairs = self._.drawn.choice(one_of(second.scope, one_of(first.scope, _JOINED)) or ["int4"])
        on = filled(
            "bool",
            self._.drawn.choice(_ON if kind != "full join" else _ON[:1]),
            [self._.column(pairs, first.scope), self._.column(pairs, second.scope)],
        )
        if kind != "full join" and self._.drawn.random() < 0.3:
            on = filled("bool", "{0} and {1}", [on, self._.expressions.of("bool", both, 1)])
        joined = filled("join", f"{{0}} {kind} {{1}} on {{2}}", [first.node, second.node, on], kind)
        return Source(joined, both, key)

    def _using(self, first: Source, second: Source) -> Source:
        """Join by a column of the same name; the joined columns are not named again."""
        word = self._.drawn.choice(["join", "left join", "full join"])
        node = filled("join", f"{{0}} {word} {{1}} using (id)", [first.node, second.node], "join using")
        scope = {
            kind: [name for name in names if not name.endswith(".id")]
            for kind, names in merged([first.scope, second.scope]).items()
        }
        return Source(node, {kind: names for kind, names in scope.items() if names}, f"{first.key}, {second.key}")

    def _derived(self) -> Source:
        alias, inner = self._.alias(), self.source(0) if self._.drawn.random() < 0.3 else self.table(0)
        kinds = ["int4", *self._.drawn.sample(GROUPED[1:], 3)]
        items = [
            filled(
                "item",
                f"{{0}} as c{number}",
                [self._.item(inner, lambda kind=kind: self._.expressions.of(kind, inner.scope, 1))],  # type: ignore[misc]
            )
            for number, kind in enumerate(kinds)
        ]
        first, *others = inner.key.split(", ")
        parts = {f"i{number}": part for number, part in enumerate(others)}  # a join's rows need the keys of all sides
        scope = {kind: [f"{alias}.c{number}"] for number, kind in enumerate(kinds)}
        more = "".join(f", {part} as {name}" for name, part in parts.items())
        text = f"(select {first} as id{more}, {{0}} from {{1}}{{2}})"
        identifies = ", ".join(f"{alias}.{name}" for name in ("id", *parts))
        node = filled("derived", text, [listed("items", items), inner.node, self.where(inner, 0.3)], "derived")
        if self._.chance("cte", 0.4):
            self._.ctes.append(filled("cte", f"{alias}c as {{0}}", [node], "cte"))
            return Source(leaf("join", f"{alias}c as {alias}", "cte"), scope, identifies)
        return Source(filled("join", f"{{0}} as {alias}", [node]), scope, identifies)

    def _lateral(self, first: Source) -> Source:
        alias, inner = self._.alias(), self.table(0)
        both = merged([first.scope, inner.scope])
        item = filled(
            "int4",
            "case when {0} then {1} end",
            [self._.expressions.of("bool", both, 1), leaf("int4", inner.key)],
        )
        on = filled("bool", "{0} = {1}", [self._.column("int4", first.scope), self._.column("int4", inner.scope)])
        word = self._.drawn.choice(["cross join lateral", "left join lateral"])
        tail = "" if word.startswith("cross") else " on true"
        if self._.drawn.random() < 0.5:
            text = "(select max({1}) as c0, count(*) as c1 from {2} where {3})"
        else:
            text = f"(select {{1}} as c0, {inner.key}::int8 as c1 from {{2}} where {{3}} order by {inner.key} limit 2)"
        node = filled("join", f"{{0}} {word} {text} as {alias}{tail}", [first.node, item, inner.node, on], "lateral")
        scope = merged([first.scope, {"int4": [f"{alias}.c0"], "int8": [f"{alias}.c1"]}])
        return Source(node, scope, f"{first.key}, {alias}.c1")
