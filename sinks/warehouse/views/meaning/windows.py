"""Translates window functions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.aggregates import aggregate, check_filtered, is_aggregate, sorted_by
from sinks.warehouse.views.meaning.coercion import check_comparable, unified, unpadded
from sinks.warehouse.views.meaning.conditions import check_order
from sinks.warehouse.views.meaning.frames import frame
from sinks.warehouse.views.meaning.known import COUNTED, PICKED, SHIFTED, WINDOWS
from sinks.warehouse.views.meaning.pg_types import INT4, PgType
from sinks.warehouse.views.meaning.placement import FILTER
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.scope import folded
from sinks.warehouse.views.meaning.subqueries import inside
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_HINT: Final = "write over (partition by ... order by ... rows between ... and ...)"


def named_windows(node: exp.Select) -> dict[str, exp.Window]:
    """Return the windows that a SELECT defines with WINDOW."""
    found: dict[str, exp.Window] = {}
    for one in node.args.get("windows") or ():
        name = folded(one.this)
        if name in found:
            raise NotProven(one, f"defines the window {name} twice", "rename one of them")
        found[name] = _resolved(one, found)
    return found


def _resolved(node: exp.Window, known: Mapping[str, exp.Window]) -> exp.Window:
    """Return a window with the parts of the one that it names, as PostgreSQL combines them."""
    alias = node.args.get("alias")
    if alias is None:
        return node
    base = known.get(folded(alias))
    if base is None:
        raise NotProven(node, f"window {folded(alias)} does not exist", "define it: window w as (...)")
    is_copy = "partition_by" in node.args  # over (w ...), not over w
    for part, shown in (("partition_by", "partition by"), ("order", "order by")):
        if node.args.get(part) and (part == "partition_by" or base.args.get(part)):
            raise NotProven(node, f"overrides {shown} of the window {folded(alias)}", "write the window in full")
    if is_copy and base.args.get("spec") is not None:
        raise NotProven(node, f"copies the window {folded(alias)}, which has a frame", "write over w without ()")
    found = exp.Window(
        **{part: node.args.get(part) or base.args.get(part) for part in ("partition_by", "order", "spec")}
    )
    found.parent = node.parent
    return found


def window(walk: Expressions, node: exp.Window) -> Typed:
    """Translate a function with OVER. Raises NotProven."""
    if str(node.args.get("over") or "OVER").upper() != "OVER":
        raise NotProven(node, "uses a window in this form", _HINT)
    function, condition = node.this, None
    if isinstance(function, exp.Filter):
        condition, function = function.expression.this, function.this
    parts = _Parts(walk, node, _resolved(node, walk.scope.windows))
    if is_aggregate(function):
        return _aggregate(walk, function, condition, parts)
    if condition is not None:
        raise NotProven(node, "uses filter with a window function that is not an aggregate")
    name = function.name.lower() if isinstance(function, exp.Anonymous) else function.sql_name().lower()
    if name in {*WINDOWS, *SHIFTED, *PICKED, *COUNTED} and not parts.order:
        raise NotProven(node, f"uses {name}() without order by", "order by a key inside over (...)")
    if name in WINDOWS and not list(function.iter_expressions()):
        return Typed(f"{name}() over ({parts.text(frame=False)})", PgType(WINDOWS[name]))
    if name == "ntile":
        count = _literal(walk, node, function.this, name)
        return Typed(f"ntile({count}) over ({parts.text(frame=False)})", INT4)
    if name in SHIFTED:
        return _shifted(walk, node, function, name, parts)
    if name in PICKED and not function.expressions:
        found = walk.of(function.this)
        more = f", {_literal(walk, node, function.args.get('offset'), name)}" if name == "nth_value" else ""
        return found.of(f"{name}({found.sql}{more}) over ({parts.text()})", found.type)
    raise NotProven(node, f"uses {name}() over a window")


def _aggregate(walk: Expressions, function: exp.Expr, condition: exp.Expr | None, parts: _Parts) -> Typed:
    """Translate an aggregate over a window."""
    if condition is not None and condition.find(exp.Column) is None:
        raise NotProven(function, "filters a window by a condition without a column", "remove the filter")
    if condition is not None:
        check_filtered(function)
    tail = f" filter (where {walk.at(FILTER).condition(condition)})" if condition is not None else ""
    return aggregate(walk, function, f"{tail} over ({parts.text()})")


def _shifted(walk: Expressions, node: exp.Window, function: exp.Expr, name: str, parts: _Parts) -> Typed:
    """Translate lag and lead, which ignore a frame."""
    offset, default = function.args.get("offset"), function.args.get("default")
    count = _literal(walk, node, offset, name, least=0) if offset is not None else "1"
    values = [walk.of(function.this), *([walk.of(default)] if default is not None else [])]
    values, kind = unified(node, values) if default is not None else (values, values[0].type)
    shown = ", ".join([values[0].sql, count, *(one.sql for one in values[1:])])
    return values[0].of(f"{name}({shown}) over ({parts.text(frame=False)})", kind)


def _literal(walk: Expressions, node: exp.Window, one: exp.Expr | None, name: str, *, least: int = 1) -> str:
    found = walk.of(one).literal if one is not None else None
    if found is None or not found.isdigit() or int(found) < least:
        raise NotProven(node, f"uses {name}() with this number", f"write a literal from {least}")
    return found


class _Parts:
    """The parts of a window's definition in Spark SQL."""

    def __init__(self, walk: Expressions, node: exp.Window, found: exp.Window) -> None:
        self._node = node
        partition = [walk.of(one) for one in found.args.get("partition_by") or ()]
        for one in partition:
            check_comparable(node, one.type)
        self.partition = [unpadded(one).sql for one in partition]
        order = found.args.get("order")
        self.order = [(walk.of(one.this), one) for one in order.expressions] if order is not None else []
        for key, ordered in self.order:
            if isinstance(inside(ordered.this), exp.Literal):
                raise NotProven(node, "orders a window by a literal", "name the column: a number means itself here")
            check_order(ordered, key.type, c=key.c)
        self._spec = found.args.get("spec")
        self._frame = frame(node, self._spec, self.order) if self._spec is not None else None

    def text(self, *, frame: bool = True) -> str:
        """Return the definition; functions of a row's place have no frame."""
        partition = [f"partition by {', '.join(self.partition)}"] if self.partition else []
        keys = [sorted_by(key, ordered) for key, ordered in self.order]
        bounds = []
        if frame and self._frame is not None:
            bounds = [self._frame.bounds]
            keys = [self._frame.key or keys[0]] if self._frame.key else keys
        order = [f"order by {', '.join(keys)}"] if keys else []
        return " ".join([*partition, *order, *bounds])
