"""Translates joins: conditions, and the columns that USING and NATURAL merge. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from sinks.warehouse.views.meaning.coercion import compared, unified
from sinks.warehouse.views.meaning.placement import ON
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.scope import Input, Scope, Visible, folded, unique
from sinks.warehouse.views.meaning.subqueries import inside
from sinks.warehouse.views.meaning.typed import Typed

_JOINS: Final = {
    ("", ""): "join",
    ("", "INNER"): "join",
    ("LEFT", ""): "left join",
    ("LEFT", "OUTER"): "left join",
    ("RIGHT", ""): "right join",
    ("RIGHT", "OUTER"): "right join",
    ("FULL", ""): "full join",
    ("FULL", "OUTER"): "full join",
    ("", "CROSS"): "cross join",
}
_PARTS: Final = frozenset({"this", "side", "kind", "on", "using", "method"})
_FORMS: Final = "write join, left join, right join, full join ... on"


@dataclass(frozen=True, slots=True)
class Joined:
    """A part of a FROM.

    Attributes:
        sql: Spark SQL.
        inputs: what it reads.
        visible: its columns, in the order of ``*``.
        lateral: whether it uses columns of what is before it.
    """

    sql: str
    inputs: Sequence[Input]
    visible: Sequence[Visible]
    lateral: bool = False


def joined(scope: Scope, left: Joined, right: Joined, join: exp.Join) -> Joined:
    """Translate a join of two parts. Raises NotProven."""
    for key, value in join.args.items():
        if value and key not in _PARTS:
            raise NotProven(join, f"joins with {key}", "write join ... on ...")
    side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
    on, using, method = join.args.get("on"), join.args.get("using"), str(join.args.get("method") or "").upper()
    word = _JOINS.get((side, kind))
    conditions = sum(map(bool, (on is not None, using, method)))
    if word is None or method not in {"", "NATURAL"} or conditions != (0 if kind == "CROSS" else 1):
        shown = " ".join(part for part in (method, side, kind) if part).lower()
        raise NotProven(join, f"uses {shown} join".replace("  ", " "), _FORMS)
    if right.lateral and word in {"right join", "full join"}:
        raise NotProven(join, f"uses lateral in a {word}", "write left join lateral")
    inputs = [*left.inputs, *right.inputs]
    if kind == "CROSS":
        return Joined(f"{left.sql} cross join {right.sql}", inputs, [*left.visible, *right.visible], left.lateral)
    if on is None:
        return _merged(scope, left, right, join, word)
    from sinks.warehouse.views.meaning.expressions import Expressions

    inner = scope.of(inputs, [*left.visible, *right.visible])
    sql = f"{left.sql} {word} {right.sql} on {Expressions(inner, ON).filtering(on)}"
    if word == "full join":
        _check_full(inner, left, right, on)
    return Joined(sql, inputs, inner.visible, left.lateral)


def _check_full(inner: Scope, left: Joined, right: Joined, on: exp.Expr) -> None:
    """Refuse a FULL JOIN that PostgreSQL cannot compute: it needs an equality of both sides."""
    condition = inside(on)
    parts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
    equal = [_is_across(inner, left, right, inside(part), is_hashed=len(parts) > 1) for part in parts]
    if not any(equal) and not isinstance(condition, exp.Boolean):
        raise NotProven(
            on,
            "joins full with a condition that PostgreSQL refuses",
            "write on l.a = r.b and l.c = r.d; restrict an input in a subquery",
        )


def _is_across(inner: Scope, left: Joined, right: Joined, part: exp.Expr, *, is_hashed: bool) -> bool:
    """Whether it compares values of both sides by =; with other conditions, by a hash, and so of one type."""
    from sinks.warehouse.views.meaning.expressions import Expressions

    if not isinstance(part, exp.EQ):
        return False
    names = [{one.alias for one in side.inputs} for side in (left, right)]
    found, kinds = [], set()
    for one in (part.this, part.expression):
        inner.free.clear()
        kinds.add(Expressions(inner, ON).of(one).type.name)
        used = {alias for _, alias in inner.free}
        found.append(next((at for at in (0, 1) if used and used <= names[at]), -1))
    return sorted(found) == [0, 1] and (len(kinds) == 1 or not is_hashed)


def _merged(scope: Scope, left: Joined, right: Joined, join: exp.Join, word: str) -> Joined:
    """Translate USING and NATURAL: columns of the same name become one, in front of the others."""
    names = [folded(one) for one in join.args.get("using") or ()] or _shared(join, left, right)
    if not unique(names):
        raise NotProven(join, "names a column twice in using", "name it once")
    pairs = [(_only(scope, join, left, name, "left"), _only(scope, join, right, name, "right")) for name in names]
    conditions, merged = [], []
    for name, (a, b) in zip(names, pairs, strict=True):
        one, other = compared(join, a, b, order=False)
        conditions.append(f"({one.sql} = {other.sql})")
        merged.append(Visible(name, None, _value(join, a, b, word)))
    rest = [one for part in (left, right) for one in part.visible if one.name not in names]
    sql = f"{left.sql} {word} {right.sql} on {' and '.join(conditions) or 'true'}"
    return Joined(sql, [*left.inputs, *right.inputs], [*merged, *rest], left.lateral)


def _value(join: exp.Join, a: Typed, b: Typed, word: str) -> Typed:
    """Return a merged column: of the side that has all rows; of both in a full join."""
    (one, other), kind = unified(join, [a, b])
    c = a.c and b.c
    if word == "full join":
        return Typed(f"coalesce({one.sql}, {other.sql})", kind, c=c)
    # PostgreSQL prefers the side that has the type of both.
    right = word == "right join" or (word == "join" and a.type != kind and b.type == kind)
    found = other if right else one
    return Typed(found.sql, kind, c=c, source=found.source, claims=found.claims)


def _shared(join: exp.Join, left: Joined, right: Joined) -> list[str]:
    if not all(one.is_listed for part in (left, right) for one in part.inputs):
        raise NotProven(join, "joins columns that are not known by natural join", "write join ... using (...)")
    names = {one.name for one in right.visible}
    return list(dict.fromkeys(one.name for one in left.visible if one.name in names))


def _only(scope: Scope, join: exp.Join, part: Joined, name: str, side: str) -> Typed:
    found = [one for one in part.visible if one.name in {name, ""}]
    if len(found) != 1:
        what = "does not exist in" if not found else "appears more than once in"
        raise NotProven(join, f"column {name} of using {what} the {side} table", "write on a.x = b.x")
    return scope.of(part.inputs, part.visible).value(join, Visible(name, found[0].input, found[0].merged))
