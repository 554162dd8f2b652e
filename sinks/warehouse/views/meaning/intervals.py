"""Reads interval literals. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from sqlglot import exp

from sinks.warehouse.views.meaning.refusal import NotProven

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_MONTHS: Final = {"year": 12, "month": 1, "mon": 1}
_DAYS: Final = {"week": 7, "day": 1}
_MICROS: Final = {
    "hour": 3600 * _SECOND,
    "minute": 60 * _SECOND,
    "min": 60 * _SECOND,
    "second": _SECOND,
    "sec": _SECOND,
}
_PART: Final = re.compile(r"\s*([+-]?\d{1,9}(?:\.\d{1,6})?)\s*([a-z]+)")
_CLOCK: Final = re.compile(r"\s*([+-]?)(\d{1,4}):([0-5]\d)(?::([0-5]\d(?:\.\d{1,6})?))?\s*")
_COUNT_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Duration:
    """An interval as PostgreSQL stores it."""

    months: int = 0
    days: int = 0
    micros: int = 0

    @property
    def compared(self) -> int:
        """Microseconds as PostgreSQL compares intervals: a month has 30 days."""
        return (self.months * 30 + self.days) * _DAY + self.micros

    def times(self, sign: int) -> Duration:
        """Return it, or its negative."""
        return Duration(self.months * sign, self.days * sign, self.micros * sign)


def is_interval(node: exp.Expr) -> bool:
    """Whether it is written as an interval: a literal, or a cast of one."""
    inner = node.unnest()
    return isinstance(inner, exp.Interval) or (
        isinstance(inner, exp.Cast) and inner.to.this == exp.DataType.Type.INTERVAL
    )


def scaled(node: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """Return number and interval of ``n * interval '1 day'``; None if it is something else."""
    inner = node.unnest()
    if not isinstance(inner, exp.Mul):
        return None
    sides = (inner.this, inner.expression)
    for number, interval in (sides, sides[::-1]):
        if is_interval(interval) and not is_interval(number):
            return number, interval
    return None


def read_interval(node: exp.Expr) -> Duration:
    """Return an interval literal. Raises NotProven for other forms."""
    inner = node.unnest()
    value = inner.this
    unit = inner.args.get("unit")
    text = str(value.this) if isinstance(value, exp.Literal) and value.is_string else ""
    if isinstance(unit, exp.Var):
        text = f"{text} {unit.name}"
    found = _read(text.lower()) if unit is None or isinstance(unit, exp.Var) else None
    if found is None or max(abs(found.months), abs(found.days)) > _COUNT_MAX:
        raise NotProven(node, "uses this interval", "write numbers and units: interval '1 month 3 days 12 hours'")
    return found


def _read(text: str) -> Duration | None:
    months = days = 0
    micros = Decimal(0)
    at, count = 0, 0
    while (match := _PART.match(text, at)) is not None:
        number, name = Decimal(match[1]), match[2]
        name = name.removesuffix("s")
        if name in _MICROS:
            micros += number * _MICROS[name]
        elif number != int(number):
            return None
        elif name in _MONTHS:
            months += int(number) * _MONTHS[name]
        elif name in _DAYS:
            days += int(number) * _DAYS[name]
        else:
            return None
        at, count = match.end(), count + 1
    clock = _CLOCK.fullmatch(text, at)
    if clock is not None:
        whole = Decimal(clock[2]) * 3600 + Decimal(clock[3]) * 60 + Decimal(clock[4] or 0)
        micros += whole * _SECOND * (-1 if clock[1] == "-" else 1)
    elif count == 0 or text[at:].strip():
        return None
    return Duration(months, days, int(micros)) if micros == int(micros) else None


def spark_terms(duration: Duration) -> str:
    """Return what adds an interval to a timestamp in Spark: months, then days, then the rest, as in PostgreSQL."""
    terms = []
    if duration.months:
        terms.append(f"interval '{duration.months}' month")
    if duration.days:
        terms.append(f"interval '{duration.days}' day")
    if duration.micros or not terms:
        seconds = Decimal(duration.micros).scaleb(-6)
        terms.append(f"interval '{seconds:f}' second")
    return " + ".join(terms)
