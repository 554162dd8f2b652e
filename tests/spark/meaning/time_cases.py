"""Cases of dates, times, intervals and time zones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sinks.warehouse.views.meaning import known_time
from tests.spark.meaning.case import Case, column

_KINDS: Final = ("date", "timestamp", "timestamptz")
_INTERVALS: Final = (
    *("1 month'", "13 months'", "1' year", "2 weeks'", "31' day", "5' hour", "90 minutes'", "7' second"),
    *("-1 month'", "1 month 3 days'", "1 day 2 hours'", "1 year -2 months 3 days 04:05:06.789'", "36:00:00'"),
    *("1.5 hours'", "-00:00:00.000001'", "0 days'", "2 mons 1 sec'"),
)
_ZONES: Final = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo")
_FORMATS: Final = (
    *("YYYY-MM-DD", "YYYYMMDDHH24MISS", 'YYYY-MM-DD"T"HH24:MI:SS.US', "yyyy/mm/dd", "HH12:MI AM", "Mon DD, YYYY"),
    *("IYYY-IW", "Q DDD D", "SS.MS", "MON_YYYY", "PM"),
)


def time_cases() -> Iterator[Case]:
    """Yield every case."""
    for kind in _KINDS:
        yield from _fields(kind, column(kind))
        for interval in _INTERVALS:
            for operator in "+-":
                yield Case(f"{operator} interval {kind}", f"{column(kind)} {operator} interval '{interval}", kind)
        yield Case(f"+ interval {kind}", f"{column(kind)} + '1 day'::interval", kind)
        for interval in ("1 day", "2 weeks", "1 month", "-1 year"):
            sql = f"{column(kind)} + {column('int2', 'r')} * interval '{interval}'"
            yield Case(f"+ n * interval {kind}", sql, kind, "int2")
            sql = f"{column(kind)} - interval '{interval}' * {column('int2', 'r')}"
            yield Case(f"- interval * n {kind}", sql, kind, "int2")
        for form in _FORMATS:
            yield Case(f"to_char {kind}", f"to_char({column(kind)}, '{form}')", kind)
        yield Case(f"isfinite {kind}", f"isfinite({column(kind)})", kind)
    for have, kind in known_time.CASTS:
        yield Case(f"cast {have} {kind}", f"{column(have)}::{kind}", have)
    for interval in ("1 day", "2 weeks", "1 month", "-1 year"):
        sql = f"timestamp '2024-02-29 12:00:00' + {column('int4')} * interval '{interval}'"
        yield Case("+ n * interval overflow", sql, "int4")
    yield from _differences()
    yield from _zones()
    yield Case("date - date", f"{column('date')} - {column('date', 'r')}", "date", "date")
    for operator in "+-":
        yield Case(f"date {operator} int4", f"{column('date')} {operator} {column('int4', 'r')}", "date", "int4")
    for kind in ("int2", "int4", "int8"):
        yield Case(f"to_timestamp {kind}", f"to_timestamp({column(kind)})", kind)
    for day in ("2024, 2, 29", "2023, 2, 29", "1, 1, 1", "0, 1, 1", "2024, 13, 1", "2024, 1, 0", "null, 0, 0"):
        yield Case("make_date", f"make_date({day.replace('2024', '2017 + 7').replace('null', 'null::int')})", "int4")
    yield Case("make_date", f"make_date(2024, {column('int4')}, 1)", "int4")


def _fields(kind: str, value: str) -> Iterator[Case]:
    for field in known_time.FIELDS:
        if kind != "date" or field not in known_time.CLOCK_FIELDS:
            yield Case(f"extract {field} {kind}", f"extract({field} from {value})", kind)
    for unit in known_time.TRUNCATED_TO:
        yield Case(f"date_trunc {unit} {kind}", f"date_trunc('{unit}', {value})", kind)
    if kind == "date":
        for field in known_time.TIME_FIELDS:
            yield Case(f"extract {field} time", f"extract({field} from {column('time')})", "time")


def _differences() -> Iterator[Case]:
    for left, right in (("timestamp", "timestamp"), ("timestamptz", "timestamptz"), ("timestamp", "date")):
        value, other = column(left), column(right, "r")
        for field in known_time.DURATION_FIELDS:
            yield Case(f"extract {field} duration", f"extract({field} from ({value} - {other}))", left, right)
        for text in ("1 day", "36 hours", "1 month", "-00:00:00.5"):
            yield Case(f"< interval {left}", f"{value} - {other} < interval '{text}'", left, right)
            yield Case(f">= interval {left}", f"({value} - {other}) >= interval '{text}'", left, right)


def _zones() -> Iterator[Case]:
    yield Case("at time zone timestamptz", f"{column('timestamptz')} at time zone 'utc'", "timestamptz")
    yield Case("at time zone timestamp", f"{column('timestamp')} at time zone 'UTC'", "timestamp")
    for zone in _ZONES:
        for kind, one in (("local_time", "timestamp"), ("zone_time", "timestamptz")):
            yield Case(f"zone {one}", f"{column(kind)} at time zone '{zone}'", kind)
        for unit in known_time.TRUNCATED_TO:
            yield Case(f"zone date_trunc {unit}", f"date_trunc('{unit}', {column('zone_time')}, '{zone}')", "zone_time")
        yield Case(
            "zone twice", f"{column('local_time')} at time zone '{zone}' at time zone 'Asia/Tokyo'", "local_time"
        )
