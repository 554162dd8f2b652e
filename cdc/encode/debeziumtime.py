"""Dates, times and intervals as Debezium writes them, by its `time.precision.mode`. Pure.

`cdc.encode.temporal` reads the server's texts; here is what becomes of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from cdc.encode.temporal import day_micros, epoch_days, epoch_micros, interval_values
from cdc.errors import DecodeError

Form: TypeAlias = tuple[str, Callable[[bytes], bytes]]

_MILLIS_MAX: Final = 3  # digits of a second that are written as milliseconds, where the mode adapts
_DAY_US: Final = 86_400_000_000
_DAYS_PER_MONTH: Final = 365.25 / 12
_INFINITE: Final = frozenset({b"infinity", b"-infinity"})
_PER_US: Final[Mapping[str, tuple[int, int]]] = {"millis": (1, 1000), "micros": (1, 1), "nanos": (1000, 1)}
_timetz: Final = re.compile(rb"(\d\d:\d\d:\d\d(?:\.\d{1,6})?)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?").fullmatch


def form_of(name: str, modifier: int, mode: str) -> Form | None:
    """The form of a type with a date or time of day; None for another type."""
    if name == "date":
        return ("debezium_date_text", _date_text) if mode == "isostring" else ("epoch_days", _date)
    if name == "timestamptz":
        return "debezium_zoned_timestamp", zoned_timestamp
    if name == "timetz":
        return "debezium_zoned_time", zoned_time
    if name not in {"time", "timestamp"}:
        return None
    if mode == "isostring":
        return f"debezium_{name}_text", _time_text if name == "time" else _timestamp_text
    unit = _unit(mode, 6 if modifier < 0 else modifier, day=name == "time")
    return f"debezium_{name}_{unit}", partial(_time if name == "time" else _timestamp, _PER_US[unit])


def _unit(mode: str, digits: int, *, day: bool) -> str:
    if mode in {"microseconds", "nanoseconds", "connect"}:
        return {"microseconds": "micros", "nanoseconds": "nanos", "connect": "millis"}[mode]
    if day and mode == "adaptive_time_microseconds":
        return "micros"
    return "millis" if digits <= _MILLIS_MAX else "micros"


def _date(text: bytes) -> bytes:
    return epoch_days(text)


def _date_text(text: bytes) -> bytes:
    return b'"%bZ"' % text


def _time(unit: tuple[int, int], text: bytes) -> bytes:
    return b"%d" % (int(day_micros(text)) * unit[0] // unit[1])


def _time_text(text: bytes) -> bytes:
    return b'"%bZ"' % text


def _timestamp(unit: tuple[int, int], text: bytes) -> bytes:
    shown = epoch_micros(text)
    return shown if shown[:1] == b'"' else b"%d" % (int(shown) * unit[0] // unit[1])


def _timestamp_text(text: bytes) -> bytes:
    return b'"%bZ"' % text.replace(b" ", b"T", 1)


def zoned_timestamp(text: bytes) -> bytes:
    """In UTC, which the session's zone is, with a Z."""
    if text in _INFINITE:
        return b'"%b"' % text
    return b'"%bZ"' % text.replace(b" ", b"T", 1).replace(b"+00", b"", 1)


def zoned_time(text: bytes) -> bytes:
    """A time of day with an offset, shifted to UTC. Raises DecodeError."""
    match = _timetz(text)
    if match is None:
        raise DecodeError("timetz", 0, detail="is no time of day with an offset")
    clock, sign, hours, minutes, seconds = match.groups(b"0")
    offset = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000
    micros = (int(day_micros(clock)) - (offset if sign == b"+" else -offset)) % _DAY_US
    return b'"%bZ"' % _clock(micros)


def _clock(micros: int) -> bytes:
    seconds, fraction = divmod(micros, 1_000_000)
    shown = b"%02d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
    return shown + (b".%06d" % fraction).rstrip(b"0") if fraction else shown


def interval(text: bytes) -> bytes:
    """Microseconds, of which a month has those of 30.4375 days."""
    parts = interval_values(text)
    if parts is None:
        return b'"%b"' % text
    months, days, micros = parts
    return b"%d" % (int((months * _DAYS_PER_MONTH + days) * _DAY_US) + micros)


def interval_text(text: bytes) -> bytes:
    """``P1Y2M-3DT4H5M6.789S``, with every part."""
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
