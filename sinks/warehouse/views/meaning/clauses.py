"""Translates ORDER BY and LIMIT, and finds what a name or a position in GROUP BY and ORDER BY means. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.meaning.aggregates import sorted_by
from sinks.warehouse.views.meaning.conditions import check_order
from sinks.warehouse.views.meaning.pg_types import COMPARED
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.scope import folded
from sinks.warehouse.views.meaning.subqueries import inside
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions
    from sinks.warehouse.views.meaning.relation import Selected

_TOTAL: Final = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Star, exp.Collate),
    *(exp.Count, exp.Min, exp.Max, exp.Sum, exp.Avg, exp.Filter, exp.Where, exp.Distinct, exp.Lower, exp.Upper),
    *(exp.Case, exp.If, exp.Coalesce, exp.Predicate, exp.Connector, exp.Not),
)
"""What cannot fail. An ORDER BY without LIMIT is not computed, so an error in it would be lost."""
_REMOVE: Final = "remove order by: a view has no order"


@dataclass(frozen=True, slots=True)
class Key:
    """A sort key: its value, its direction, and the place of the result column that it is, or -1."""

    value: Typed
    ordered: exp.Ordered
    place: int


def named(walk: Expressions, one: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr:
    """Return the expression that a part of GROUP BY or DISTINCT ON means: a position, a name, or itself."""
    one = inside(one)
    if isinstance(one, exp.Literal):
        if one.is_string or any(item.is_star for item in items):
            raise NotProven(one, "groups by a literal, or by a position behind *", "name the column")
        place = int(one.name) if one.name.isdigit() else 0
        if not 1 <= place <= len(items):
            raise NotProven(one, f"position {one.name} is not in the select list", "name the column")
        return inside(items[place - 1].unalias())
    if isinstance(one, exp.Column) and one.args.get("table") is None:
        name = folded(one.this)
        if not any(found.name in {name, ""} for found in walk.scope.visible):
            found = [inside(item.this) for item in items if isinstance(item, exp.Alias) and _alias(item) == name]
            if any(other != found[0] for other in found):
                raise NotProven(one, f"column {name} is ambiguous", "write its expression")
            return found[0] if found else one
    return one


def sort_keys(walk: Expressions | None, order: exp.Order, columns: Sequence[Selected], *, is_used: bool) -> list[Key]:
    """Translate ORDER BY, or check it only. Raises NotProven.

    Args:
        walk: translates expressions; None if keys must be result columns.
        order: the clause.
        columns: the result columns.
        is_used: whether the order has an effect.
    """
    found = [_sort_key(walk, one, columns) for one in order.expressions]
    for key in found:
        kind = key.value.type
        if is_used:
            check_order(key.ordered, kind, c=key.value.c)
        elif kind.name not in {*COMPARED, "lake", "unknown"}:
            raise NotProven(key.ordered, f"orders values of type {kind}", _REMOVE)
        elif key.place < 0 and any(not isinstance(one, _TOTAL) for one in key.ordered.this.walk()):
            raise NotProven(
                key.ordered, "orders by an expression without limit, which a view does not compute", _REMOVE
            )
    return found


def written(keys: Sequence[Key], columns: Sequence[Selected], *, by_name: bool) -> str:
    """Return ORDER BY in Spark SQL, by names of result columns or by expressions."""
    parts = []
    for key in keys:
        value = key.value
        # Spark takes a window function in ORDER BY by its name only.
        if by_name or (key.place >= 0 and " over (" in value.sql):
            value = Typed(quoted(columns[key.place].name), value.type)
        parts.append(sorted_by(value, key.ordered))
    return ", ".join(parts)


def _sort_key(walk: Expressions | None, ordered: exp.Expr, columns: Sequence[Selected]) -> Key:
    one = inside(ordered.this) if isinstance(ordered, exp.Ordered) else ordered
    if not isinstance(ordered, exp.Ordered) or ordered.args.get("with_fill"):
        raise NotProven(ordered, "orders in this form", "write order by x desc nulls last")
    place = _place(one, columns)
    if place >= 0:
        return Key(columns[place].value, ordered, place)
    if walk is None:
        raise NotProven(ordered, "orders by what is not a result column", "order by a name or a position")
    if isinstance(one, exp.Literal):
        raise NotProven(ordered, "orders by a literal", _REMOVE)
    value = walk.of(one)
    if " over (" in value.sql and not any(found.value.sql == value.sql for found in columns):
        raise NotProven(ordered, "orders by a window function that is not selected", "select it, and order by its name")
    same = [at for at, found in enumerate(columns) if found.value.sql == value.sql and found.value.sql]
    return Key(value, ordered, same[0] if same else -1)


def _place(one: exp.Expr, columns: Sequence[Selected]) -> int:
    """Return the place of the result column that a sort key names, or -1."""
    if isinstance(one, exp.Literal) and not one.is_string and one.name.isdigit():
        if not 1 <= int(one.name) <= len(columns):
            raise NotProven(one, f"position {one.name} is not in the select list", "name the column")
        return int(one.name) - 1
    if not isinstance(one, exp.Column) or one.args.get("table") is not None:
        return -1
    found = [at for at, column in enumerate(columns) if column.name == folded(one.this)]
    if len({columns[at].value.sql for at in found}) > 1:
        raise NotProven(one, f"column {one.name} is ambiguous", "rename one of the result columns")
    return found[0] if found else -1


def _alias(item: exp.Alias) -> str:
    return folded(item.args["alias"])


def limited(node: exp.Query) -> str:
    """Translate LIMIT, FETCH FIRST and OFFSET; all need ORDER BY."""
    found = ""
    for word in ("limit", "offset"):
        part = node.args.get(word)
        if part is None:
            continue
        if node.args.get("order") is None:
            raise NotProven(part, f"uses {word} without order by", "add order by on a key")
        if not isinstance(part, exp.Fetch) or not _with_ties(part):
            found += f" {word} {_count(part, word)}"
    return found


def ties(node: exp.Query) -> str:
    """Return the number of rows of FETCH FIRST ... WITH TIES; empty for other queries."""
    fetch = node.args.get("limit")
    if not isinstance(fetch, exp.Fetch) or not _with_ties(fetch):
        return ""
    if node.args.get("offset") is not None:
        raise NotProven(fetch, "uses with ties and offset", "write rank() over (order by ...) in a subquery")
    return _count(fetch, "fetch first")


def _with_ties(fetch: exp.Fetch) -> bool:
    options = fetch.args.get("limit_options")
    if options is not None and options.args.get("percent"):
        raise NotProven(fetch, "uses percent", "write a number of rows")
    return bool(options is not None and options.args.get("with_ties"))


def _count(part: exp.Expr, word: str) -> str:
    value = part.args.get("count" if isinstance(part, exp.Fetch) else "expression")
    if value is None and isinstance(part, exp.Fetch):
        return "1"
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
        raise NotProven(part, f"uses {word} in this form", f"write {word} with a number")
    return value.name
