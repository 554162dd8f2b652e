"""Translates window functions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.aggregates import aggregate, is_aggregate, sorted_by
from sinks.warehouse.views.meaning.coercion import unpadded
from sinks.warehouse.views.meaning.conditions import check_order
from sinks.warehouse.views.meaning.known import PICKED, SHIFTED, WINDOWS
from sinks.warehouse.views.meaning.pg_types import PgType
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_HINT: Final = "write over (partition by ... order by ... rows between ... and ...)"
_BOUNDS: Final = {"UNBOUNDED": "unbounded", "CURRENT ROW": "current row"}


def window(walk: Expressions, node: exp.Window) -> Typed:
    """Translate a function with OVER. Raises NotProven."""
    if node.args.get("alias") is not None or str(node.args.get("over") or "OVER").upper() != "OVER":
        raise NotProven(node, "uses a named window", _HINT)
    function, tail = node.this, ""
    if isinstance(function, exp.Filter):
        tail = f" filter (where {walk.condition(function.expression.this)})"
        function = function.this
    over = f"{tail} over ({_definition(walk, node)})"
    if is_aggregate(function):
        return aggregate(walk, function, over)
    if tail:
        raise NotProven(node, "uses filter with a window function that is not an aggregate")
    name = function.name.lower() if isinstance(function, exp.Anonymous) else function.sql_name().lower()
    if node.args.get("order") is None and (name in WINDOWS or name in SHIFTED or name in PICKED):
        raise NotProven(node, f"uses {name}() without order by", "order by a key inside over (...)")
    if name in WINDOWS and not list(function.iter_expressions()):
        return Typed(f"{name}(){over}", PgType(WINDOWS[name]))
    if name in SHIFTED:
        return _shifted(walk, node, function, name, over)
    if name in PICKED and isinstance(function, exp.FirstValue | exp.LastValue) and not function.expressions:
        found = walk.of(function.this)
        return found.of(f"{name}({found.sql}){over}", found.type)
    raise NotProven(node, f"uses {name}() over a window")


def _shifted(walk: Expressions, node: exp.Window, function: exp.Expr, name: str, over: str) -> Typed:
    found, offset = walk.of(function.this), function.args.get("offset")
    if function.args.get("default") is not None or node.args.get("spec") is not None:
        raise NotProven(node, f"uses {name}() with a default or a frame", "write coalesce around it")
    count = walk.of(offset).literal if offset is not None else "1"
    if count is None or not count.isdigit():
        raise NotProven(node, f"uses {name}() with this offset", "write a literal offset")
    return found.of(f"{name}({found.sql}, {count}){over}", found.type)


def _definition(walk: Expressions, node: exp.Window) -> str:
    parts = []
    partition = [walk.of(one) for one in node.args.get("partition_by") or ()]
    if partition:
        parts.append("partition by " + ", ".join(unpadded(one).sql for one in partition))
    order = node.args.get("order")
    if order is not None:
        keys = [(walk.of(one.this), one) for one in order.expressions]
        for key, ordered in keys:
            check_order(ordered, key.type, c=key.c)
        parts.append("order by " + ", ".join(sorted_by(key, ordered) for key, ordered in keys))
    spec = node.args.get("spec")
    if spec is not None:
        parts.append(_frame(node, spec))
    return " ".join(parts)


def _frame(node: exp.Window, spec: exp.WindowSpec) -> str:
    kind = str(spec.args.get("kind") or "").upper()
    sides = [_bound(spec, "start"), _bound(spec, "end") if spec.args.get("end") else "current row"]
    whole = {"unbounded preceding", "current row", "unbounded following"}
    if spec.args.get("exclude") or kind not in {"ROWS", "RANGE"} or (kind == "RANGE" and not whole.issuperset(sides)):
        raise NotProven(node, f"uses a frame of {kind.lower()} with an offset, or exclude", "write rows between ...")
    if not all(sides):
        raise NotProven(node, "uses this frame", _HINT)
    return f"{kind.lower()} between {sides[0]} and {sides[1]}"


def _bound(spec: exp.WindowSpec, side: str) -> str:
    value, direction = spec.args.get(side), str(spec.args.get(f"{side}_side") or "").lower()
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit():
        return f"{value.name} {direction}"
    shown = _BOUNDS.get(str(value).upper(), "")
    return f"{shown} {direction}".strip() if shown else ""
