"""Writes days and microseconds since 1970 as PostgreSQL prints dates and timestamps, in every year."""

from __future__ import annotations

from typing import Final

_DAY_US: Final = 86_400_000_000
_ERA_DAYS: Final = 146_097  # of 400 years
_TO_MARCH_0000: Final = 719_468  # from 0000-03-01 to 1970-01-01
_CENTURY_DAYS: Final = 36_524
_FOUR_YEARS_DAYS: Final = 1_460


def day_text(days: int) -> str:
    """Return a date; see "days to civil" of Howard Hinnant's date algorithms."""
    era, day = divmod(days + _TO_MARCH_0000, _ERA_DAYS)
    year_of_era = (day - day // _FOUR_YEARS_DAYS + day // _CENTURY_DAYS - day // (_ERA_DAYS - 1)) // 365
    day_of_year = day - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = year_of_era + era * 400 + (month <= 2)
    if year <= 0:
        return f"{1 - year:04d}-{month:02d}-{day_of_month:02d} BC"
    return f"{year:04d}-{month:02d}-{day_of_month:02d}"


def moment_text(micros: int) -> str:
    """Return a timestamp without its zone."""
    days, rest = divmod(micros, _DAY_US)
    seconds, fraction = divmod(rest, 1_000_000)
    day, _, era = day_text(days).partition(" ")
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    shown = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{day} {clock}{shown}{' ' + era if era else ''}"
