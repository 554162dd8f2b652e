"""Encodes dates, times and intervals as Debezium does, by its `time.precision.mode`. Pure.

`cdc.encode.temporal` parses the server's texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from cdc.encode.temporal import day_micros, epoch_days, epoch_micros, interval_values
from cdc.errors import DecodeError

Form: TypeAlias = tuple[str, Callable[[bytes], bytes]]

_MILLIS_MAX: Final = 3  # fractional digits that the adaptive modes write as milliseconds
_DAY_US: Final = 86_400_000_000
_DAYS_PER_MONTH: Final = 365.25 / 12
_DIGITS: Final = 6  # fractional digits of a type without a precision
_YEAR_DIGITS: Final = 4
_BC: Final = b" BC"
_INFINITE_MILLIS: Final = (-9_223_372_036_832_400_000, 9_223_372_036_825_200_000)  # of PostgreSQL's JDBC driver
_INFINITE_TEXT: Final = {
    b"infinity": b"+292278994-08-16T23:00:00Z",
    b"-infinity": b"-292275055-05-16T23:00:00Z",
}
_INFINITE: Final = frozenset({b"infinity", b"-infinity"})
_PER_US: Final[Mapping[str, tuple[int, int]]] = {"millis": (1, 1000), "micros": (1, 1), "nanos": (1000, 1)}
_timetz: Final = re.compile(rb"(\d\d:\d\d:\d\d(?:\.\d{1,6})?)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?").fullmatch


def form_of(name: str, modifier: int, mode: str, *, in_array: bool = False) -> Form | None:
    """Return the form of a date or time type; None for other types. `mode` is `time.precision.mode`."""
    digits = _DIGITS if modifier < 0 else modifier
    if name == "date":
        return ("debezium_date_text", _date_text) if mode == "isostring" else ("epoch_days", epoch_days)
    if name == "timestamptz":
        return f"debezium_zoned_timestamp({digits})", partial(_zoned_timestamp, digits)
    if name == "timetz":
        return "debezium_zoned_time", _zoned_time
    if name not in {"time", "timestamp"}:
        return None
    if mode == "isostring":
        as_text = _timestamp_text if name == "timestamp" else partial(_time_text, in_array)
        return f"debezium_{name}_text", as_text
    unit = _unit(mode, digits, day=name == "time")
    if name == "timestamp":
        return f"debezium_timestamp_{unit}", partial(_timestamp, unit)
    return f"debezium_time_{unit}", partial(_time, in_array, unit)


def _unit(mode: str, digits: int, *, day: bool) -> str:
    if mode in {"microseconds", "nanoseconds", "connect"}:
        return {"microseconds": "micros", "nanoseconds": "nanos", "connect": "millis"}[mode]
    if day and mode == "adaptive_time_microseconds":
        return "micros"
    return "millis" if digits <= _MILLIS_MAX else "micros"


def _date_text(text: bytes) -> bytes:
    return b'"%bZ"' % _iso(text)


def _time(in_array: bool, unit: str, text: bytes) -> bytes:  # noqa: FBT001
    """Encode a time; in an array Debezium has only milliseconds, in any unit."""
    factor, divisor = _PER_US[unit]
    micros = int(day_micros(text))
    if in_array:
        micros -= micros % 1000
    return b"%d" % (micros * factor // divisor)


def _time_text(in_array: bool, text: bytes) -> bytes:  # noqa: FBT001
    micros = int(day_micros(text)) % _DAY_US
    return b'"%bZ"' % _clock(micros - micros % 1000 if in_array else micros)


def _timestamp(unit: str, text: bytes) -> bytes:
    """Encode a number; null if 64 bits cannot hold it in nanoseconds."""
    if text in _INFINITE:
        low, high = _INFINITE_MILLIS if unit == "millis" else (-(2**63), 2**63 - 1)
        return b"%d" % (high if text == b"infinity" else low)
    shown = epoch_micros(text)
    if shown[:1] == b'"':
        return b"null"
    factor, divisor = _PER_US[unit]
    number = int(shown) * factor // divisor
    return b"%d" % number if -(2**63) <= number < 2**63 else b"null"


def _timestamp_text(text: bytes) -> bytes:
    return b'"%b"' % _INFINITE_TEXT[text] if text in _INFINITE else b'"%bZ"' % _iso(text)


def _zoned_timestamp(digits: int, text: bytes) -> bytes:
    """Encode with a Z and all digits of the column's precision; the time zone of the session is UTC."""
    if text in _INFINITE:
        return b'"%b"' % text
    whole, _, fraction = _iso(text.replace(b"+00", b"", 1)).partition(b".")
    return b'"%b.%bZ"' % (whole, fraction.ljust(digits, b"0")) if digits else b'"%bZ"' % whole


def _zoned_time(text: bytes) -> bytes:
    """Encode a time of day with an offset, shifted to UTC. Raises DecodeError."""
    match = _timetz(text)
    if match is None:
        raise DecodeError("timetz", 0, detail="expected a time of day with an offset")
    clock, sign, hours, minutes, seconds = match.groups(b"0")
    offset = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000
    if not offset:
        return b'"%bZ"' % clock
    micros = (int(day_micros(clock)) - (offset if sign == b"+" else -offset)) % _DAY_US
    return b'"%bZ"' % _clock(micros)


def _iso(text: bytes) -> bytes:
    """Convert a date or timestamp to ISO 8601: a year BC is negative, one after 9999 has a sign."""
    if text.endswith(_BC):
        year, rest = text.removesuffix(_BC).split(b"-", 1)
        before = int(year) - 1  # 1 BC is the year 0
        text = b"%b%04d-%b" % (b"-" if before else b"", before, rest)
    elif text.index(b"-") > _YEAR_DIGITS:
        text = b"+" + text
    return text.replace(b" ", b"T", 1)


def _clock(micros: int) -> bytes:
    seconds, fraction = divmod(micros, 1_000_000)
    shown = b"%02d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
    return shown + (b".%06d" % fraction).rstrip(b"0") if fraction else shown


def interval(text: bytes) -> bytes:
    """Encode as microseconds; a month has 30.4375 days. Uses double arithmetic, as Debezium does in Java."""
    parts = interval_values(text)
    if parts is None:
        return b'"%b"' % text
    months, days, micros = parts
    sign = -1 if micros < 0 else 1
    seconds, fraction = divmod(abs(micros), 1_000_000)
    hours, minutes, seconds = sign * (seconds // 3600), sign * (seconds // 60 % 60), sign * (seconds % 60)
    of_days = months * _DAYS_PER_MONTH + days
    of_seconds = ((of_days * 24 + hours) * 60 + minutes) * 60 + (seconds + sign * fraction / 1e6)
    return b"%d" % int(of_seconds * 1e6)


def interval_text(text: bytes) -> bytes:
    """Encode as ``P1Y2M-3DT4H5M6.789S``, with every part."""
    parts = interval_values(text)
    if parts is None:
        return b'"%b"' % text
    months, days, micros = parts
    years, months = (abs(months) // 12, abs(months) % 12) if months >= 0 else (-(-months // 12), -(-months % 12))
    sign = -1 if micros < 0 else 1
    seconds, fraction = divmod(abs(micros), 1_000_000)
    hours, minutes, seconds = sign * (seconds // 3600), sign * (seconds // 60 % 60), seconds % 60
    shown = b"%d" % seconds + ((b".%06d" % fraction).rstrip(b"0") if fraction else b"")
    shown = b"-" + shown if sign < 0 and (seconds or fraction) else shown
    return b'"P%dY%dM%dDT%dH%dM%bS"' % (years, months, days, hours, minutes, shown)
