"""Translates what dates and times have: intervals, extract, date_trunc, at time zone. Pure.

The time zone of the session is UTC in both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.coercion import coerced
from sinks.warehouse.views.meaning.known import CLOCK_FIELDS, FIELDS, TRUNCATED_TO
from sinks.warehouse.views.meaning.pg_types import DATE, TIMES, TIMESTAMP, TIMESTAMPTZ, numeric
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_UNITS: Final = {"year": "month", "month": "month", "week": "day", "day": "day"} | dict.fromkeys(
    ("hour", "minute", "second"), ""
)
_TIMES_OF: Final = {"year": 12, "week": 7}
_COUNT: Final = re.compile(r"\d{1,6}")
_UTC: Final = frozenset({"utc", "gmt", "z", "etc/utc"})


def shifted(walk: Expressions, node: exp.Binary, operator: str) -> Typed:
    """Translate a time plus or minus an interval literal."""
    found, interval = walk.of(node.this), node.expression.unnest()
    if found.type.name not in TIMES or operator not in {"+", "-"}:
        raise NotProven(node, f"computes {operator} with an interval", "write a date or a timestamp in front of it")
    unit = interval.args.get("unit")
    name = unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""
    text = str(interval.this.this) if isinstance(interval.this, exp.Literal) else ""
    if name not in _UNITS or not _COUNT.fullmatch(text):
        raise NotProven(node, "uses this interval", "write one number and one unit: interval '3' month")
    if found.type == DATE:
        found = coerced(node, found, TIMESTAMP)
    count = int(text) * _TIMES_OF.get(name, 1)
    shown = f"interval '{count}' {(_UNITS[name] or name)}"
    return found.of(f"({found.sql} {operator} {shown})", found.type)


def _extract(walk: Expressions, node: exp.Extract) -> Typed:
    found, field = walk.of(node.expression), node.this.name.lower()
    if found.type.name not in TIMES:
        raise NotProven(node, f"extracts from {found.type}", "cast it to date or timestamp")
    entry = FIELDS.get(field)
    if entry is None or (field in CLOCK_FIELDS and found.type == DATE):
        raise NotProven(node, f"extracts {field} from {found.type}", f"known fields: {', '.join(FIELDS)}")
    return Typed(entry[0].format(found.sql), numeric(entry[1], entry[2]))


def _truncated(walk: Expressions, node: exp.TimestampTrunc) -> Typed:
    found, unit = walk.of(node.this), node.args["unit"].name.lower()
    if unit not in TRUNCATED_TO or node.args.get("zone") is not None or found.type.name not in TIMES:
        raise NotProven(node, f"uses date_trunc({unit!r}, {found.type})", f"known units: {', '.join(TRUNCATED_TO)}")
    if found.type == DATE:
        found = coerced(node, found, TIMESTAMPTZ)
    return found.of(f"cast(date_trunc('{unit}', {found.sql}) as {found.type.spark})", found.type)


def _zoned(walk: Expressions, node: exp.AtTimeZone) -> Typed:
    if isinstance(node.this, exp.Binary | exp.Neg):
        raise NotProven(node, "uses at time zone behind an operator", "put the operator into parentheses")
    found, zone = walk.of(node.this), walk.of(node.args["zone"])
    if (zone.literal or "").lower() not in _UTC:
        raise NotProven(
            node, "uses a time zone other than UTC", "write at time zone 'UTC': zone rules differ between releases"
        )
    if found.type == TIMESTAMPTZ:
        return found.of(f"cast({found.sql} as timestamp_ntz)", TIMESTAMP)
    if found.type == TIMESTAMP:
        return found.of(f"cast({found.sql} as timestamp)", TIMESTAMPTZ)
    raise NotProven(node, f"uses at time zone with {found.type}", "cast it to timestamp or timestamptz")


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    exp.Extract: _extract,
    exp.TimestampTrunc: _truncated,
    exp.AtTimeZone: _zoned,
}
