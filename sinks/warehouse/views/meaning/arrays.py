"""Translates arrays. Pure.

The lake keeps a captured array as JSON, without its lower bounds. So a[i], slices and = of captured arrays are not
known: PostgreSQL may count from another number than 1. ``a[:]`` counts from 1 in PostgreSQL as well, and arrays that a
query makes do. What treats an array as a bag of elements is known for all. An array of several dimensions is an error
when it is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.coercion import compared, literal, unified
from sinks.warehouse.views.meaning.pg_types import BOOL, INT4, INTEGERS, TEXT, PgType, array
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, named, once, raising, text_literal

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

ELEMENTS: Final = ("int2", "int4", "int8", "bool", "text", "varchar", "uuid")
"""Types of elements of captured arrays."""
_MADE: Final = (*ELEMENTS, "numeric", "date", "timestamp", "timestamptz")
_WORDS: Final = re.compile(r"\{(?:[\w.+-]+(?:,[\w.+-]+)*)?\}")
_BOUNDS: Final = "write (a[:])[1]: the lake does not keep lower bounds, and a[:] begins with 1 in PostgreSQL too"
_SEVERAL: Final = "an array of several dimensions is not known to mean the same in Spark"


def elements(node: exp.Expr, found: Typed) -> Typed:
    """Return an array of Spark for a captured array or one that the query makes. Raises NotProven."""
    if found.type.element is not None:
        return found
    name = found.type.name.removesuffix("[]")
    if not found.type.name.endswith("[]") or name not in ELEMENTS:
        raise NotProven(node, f"uses {found.type} as an array", f"known are arrays of {', '.join(ELEMENTS)}")
    kind = array(TEXT if name == "varchar" else PgType(name))
    assert kind.element is not None
    # As text first: an option of capture writes an int8 as a JSON string.
    texts = "from_json({0}, 'array<string>', map('mode', 'FAILFAST'))"
    values = (
        texts if kind.element.spark == "string" else f"transform({texts}, e__ -> cast(e__ as {kind.element.spark}))"
    )
    failed = raising(_SEVERAL, kind.spark)
    return Typed(once(f"case when startswith({{0}}, '[[') then {failed} else {values} end", [found]), kind, c=found.c)


def _element(found: Typed, name: str) -> Typed:
    assert found.type.element is not None
    return Typed(name, found.type.element, c=found.c)


def _array(walk: Expressions, node: exp.Array) -> Typed:
    if not node.expressions:
        raise NotProven(node, "uses an empty array without a type", "write '{}'::int[]")
    values, kind = unified(node, [walk.of(one) for one in node.expressions])
    if kind.name not in _MADE:
        raise NotProven(node, f"makes an array of {kind}", f"known are arrays of {', '.join(_MADE)}")
    return Typed(f"array({', '.join(one.sql for one in values)})", array(kind), c=any(one.c for one in values))


def array_literal(node: exp.Expr, text: str, element: PgType) -> Typed:
    """Return ``'{1,2}'::int[]``. Raises NotProven."""
    words = text[1:-1].split(",") if text != "{}" else []
    if not _WORDS.fullmatch(text) or element.name not in ELEMENTS or any(one.lower() == "null" for one in words):
        raise NotProven(node, f"casts {text[:40]!r} to an array", "write array[...]")
    kind = array(TEXT if element.name == "varchar" else element)
    items = ", ".join(literal(node, one, element).sql for one in words)
    return Typed(f"cast(array({items}) as {kind.spark})", kind)


def quantified(walk: Expressions, node: exp.Binary, operator: str, inner: exp.Expr, *, every: bool) -> Typed:
    """Translate ``x = any(array)`` and ``x = all(array)``."""
    found, value = elements(node, walk.of(inner)), walk.of(node.this)
    a, b = compared(node, value, _element(found, "e__"), order=operator not in {"=", "<>"})
    name = "forall" if every else "exists"
    if value.source is not None or value.literal is not None:
        return Typed(f"{name}({found.sql}, e__ -> {a.sql} {operator} {b.sql})", BOOL)
    # An empty array has no element for which Spark would compute the value, and show its error.
    row = f"named_struct('f0', {found.sql}, 'f1', {a.sql})"
    return Typed(named(row, "y__", f"{name}(y__.f0, e__ -> y__.f1 {operator} {b.sql})"), BOOL)


def _pair(walk: Expressions, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> list[Typed]:
    typed = [walk.of(one) for one in (left, right)]
    found = [elements(node, one) for one in typed if one.type.name != "unknown"]
    if len(found) == 1 and (kind := found[0].type.element) is not None:
        at = 0 if typed[0].type.name == "unknown" else 1
        found.insert(at, array_literal(node, typed[at].literal or "", kind))
    if len(found) != len(typed):
        raise NotProven(node, "compares two literals as arrays", "write array[...]")
    kinds = [one.type.element for one in found]
    if kinds[0] != kinds[1] or kinds[0] is None or kinds[0].name not in ELEMENTS:
        raise NotProven(node, f"compares {found[0].type} with {found[1].type}", "cast the elements to one type")
    return found


def contains(walk: Expressions, node: exp.Binary) -> Typed:
    """Translate @> and <@: a null is contained in nothing; an empty array in each."""
    swapped = isinstance(node, exp.ArrayContainedBy)
    left, right = (node.expression, node.this) if swapped else (node.this, node.expression)
    form = (
        "case when {0} is not null and {1} is not null"
        " then forall({1}, e__ -> exists({0}, f__ -> coalesce(f__ = e__, false))) end"
    )
    return Typed(once(form, _pair(walk, node, left, right)), BOOL)


def _overlaps(walk: Expressions, node: exp.ArrayOverlaps) -> Typed:
    form = "case when {0} is not null and {1} is not null then coalesce(arrays_overlap({0}, {1}), false) end"
    return Typed(once(form, _pair(walk, node, node.this, node.expression)), BOOL)


def cardinality(walk: Expressions, node: exp.Anonymous) -> Typed:
    """Translate ``cardinality``."""
    if len(node.expressions) != 1:
        raise NotProven(node, "uses cardinality() with several arguments")
    return Typed(f"array_size({elements(node, walk.of(node.expressions[0])).sql})", INT4)


def _length(walk: Expressions, node: exp.ArraySize) -> Typed:
    dimension = node.expression
    if not isinstance(dimension, exp.Literal) or dimension.name != "1":
        raise NotProven(node, "uses array_length() of another dimension than 1", "write array_length(a, 1)")
    return Typed(f"nullif(array_size({elements(node, walk.of(node.this)).sql}), 0)", INT4)


def _joined(walk: Expressions, node: exp.ArrayToString) -> Typed:
    found, separator = elements(node, walk.of(node.this)), walk.of(node.expression)
    kind = found.type.element
    if node.args.get("null") is not None or separator.literal is None or kind is None:
        raise NotProven(node, "uses array_to_string() in this form", "write array_to_string(a, ',')")
    if kind.name not in {*INTEGERS, "text", "uuid"}:
        raise NotProven(node, f"writes {kind} as text in an array", "collect text: array_agg(x::text order by ...)")
    texts = f"transform({found.sql}, e__ -> cast(e__ as string))"
    return Typed(f"array_join({texts}, {text_literal(separator.literal)})", TEXT, c=found.c)


def _item(walk: Expressions, node: exp.Bracket) -> Typed:
    """Translate a[i] and a[i:j]."""
    found = walk.of(node.this)
    (index,) = node.expressions if len(node.expressions) == 1 else (None,)
    if isinstance(index, exp.Slice):
        return _slice(walk, node, found, index)
    if found.type.element is None:
        if found.type.name.endswith("[]"):
            raise NotProven(node, "uses an element of a captured array", _BOUNDS)
        raise NotProven(node, f"uses an element of {found.type}", "use an array")
    if isinstance(index, exp.Literal) and not index.is_string:
        # The parser counts from 0, and leaves other expressions as they are.
        sql = f"try_element_at({found.sql}, {int(index.name) + 1})"
        return Typed(sql, found.type.element, c=found.c)
    place = walk.of(index) if index is not None else None
    if place is None or place.type.name not in {"int2", "int4"} or isinstance(index, exp.Neg):
        raise NotProven(node, "uses an element at this place", "write a[1], or a[i] with an int")
    form = "case when {1} >= 1 then try_element_at({0}, cast({1} as int)) end"
    return Typed(once(form, [found, place]), found.type.element, c=found.c)


def _slice(walk: Expressions, node: exp.Bracket, found: Typed, part: exp.Slice) -> Typed:
    low, high = part.this, part.expression
    if low is None and high is None:
        return elements(node, found)
    if found.type.element is None:
        raise NotProven(node, "uses a slice of a captured array", _BOUNDS)
    ends = [walk.of(one).literal if one is not None else "" for one in (low, high)]
    if any(one is None or (one and not one.isdigit()) for one in ends) or ends[0] == "0":
        raise NotProven(node, "uses a slice with these bounds", "write a[1:2] with literals from 1")
    first = int(ends[0] or 1)
    count = str(max(int(ends[1]) - first + 1, 0)) if ends[1] else "greatest(array_size({0}), 0)"
    return Typed(once(f"slice({{0}}, {first}, {count})", [found]), found.type, c=found.c)


def _unnested(walk: Expressions, node: exp.Explode) -> Typed:  # noqa: ARG001  handlers have one form
    raise NotProven(node, "uses unnest() in the select list", "test the elements: x = any(a), or store them as rows")


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    exp.Array: _array,
    exp.ArrayContainedBy: contains,
    exp.ArrayOverlaps: _overlaps,
    exp.ArraySize: _length,
    exp.ArrayToString: _joined,
    exp.Bracket: _item,
    exp.Explode: _unnested,
}
