"""Translates functions in FROM: unnest and generate_series. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.meaning.coercion import coerced
from sinks.warehouse.views.meaning.joins import Joined
from sinks.warehouse.views.meaning.pg_types import DATE, INT4, INT8, INTEGERS, TIMES, TIMESTAMPTZ, PgType
from sinks.warehouse.views.meaning.placement import ROWS
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.scope import Input, Scope, Visible, folded, unique

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions
    from sinks.warehouse.views.meaning.typed import Typed

SERIES: Final = exp.GenerateSeries | exp.ExplodingGenerateSeries
_STEP_MAX: Final = 1_000_000_000
_UNITS: Final = {
    "week": ("day", 7),
    "day": ("day", 1),
    "hour": ("hour", 1),
    "minute": ("minute", 1),
    "second": ("second", 1),
}


def rows_of(scope: Scope, node: exp.Expr, series: exp.Expr) -> Joined:
    """Translate a function in FROM, which may use the inputs before it.

    Args:
        scope: of these inputs.
        node: the function, or LATERAL or the table around it.
        series: the function.
    """
    from sinks.warehouse.views.meaning.expressions import Expressions

    walk = Expressions(scope, ROWS)
    is_unnest = isinstance(series, exp.Unnest)
    values, kind = _unnested(walk, series) if is_unnest else _series(walk, series)
    alias = node.args.get("alias") or series.args.get("alias")
    name = folded(alias.this) if alias is not None else ("unnest" if is_unnest else "generate_series")
    ordinal = _ordinal(node, series)
    given = [folded(one) for one in alias.columns] if alias is not None else []
    default = [name, "ordinality"] if ordinal else [name]
    if isinstance(ordinal, exp.Identifier):
        given = [*given, folded(ordinal)] if given else [name, folded(ordinal)]
    if len(given) > len(default):
        raise NotProven(node, "names more columns than the function has", "remove names")
    columns = [*given, *default[len(given) :]]
    if not unique(columns):
        raise NotProven(node, "has two columns with the same name", "name them: as t(x, n)")
    kinds = [kind, INT8][: len(columns)]
    items = ["`e__`.`x`", "cast(`e__`.`o` + 1 as bigint)"][: len(columns)]
    shown = ", ".join(f"{item} as {quoted(column)}" for item, column in zip(items, columns, strict=True))
    made = f"posexplode({values}) as `e__`(`o`, `x`)" if ordinal else f"explode({values}) as `e__`(`x`)"
    lateral = scope.touched > 0
    found = Input(name, dict(zip(columns, kinds, strict=True)))
    sql = f"{'lateral ' if lateral else ''}(select {shown} from {made}) as {quoted(name)}"
    return Joined(sql, [found], [Visible(column, found) for column in columns], lateral)


def _ordinal(node: exp.Expr, series: exp.Expr) -> exp.Expr | bool:
    found = series.args.get("offset") or node.args.get("ordinality") or node.args.get("offset")
    return found if isinstance(found, exp.Expr) else bool(found)


def _unnested(walk: Expressions, node: exp.Expr) -> tuple[str, PgType]:
    if len(node.expressions) != 1:
        raise NotProven(node, "unnests several arrays", "unnest each with ordinality, and join them by it")
    found = walk.of(node.expressions[0])
    if found.type.element is None:
        raise NotProven(node, f"unnests {found.type}", "unnest a column of an array type")
    return found.sql, found.type.element


def _series(walk: Expressions, node: exp.Expr) -> tuple[str, PgType]:
    parts = [walk.of(node.args[key]) for key in ("start", "end")]
    step = node.args.get("step")
    if all(part.type.name in INTEGERS for part in parts):
        return _numbers(walk, node, parts, step)
    if parts[0].type.name in TIMES and isinstance(step, exp.Interval):
        return _moments(node, parts, step)
    shown = ", ".join(str(part.type) for part in parts)
    raise NotProven(
        node,
        f"uses generate_series({shown}) in this form",
        "use integers, or times with a step such as interval '1 day'",
    )


def _numbers(walk: Expressions, node: exp.Expr, parts: list[Typed], step: exp.Expr | None) -> tuple[str, PgType]:
    found = walk.of(step) if step is not None else None
    text = "1" if found is None else found.literal
    if text is None or not text.lstrip("-").isdigit() or not 0 < abs(int(text)) <= _STEP_MAX:
        raise NotProven(node, "uses generate_series() with this step", "write a literal that is not 0")
    kind = INT8 if any(one.type == INT8 for one in [*parts, *([found] if found else [])]) else INT4
    start, end = (coerced(node, part, kind).sql for part in parts)
    return _sequence(start, end, "<=" if int(text) > 0 else ">=", f"cast({text} as {kind.spark})"), kind


def _moments(node: exp.Expr, parts: list[Typed], step: exp.Interval) -> tuple[str, PgType]:
    kind = TIMESTAMPTZ if parts[0].type == DATE else parts[0].type
    start, end = (coerced(node, part, kind).sql for part in parts)
    return _sequence(start, end, "<=", _step(step)), kind


def _step(node: exp.Interval) -> str:
    """Return an interval without months: PostgreSQL adds each month to the last day that it found."""
    unit = node.args.get("unit")
    name = unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""
    text = str(node.this.this) if isinstance(node.this, exp.Literal) else ""
    if name not in _UNITS or not text.isdigit() or not 0 < int(text) <= _STEP_MAX:
        raise NotProven(node, "uses generate_series() with this interval", "write one number of days or hours")
    shown, times = _UNITS[name]
    return f"interval '{int(text) * times}' {shown}"


def _sequence(start: str, end: str, compared: str, step: str) -> str:
    """Return Spark's sequence, which would count down where PostgreSQL's is empty."""
    return f"case when {start} {compared} {end} then sequence({start}, {end}, {step}) end"
