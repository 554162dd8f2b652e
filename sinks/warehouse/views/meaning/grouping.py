"""Translates GROUP BY with ROLLUP, CUBE and GROUPING SETS. Pure.

Several grouping sets become a UNION ALL of one SELECT for each set, inside of the query: Spark's own have no row for
the empty set of no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.clauses import named
from sinks.warehouse.views.meaning.coercion import check_comparable
from sinks.warehouse.views.meaning.pg_types import FLOATS, INT4
from sinks.warehouse.views.meaning.placement import GROUP
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.scope import Scope, folded
from sinks.warehouse.views.meaning.typed import Typed, column

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_SETS_MAX: Final = 64
_KEYS_MAX: Final = 31  # of grouping(), an int4
_TABLE: Final = "g__"
_Set = tuple[str, ...]


@dataclass(slots=True)
class Grouped:
    """A SELECT with several grouping sets: an inner query has its keys and aggregates.

    Attributes:
        clauses: FROM and WHERE of the inner query.
        keys: Spark SQL of a key -> its value.
        sets: keys of each grouping set.
        aggregates: Spark SQL of each aggregate -> its name in the inner query.
    """

    clauses: str
    keys: dict[str, Typed]
    sets: Sequence[_Set]
    aggregates: dict[str, str] = field(default_factory=dict)

    @property
    def has_empty_set(self) -> bool:
        """Whether it has a row of all rows, also of none."""
        return () in self.sets

    def aggregate(self, found: Typed) -> Typed:
        """Return an aggregate of the inner query."""
        name = self.aggregates.setdefault(found.sql, f"a{len(self.aggregates)}")
        return found.of(column(_TABLE, name), found.type)

    def key(self, sql: str) -> Typed:
        """Return a key of the inner query."""
        found = self.keys[sql]
        return found.of(column(_TABLE, f"k{list(self.keys).index(sql)}"), found.type)

    def render(self) -> str:
        """Return the FROM of the outer query."""
        return f" from ({' union all '.join(map(self._one, self.sets))}) as `{_TABLE}`"

    def _one(self, chosen: _Set) -> str:
        parts = []
        for place, (sql, value) in enumerate(self.keys.items()):
            is_in = sql in chosen
            parts.append(f"{sql if is_in else f'cast(null as {value.type.spark})'} as `k{place}`")
            parts.append(f"{0 if is_in else 1} as `g{place}`")
        parts += [f"{sql} as `{name}`" for sql, name in self.aggregates.items()]
        # Without a key and without an aggregate, each row of the input would be a row of the result.
        group = f" group by {', '.join(chosen)}" if chosen else ""
        return f"select {', '.join(parts)}, count(*) as `n__`{self.clauses}{group}"


def group_by(walk: Expressions, group: exp.Group, items: Sequence[exp.Expr], clauses: str, *, is_nested: bool) -> str:
    """Translate GROUP BY. The keys and sets become those of the scope.

    Args:
        walk: translates its expressions.
        group: the clause.
        items: the select list.
        clauses: FROM and WHERE.
        is_nested: whether one grouping set is computed in an inner query, too.
    """
    known = {"expressions", "rollup", "cube", "grouping_sets"}
    if any(value is not None and value != [] for key, value in group.args.items() if key not in known):
        raise NotProven(group, "uses group by in this form", "name the columns")
    keys: dict[str, Typed] = {}
    parts = [*group.expressions, *(one for word in known - {"expressions"} for one in group.args.get(word) or ())]
    listed = [_sets(walk, one, items, keys) for one in parts]
    if len(keys) > _KEYS_MAX or _count(listed) > _SETS_MAX:
        raise NotProven(group, f"has more than {_SETS_MAX} grouping sets", "write fewer of them")
    sets = [tuple(dict.fromkeys(chain.from_iterable(one))) for one in product(*listed)]
    walk.scope.free.clear()
    walk.scope.aggregated = True
    if len(sets) == 1:
        walk.scope.keys = keys
        if is_nested and sets[0]:
            return _nested(walk, clauses, keys, sets)
        return f"{clauses} group by {', '.join(sets[0])}" if sets[0] else clauses
    return _nested(walk, clauses, keys, sets)


def _nested(walk: Expressions, clauses: str, keys: dict[str, Typed], sets: Sequence[_Set]) -> str:
    grouped = Grouped(clauses, keys, sets)
    walk.scope.grouped = grouped
    walk.scope.keys = {sql: grouped.key(sql) for sql in keys}
    return clauses


def grouping(walk: Expressions, node: exp.Grouping) -> Typed:
    """Translate a call of GROUPING: a bit for each key that is not in the row's grouping set."""
    scope = walk.scope
    if not walk.place.aggregates:
        raise NotProven(node, f"uses grouping() in {walk.place.name}", "write it in select or having")
    written = {one.sql: sql for sql, one in scope.keys.items()}
    bits = []
    for place, one in enumerate(reversed(node.expressions)):
        found = walk.of(one).sql
        if found not in written:
            raise NotProven(node, "uses grouping() of what is not a group key", "name expressions of group by")
        if scope.grouped is not None:
            number = list(scope.grouped.keys).index(written[found])
            bits.append(f"{column(_TABLE, f'g{number}')} * {2**place}")
    return Typed(f"({' + '.join(bits) or '0'})", INT4)


def check_ungrouped(scope: Scope) -> None:
    """Refuse columns that are neither in GROUP BY nor in an aggregate."""
    if not (scope.aggregated and scope.free):
        return
    node = scope.free[0][0]
    shown = folded(node.this) if isinstance(node, exp.Column) else "of *"
    raise NotProven(
        node,
        f"uses column {shown} outside of an aggregate, and it is not in group by",
        "add it to group by, also if it depends on a primary key there; or write min(...)",
    )


def _count(listed: Sequence[Sequence[_Set]]) -> int:
    found = 1
    for one in listed:
        found *= len(one)
    return found


def _sets(walk: Expressions, one: exp.Expr, items: Sequence[exp.Expr], keys: dict[str, Typed]) -> list[_Set]:
    """Return the grouping sets of an item of GROUP BY."""
    if isinstance(one, exp.GroupingSets):
        return [found for part in one.expressions for found in _sets(walk, part, items, keys)]
    if isinstance(one, exp.Rollup | exp.Cube):
        units = [_unit(walk, part, items, keys) for part in one.expressions]
        if isinstance(one, exp.Rollup):
            chosen = [tuple(units[:length]) for length in range(len(units), -1, -1)]
        else:
            if 2 ** len(units) > _SETS_MAX:
                raise NotProven(one, f"has more than {_SETS_MAX} grouping sets", "write fewer of them")
            chosen = [part for length in range(len(units), -1, -1) for part in combinations(units, length)]
        return [tuple(chain.from_iterable(part)) for part in chosen]
    return [_unit(walk, one, items, keys)]


def _unit(walk: Expressions, one: exp.Expr, items: Sequence[exp.Expr], keys: dict[str, Typed]) -> _Set:
    parts = one.expressions if isinstance(one, exp.Tuple) else [one]
    return tuple(_key(walk, part, items, keys) for part in parts)


def _key(walk: Expressions, one: exp.Expr, items: Sequence[exp.Expr], keys: dict[str, Typed]) -> str:
    if isinstance(one, exp.Tuple | exp.Rollup | exp.Cube | exp.GroupingSets):
        raise NotProven(one, "nests grouping sets in this form", "write all of them as grouping sets")
    found = walk.at(GROUP).of(named(walk, one, items))
    if found.literal is not None or not walk.scope.free:
        raise NotProven(one, "groups by what is not a column", "remove it")
    check_comparable(one, found.type)
    if found.type.name in FLOATS or found.type.name == "lake":
        raise NotProven(one, f"groups by {found.type}", "group by a column of another type, or cast it")
    keys.setdefault(found.sql, found)
    return found.sql
