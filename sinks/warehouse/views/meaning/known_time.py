"""What is known to be equal for dates and times. Pure.

The session of the comparison is in UTC. The lake holds no infinity and no year before 1 in a date or a timestamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sinks.warehouse.views.meaning.known_entry import Function, each
from sinks.warehouse.views.meaning.typed import raising

_MICROS: Final = "unix_micros(cast({0} as timestamp))"
MILLIONTH: Final = "cast(0.000001 as decimal(6,6))"
_OF_SECOND: Final = f"pmod({_MICROS}, 1000000)"

FIELDS: Final[Mapping[str, tuple[str, int, int]]] = {
    "year": ("cast(year({0}) as decimal(10,0))", 10, 0),
    "isoyear": ("cast(extract(yearofweek from {0}) as decimal(10,0))", 10, 0),
    "decade": ("cast(year({0}) div 10 as decimal(10,0))", 10, 0),
    "century": ("cast((year({0}) + 99) div 100 as decimal(10,0))", 10, 0),
    "millennium": ("cast((year({0}) + 999) div 1000 as decimal(10,0))", 10, 0),
    "quarter": ("cast(quarter({0}) as decimal(10,0))", 10, 0),
    "month": ("cast(month({0}) as decimal(10,0))", 10, 0),
    "week": ("cast(weekofyear({0}) as decimal(10,0))", 10, 0),
    "day": ("cast(day({0}) as decimal(10,0))", 10, 0),
    "doy": ("cast(dayofyear({0}) as decimal(10,0))", 10, 0),
    "dow": ("cast(dayofweek({0}) - 1 as decimal(10,0))", 10, 0),
    "isodow": ("cast(weekday({0}) + 1 as decimal(10,0))", 10, 0),
    "epoch": (f"cast(cast({_MICROS} as decimal(20,0)) * {MILLIONTH} as decimal(20,6))", 20, 6),
    "hour": ("cast(hour({0}) as decimal(10,0))", 10, 0),
    "minute": ("cast(minute({0}) as decimal(10,0))", 10, 0),
    "second": ("cast(extract(second from {0}) as decimal(8,6))", 8, 6),
    "milliseconds": ("cast(extract(second from {0}) * 1000 as decimal(8,3))", 8, 3),
    "microseconds": ("cast(extract(second from {0}) * 1000000 as decimal(8,0))", 8, 0),
}
"""Field of extract() -> Spark SQL, and the digits of its numeric."""
CLOCK_FIELDS: Final = frozenset({"hour", "minute", "second", "milliseconds", "microseconds"})
"""Fields that a date lacks."""
DAY_EPOCH: Final = ("cast(unix_date({0}) * 86400L as decimal(20,0))", 20, 0)
TIME_FIELDS: Final[Mapping[str, tuple[str, int, int]]] = {
    "hour": ("cast(substring({0}, 1, 2) as decimal(10,0))", 10, 0),
    "minute": ("cast(substring({0}, 4, 2) as decimal(10,0))", 10, 0),
    "second": ("cast(substring({0}, 7) as decimal(8,6))", 8, 6),
}
"""Fields of a time."""
DURATION_FIELDS: Final[Mapping[str, tuple[str, int, int]]] = {
    "epoch": (f"cast(cast({{0}} as decimal(20,0)) * {MILLIONTH} as decimal(20,6))", 20, 6),
    "day": ("cast({0} div 86400000000 as decimal(10,0))", 10, 0),
    "hour": ("cast(({0} % 86400000000) div 3600000000 as decimal(10,0))", 10, 0),
    "minute": ("cast(({0} % 3600000000) div 60000000 as decimal(10,0))", 10, 0),
    "second": (f"cast(cast({{0}} % 60000000 as decimal(20,0)) * {MILLIONTH} as decimal(8,6))", 8, 6),
}
"""Fields of the difference of two timestamps, whose microseconds are the argument."""

TRUNCATED_TO: Final[Mapping[str, str]] = {
    **{unit: unit for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")},
    "milliseconds": "millisecond",
    "microseconds": "microsecond",
}
"""Units of date_trunc() for a timestamp and a timestamptz -> Spark's."""
KEEPS_OFFSET: Final = frozenset({"hour", "minute", "second", "milliseconds", "microseconds"})
"""Units for which date_trunc() in a time zone keeps the offset that the zone has at the value."""

_MONTHS: Final = "'Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'"


def _padded(value: str, width: int) -> str:
    return f"lpad(cast({value} as string), {width}, '0')"


FORMATS: Final[Mapping[str, str]] = {
    "%Y": "lpad(cast(year({0}) as string), greatest(4, length(cast(year({0}) as string))), '0')",
    "%G": "lpad(cast(extract(yearofweek from {0}) as string), 4, '0')",
    "%m": _padded("month({0})", 2),
    "%d": _padded("day({0})", 2),
    "%j": _padded("dayofyear({0})", 3),
    "%V": _padded("weekofyear({0})", 2),
    "%u": "cast(dayofweek({0}) as string)",
    "%H": _padded("hour({0})", 2),
    "%I": _padded("(hour({0}) + 11) % 12 + 1", 2),
    "%M": _padded("minute({0})", 2),
    "%S": _padded("second({0})", 2),
    "%f": _padded(_OF_SECOND, 6),
    "MS": _padded(f"{_OF_SECOND} div 1000", 3),
    "Q": "cast(quarter({0}) as string)",
    "AM": "if(hour({0}) < 12, 'AM', 'PM')",
    "PM": "if(hour({0}) < 12, 'AM', 'PM')",
    "Mon": f"element_at(array({_MONTHS}), month({{0}}))",
    "MON": f"upper(element_at(array({_MONTHS}), month({{0}})))",
}
"""Pattern of to_char(), as the parser writes it -> Spark SQL: YYYY is %Y."""
FORMATS_SHOWN: Final = "YYYY IYYY MM Mon MON DD DDD D IW Q HH24 HH12 MI SS MS US AM PM"

_YEARS: Final = "{0} between 1 and 9999"
FUNCTIONS: Final[Mapping[str, tuple[Function, ...]]] = {
    "make_date": (
        Function(
            ("int4", "int4", "int4"),
            "date",
            "case when {0} is null or {1} is null or {2} is null then null"
            f" when {_YEARS} then make_date({{0}}, {{1}}, {{2}}) else {raising('date out of range', 'date')} end",
        ),
    ),
    "isfinite": each(("date", "timestamp", "timestamptz"), "case when {0} is not null then true end", "bool"),
    "to_timestamp": each(
        ("int2", "int4", "int8"),
        "case when {0} is null or {0} between -62135596800 and 253402300799 then timestamp_seconds({0})"
        f" else {raising('timestamp out of range', 'timestamp')} end",
        "timestamptz",
    ),
}
_TIME_OF_DAY: Final = "regexp_replace(date_format({0}, 'HH:mm:ss.SSSSSS'), '\\\\.?0+$', '')"
CASTS: Final[Mapping[tuple[str, str], str]] = {(name, "time"): _TIME_OF_DAY for name in ("timestamp", "timestamptz")}
