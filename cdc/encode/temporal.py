"""Encodes times as integers and intervals as parts: `encode.time = "micros"`, `encode.interval = "parts"`. Pure.

The texts have DateStyle ISO and IntervalStyle iso_8601
(https://www.postgresql.org/docs/18/datatype-datetime.html#DATATYPE-DATETIME-OUTPUT). Infinities and timestamps beyond
64 bits keep their default string, so the JSON type distinguishes them from numbers.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Final

from cdc.errors import DecodeError

_INT64_MAX: Final = 2**63 - 1  # reached in 294247; PostgreSQL's own epoch is 30 years later, and so is its end
_DAYS_CACHED: Final = 4096  # dates repeat; eleven years of them take less than 1 MB
_MINUTES_MAX: Final = 24 * 60 + 1  # includes 24:00
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_CYCLE_YEARS: Final = 400  # after which the calendar repeats
_CYCLE_DAYS: Final = 146_097
_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = 3_600_000_000
_MINUTE_US: Final = 60_000_000
_SECOND_US: Final = 1_000_000
_BC: Final = b" BC"
_INFINITE: Final = frozenset({b"infinity", b"-infinity"})

_date: Final = re.compile(rb"(\d{4,7})-(\d\d)-(\d\d)( BC)?").fullmatch
_minute: Final = re.compile(rb"(\d\d):(\d\d)").fullmatch
_seconds: Final = re.compile(rb":(\d\d)(?:\.(\d{1,6}))?").fullmatch
_interval: Final = re.compile(
    rb"P(?=.)(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?"
    rb"(?:T(?=.)(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,6}))?S)?)?"
).fullmatch


@lru_cache(maxsize=_DAYS_CACHED)
def epoch_days(text: bytes) -> bytes:
    """Encode a date as days since 1970-01-01. Raises DecodeError."""
    return b'"%b"' % text if text in _INFINITE else b"%d" % _days(text)


def day_micros(text: bytes) -> bytes:
    """Encode a time as microseconds since midnight. Raises DecodeError."""
    return b"%d" % _micros(text)


def epoch_micros(text: bytes) -> bytes:
    """Encode a timestamp without time zone as microseconds since 1970-01-01 00:00. Raises DecodeError."""
    if text in _INFINITE:
        return b'"%b"' % text
    day, _, clock = text.partition(b" ")
    if clock[-3:] == _BC:
        day, clock = day + _BC, clock[:-3]
    micros = _days(day) * _DAY_US + _micros(clock)
    return b"%d" % micros if micros <= _INT64_MAX else b'"%b"' % text.replace(b" ", b"T", 1)


def interval_parts(text: bytes) -> bytes:
    """Encode an interval as PostgreSQL stores it: signed months, days and microseconds. Raises DecodeError."""
    parts = interval_values(text)
    return b'"%b"' % text if parts is None else b'{"months":%d,"days":%d,"micros":%d}' % parts


def interval_values(text: bytes) -> tuple[int, int, int] | None:
    """Return months, days and microseconds; None for an infinite interval. Raises DecodeError."""
    match = _interval(text)
    if match is None:
        if text in _INFINITE:
            return None
        raise DecodeError("interval", 0, detail="invalid interval")
    years, months, days, hours, minutes, sign, seconds, fraction = match.groups(b"0")
    micros = int(seconds) * _SECOND_US + int(fraction.ljust(6, b"0"))
    micros = int(hours) * _HOUR_US + int(minutes) * _MINUTE_US + (-micros if sign == b"-" else micros)
    return int(years) * 12 + int(months), int(days), micros


@lru_cache(maxsize=_DAYS_CACHED)
def _days(text: bytes) -> int:
    """Return the days since 1970-01-01 of ``2026-11-21`` or ``0044-03-15 BC``."""
    match = _date(text)
    if match is None:
        raise DecodeError("date", 0, detail="invalid date")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if match[4] is not None:
        year = 1 - year
    cycles, place = divmod(year - 1, _CYCLE_YEARS)
    try:
        ordinal = date(place + 1, month, day).toordinal()
    except ValueError:
        raise DecodeError("date", 0, detail="day does not exist in the calendar") from None
    return ordinal + cycles * _CYCLE_DAYS - _EPOCH_ORDINAL


def _micros(text: bytes) -> int:
    """Return the microseconds since midnight of ``16:52:38.25``."""
    match = _seconds(text, 5)
    if match is None:
        raise DecodeError("time", 0, detail="invalid time of day")
    second, fraction = match.groups()
    micros = _minutes(text[:5]) + int(second) * _SECOND_US
    return micros if fraction is None else micros + int(fraction.ljust(6, b"0"))


@lru_cache(maxsize=_MINUTES_MAX)
def _minutes(text: bytes) -> int:
    """Return the microseconds since midnight of ``16:52``."""
    match = _minute(text)
    if match is None:
        raise DecodeError("time", 0, detail="invalid time of day")
    return int(match[1]) * _HOUR_US + int(match[2]) * _MINUTE_US
