"""Translates what dates and times have: intervals, extract, date_trunc, at time zone, to_char. Pure.

The time zone of the session is UTC in both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import zones
from sinks.warehouse.views.meaning.coercion import coerced, common
from sinks.warehouse.views.meaning.intervals import is_interval, read_interval, scaled, spark_terms
from sinks.warehouse.views.meaning.known_time import (
    CLOCK_FIELDS,
    DAY_EPOCH,
    DURATION_FIELDS,
    FIELDS,
    FORMATS,
    FORMATS_SHOWN,
    TIME_FIELDS,
    TRUNCATED_TO,
)
from sinks.warehouse.views.meaning.pg_types import BOOL, DATE, TEXT, TIMES, TIMESTAMP, TIMESTAMPTZ, numeric
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, once, text_literal

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_FORMAT: Final = re.compile(r'%[A-Za-z]|MS|Mon|MON|AM|PM|Q|[-/:., _]|"[^"\\%]*"')


def shifted(walk: Expressions, node: exp.Binary, operator: str) -> Typed:
    """Translate a time plus or minus an interval literal."""
    found = walk.of(node.this)
    if found.type.name not in TIMES or operator not in {"+", "-"}:
        raise NotProven(node, f"computes {operator} with an interval", "write a date or a timestamp in front of it")
    if found.type == DATE:
        found = coerced(node, found, TIMESTAMP)
    parts = scaled(node.expression)
    if parts is not None:
        return zones.in_known_years(found.of(f"({found.sql} {operator} {_scaled(walk, node, *parts)})", found.type))
    duration = read_interval(node.expression)
    terms = spark_terms(duration if operator == "+" else duration.times(-1))
    return zones.in_known_years(found.of(f"({found.sql} + {terms})", found.type))


def _scaled(walk: Expressions, node: exp.Binary, number: exp.Expr, interval: exp.Expr) -> str:
    """Return ``n * interval '1 day'``. PostgreSQL multiplies as float8, which is exact for these."""
    count, duration = walk.of(number), read_interval(interval)
    if count.type.name not in {"int2", "int4"} or duration.micros or bool(duration.months) == bool(duration.days):
        raise NotProven(node, "multiplies this interval", "write an int times months or days: n * interval '1 day'")
    amount = f"cast({count.sql} * {duration.months or duration.days} as int)"
    return f"make_ym_interval(0, {amount})" if duration.months else f"make_dt_interval({amount})"


def duration_comparison(walk: Expressions, node: exp.Binary, operator: str) -> Typed | None:
    """Translate ``a - b < interval '1 day'``; None if it is another comparison."""
    left, right = node.this, node.expression
    if not (is_interval(left) or is_interval(right)):
        return None
    pair = [str(read_interval(one).compared) if is_interval(one) else _difference(walk, one) for one in (left, right)]
    if pair[0] is None or pair[1] is None:
        raise NotProven(node, "compares an interval", "compare the difference of two timestamps with it")
    return Typed(f"({pair[0]} {operator} {pair[1]})", BOOL)


def _difference(walk: Expressions, node: exp.Expr) -> str | None:
    """Return the microseconds of the difference of two timestamps; None if it is something else."""
    inner = node.unnest()
    if not isinstance(inner, exp.Sub) or is_interval(inner.expression):
        return None
    pair = [walk.of(inner.this), walk.of(inner.expression)]
    names = {one.type.name for one in pair}
    if not names & {"timestamp", "timestamptz"}:
        return None
    pair, kind = common(inner, pair)
    left, right = (f"unix_micros(cast({one.sql} as timestamp))" for one in pair)
    return f"({left} - {right})" if kind.name in TIMES else None


def _extract(walk: Expressions, node: exp.Extract) -> Typed:
    field = node.this.name.lower()
    micros = _difference(walk, node.expression)
    if micros is not None:
        found, entry = Typed(micros, TIMESTAMP), DURATION_FIELDS.get(field)
        if entry is None:
            hint = f"known fields: {', '.join(DURATION_FIELDS)}"
            raise NotProven(node, f"extracts {field} from the difference of two timestamps", hint)
        return Typed(once(entry[0], [found]), numeric(entry[1], entry[2]))
    found = walk.of(node.expression)
    if found.type.name == "time":
        known = TIME_FIELDS
    elif found.type.name in TIMES:
        known = FIELDS
    else:
        raise NotProven(node, f"extracts from {found.type}", "cast it to date or timestamp")
    entry = DAY_EPOCH if field == "epoch" and found.type == DATE else known.get(field)
    if entry is None or (field in CLOCK_FIELDS and found.type == DATE):
        raise NotProven(node, f"extracts {field} from {found.type}", f"known fields: {', '.join(known)}")
    return Typed(once(entry[0], [found]), numeric(entry[1], entry[2]))


def _truncated(walk: Expressions, node: exp.TimestampTrunc) -> Typed:
    found, unit, zone = walk.of(node.this), node.args["unit"].name.lower(), node.args.get("zone")
    spark = TRUNCATED_TO.get(unit)
    if spark is None or found.type.name not in TIMES:
        raise NotProven(node, f"uses date_trunc({unit!r}, {found.type})", f"known units: {', '.join(TRUNCATED_TO)}")
    if found.type == DATE or (zone is not None and found.type == TIMESTAMP):
        found = coerced(node, found, TIMESTAMPTZ)
    name = zones.zone_of(node, walk.of(zone), declared=walk.scope.zones) if zone is not None else ""
    if name:
        return zones.truncated(found, unit, spark, name)
    return found.of(f"cast(date_trunc('{spark}', {found.sql}) as {found.type.spark})", found.type)


def _zoned(walk: Expressions, node: exp.AtTimeZone) -> Typed:
    if isinstance(node.this, exp.Binary | exp.Neg):
        raise NotProven(node, "uses at time zone behind an operator", "put the operator into parentheses")
    found = walk.of(node.this)
    zone = zones.zone_of(node, walk.of(node.args["zone"]), declared=walk.scope.zones)
    if found.type == TIMESTAMPTZ:
        return zones.local(found, zone)
    if found.type == TIMESTAMP:
        return zones.instant(found, zone)
    raise NotProven(node, f"uses at time zone with {found.type}", "cast it to timestamp or timestamptz")


def _formatted(walk: Expressions, node: exp.TimeToStr) -> Typed:
    """Translate to_char(); the parser has rewritten the format, ``YYYY`` as ``%Y``."""
    found, form = walk.of(node.this), node.args.get("format")
    if found.type.name not in TIMES or not isinstance(form, exp.Literal) or not form.is_string:
        raise NotProven(node, f"uses to_char({found.type})", "write to_char(date or timestamp, 'YYYY-MM-DD')")
    text = str(form.this)
    patterns = _FORMAT.findall(text)
    known = all(one in FORMATS or one[:1] in '-/:., _"' for one in patterns)
    if "".join(patterns) != text or not known or not text or "%S%S" in text:
        raise NotProven(node, "uses this format of to_char()", f"known are {FORMATS_SHOWN}, - / : . , _ and blanks")
    parts = [FORMATS.get(one) or text_literal(one.strip('"')).replace("{", "{{").replace("}", "}}") for one in patterns]
    return Typed(once(f"if({{0}} is null, null, concat({', '.join(parts)}))", [found]), TEXT)


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    exp.Extract: _extract,
    exp.TimestampTrunc: _truncated,
    exp.AtTimeZone: _zoned,
    exp.TimeToStr: _formatted,
}
