"""Translates the bit operators & | # ~ << >> of integers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.coercion import common
from sinks.warehouse.views.meaning.pg_types import INTEGERS
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_OPERATORS: Final[dict[type[exp.Expr], str]] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}
_SHIFTS: Final[dict[type[exp.Expr], str]] = {
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}
_BITS: Final = {"int4": 32, "int8": 64}
_PARENTHESES: Final = "put the other operator into parentheses"


def _combined(walk: Expressions, node: exp.Binary) -> Typed:
    if any(isinstance(one, exp.Binary) and type(one) is not type(node) for one in (node.this, node.expression)):
        raise NotProven(node, "combines a bit operator with another operator", _PARENTHESES)
    (left, right), kind = common(node, [walk.of(node.this), walk.of(node.expression)])
    if kind.name not in INTEGERS:
        raise NotProven(node, f"combines bits of {kind}", "cast both sides to integers")
    return Typed(f"({left.sql} {_OPERATORS[type(node)]} {right.sql})", kind)


def _inverted(walk: Expressions, node: exp.BitwiseNot) -> Typed:
    # PostgreSQL reads ~ a + b as ~ (a + b), the parser as (~ a) + b.
    if isinstance(node.parent, exp.Binary) and not isinstance(node.parent, exp.Predicate | exp.Connector):
        raise NotProven(node, "combines ~ with another operator", _PARENTHESES)
    found = walk.of(node.this)
    if found.type.name not in INTEGERS:
        raise NotProven(node, f"inverts bits of {found.type}", "cast it to an integer")
    return found.of(f"(~ {found.sql})", found.type)


def _shifted(walk: Expressions, node: exp.Binary) -> Typed:
    if any(isinstance(one, exp.Binary) for one in (node.this, node.expression)):
        raise NotProven(node, "combines a bit operator with another operator", _PARENTHESES)
    found, count = walk.of(node.this), walk.of(node.expression)
    bits = _BITS.get(found.type.name)
    places = count.literal if count.type.name in INTEGERS else None
    if bits is None or places is None or not 0 <= int(places) < bits:
        raise NotProven(
            node, f"shifts {found.type} by this count", "shift an int or a bigint by a literal less than its bits"
        )
    return found.of(f"{_SHIFTS[type(node)]}({found.sql}, {places})", found.type)


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    **dict.fromkeys(_OPERATORS, _combined),
    **dict.fromkeys(_SHIFTS, _shifted),
    exp.BitwiseNot: _inverted,
}
