"""Translates GROUP BY, ORDER BY and LIMIT. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.meaning.aggregates import sorted_by
from sinks.warehouse.views.meaning.coercion import check_comparable
from sinks.warehouse.views.meaning.conditions import check_order
from sinks.warehouse.views.meaning.pg_types import FLOATS
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.scope import folded
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions
    from sinks.warehouse.views.meaning.relation import Selected


_NO_EMPTY_SET: Final = "write grouping sets without (), and the total as another select with union all"
_SETS: Final[dict[type[exp.Expr], str]] = {
    exp.Rollup: "rollup",
    exp.Cube: "cube",
    exp.GroupingSets: "grouping_sets",
}


def group_by(walk: Expressions, group: exp.Group, columns: Sequence[Selected]) -> str:
    """Translate GROUP BY with its grouping sets."""
    known = {"expressions", "rollup", "cube", "grouping_sets"}
    if any(value for key, value in group.args.items() if key not in known):
        raise NotProven(group, "uses group by in this form", "name the columns")
    keys = [*group.expressions, *(one for word in _SETS.values() for one in group.args.get(word) or ())]
    if any(type(one) in _SETS for one in keys):
        if len(keys) > 1:
            raise NotProven(group, "combines columns with grouping sets", "write all of them as grouping sets")
        (found,) = keys
        # Spark has no row for the empty set if there are no rows; PostgreSQL has one.
        if not isinstance(found, exp.GroupingSets) or any(
            isinstance(one, exp.Tuple) and not one.expressions for one in found.expressions
        ):
            raise NotProven(group, "groups by the empty set (rollup, cube, or ())", _NO_EMPTY_SET)
        sets = [_set(walk, one, columns) for one in found.expressions]
        return f" group by {_SETS[type(found)].replace('_', ' ')} ({', '.join(sets)})"
    return f" group by {', '.join(_key(walk, one, columns) for one in keys)}"


def _set(walk: Expressions, one: exp.Expr, columns: Sequence[Selected]) -> str:
    if isinstance(one, exp.Tuple):
        return f"({', '.join(_key(walk, part, columns) for part in one.expressions)})"
    if isinstance(one, exp.Rollup | exp.Cube):
        raise NotProven(one, "nests grouping sets", "write all of them as grouping sets")
    inner = one.this if isinstance(one, exp.Paren) else one
    return f"({_key(walk, inner, columns)})"


def _key(walk: Expressions, one: exp.Expr, columns: Sequence[Selected]) -> str:
    found = _named(walk, one, columns, inputs_first=True)
    if found.literal is not None:
        raise NotProven(one, "groups by a literal", "remove it")
    check_comparable(one, found.type)
    if found.type.name in FLOATS or found.type.name == "lake":
        raise NotProven(one, f"groups by {found.type}", "group by a column of another type, or cast it")
    return found.sql


def _named(walk: Expressions, one: exp.Expr, columns: Sequence[Selected], *, inputs_first: bool) -> Typed:
    """Return a sort or group key: a place, a result column, or an expression."""
    if isinstance(one, exp.Literal) and not one.is_string:
        place = int(one.name) if one.name.isdigit() else 0
        if not 1 <= place <= len(columns):
            raise NotProven(one, f"position {one.name} is not in the select list", "name the column")
        return columns[place - 1].value
    simple = isinstance(one, exp.Column) and one.args.get("table") is None
    aliases = [found for found in columns if simple and found.name == folded(one.this)]
    if simple and aliases and not inputs_first:
        return aliases[0].value
    try:
        return walk.of(one)
    except NotProven:
        if aliases:
            return aliases[0].value
        raise


def order_by(walk: Expressions, order: exp.Order, columns: Sequence[Selected], *, inputs: bool) -> str:
    """Translate ORDER BY. Without `inputs`, keys must be result columns."""
    if not inputs:
        return visible_order(order, columns)
    parts = []
    for ordered in order.expressions:
        key = _named(walk, ordered.this, columns, inputs_first=False)
        check_order(ordered, key.type, c=key.c)
        parts.append(sorted_by(key, ordered))
    return ", ".join(parts)


def visible_order(order: exp.Order, columns: Sequence[Selected]) -> str:
    """Translate ORDER BY over result columns only, as of DISTINCT and of a UNION."""
    parts = []
    for ordered in order.expressions:
        one = ordered.this
        place = int(one.name) - 1 if isinstance(one, exp.Literal) and one.name.isdigit() else -1
        if isinstance(one, exp.Column) and one.args.get("table") is None:
            place = next((at for at, found in enumerate(columns) if found.name == folded(one.this)), -1)
        if not 0 <= place < len(columns):
            raise NotProven(ordered, "orders by what is not a result column", "order by a name or a position")
        value = columns[place].value
        check_order(ordered, value.type, c=value.c)
        if value.type.name == "bpchar":
            raise NotProven(ordered, "orders by char(n)", "cast it to text")
        parts.append(sorted_by(Typed(quoted(columns[place].name), value.type), ordered))
    return ", ".join(parts)


def limited(node: exp.Query) -> str:
    """Translate LIMIT and OFFSET; both need ORDER BY."""
    found = ""
    for word in ("limit", "offset"):
        part = node.args.get(word)
        if part is None:
            continue
        value = part.expression if isinstance(part, exp.Limit | exp.Offset) else None
        if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
            raise NotProven(part, f"uses {word} in this form", f"write {word} with a number")
        if node.args.get("order") is None:
            raise NotProven(part, f"uses {word} without order by", "add order by on a key")
        found += f" {word} {value.name}"
    return found
