"""Translates round, trunc, ceil, floor and sign. Those of numerics have computed types; `known` has those of floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import decimals
from sinks.warehouse.views.meaning.functions import called
from sinks.warehouse.views.meaning.pg_types import DIGITS_MAX, INTEGERS, numeric
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, once

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_PLACES_MAX: Final = 30


def _rounded(walk: Expressions, node: exp.Round | exp.Trunc) -> Typed:
    name = "round" if isinstance(node, exp.Round) else "trunc"
    found, places = walk.of(node.this), node.args.get("decimals")
    if found.type.name in INTEGERS and places is not None:
        found = decimals.as_decimal(found)
    if found.type.name != "numeric" and places is None:
        return called(node, name, [found])
    digits = int(walk.of(places).literal or _PLACES_MAX + 1) if places is not None else 0
    if found.type.name != "numeric" or abs(digits) > _PLACES_MAX:
        raise NotProven(
            node, f"uses {name}({found.type}) with these digits", f"write {name}(numeric, n) with a literal n"
        )
    if name == "trunc":
        return _truncated(found, digits)
    return decimals.rounded(node, found, digits) if digits >= 0 else _rounded_left(found, -digits)


def _rounded_left(found: Typed, places: int) -> Typed:
    """Return ``round(x, -places)``."""
    whole = found.type.precision - found.type.scale
    result = numeric(whole + 1, 0)
    if places > whole:
        return Typed(once(f"if({{0}} is null, null, cast(0 as {result.spark}))", [found]), result)
    return Typed(f"cast(round({found.sql}, {-places}) as {result.spark})", result)


def _truncated(found: Typed, places: int) -> Typed:
    """Return ``trunc(x, places)``: the digits behind are dropped."""
    kind = found.type
    whole = max(kind.precision - kind.scale, 1)
    result = numeric(min(whole + max(places, 0), DIGITS_MAX), max(places, 0))
    if places >= kind.scale:
        return Typed(f"cast({found.sql} as {result.spark})", result)
    if -places >= whole:
        return Typed(once(f"if({{0}} is null, null, cast(0 as {result.spark}))", [found]), result)
    form = f"cast(if({{0}} >= 0, floor({{0}}, {places}), ceil({{0}}, {places})) as {result.spark})"
    return Typed(once(form, [found]), result)


def _to_whole(walk: Expressions, node: exp.Ceil | exp.Floor) -> Typed:
    name = "ceil" if isinstance(node, exp.Ceil) else "floor"
    found = walk.of(node.this)
    if node.args.get("decimals") is not None or node.args.get("to") is not None:
        raise NotProven(node, f"uses {name}() with several arguments", f"write {name}(x)")
    if found.type.name != "numeric":
        return called(node, name, [found])
    result = numeric(found.type.precision - found.type.scale + 1, 0)
    return Typed(f"cast({name}({found.sql}) as {result.spark})", result)


def _sign(walk: Expressions, node: exp.Sign) -> Typed:
    found = walk.of(node.this)
    if found.type.name != "numeric":
        return called(node, "sign", [found])
    result = numeric(1, 0)
    form = "case when {0} > 0 then 1 when {0} < 0 then -1 when {0} = 0 then 0 end"
    return Typed(f"cast({once(form, [found])} as {result.spark})", result)


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    exp.Round: _rounded,
    exp.Trunc: _rounded,
    exp.Ceil: _to_whole,
    exp.Floor: _to_whole,
    exp.Sign: _sign,
}
