"""Names and DDL of the daily (UTC) partitions of an outbox. Pure.

Partition ``<table>_p<yyyymmdd>`` has the rows of its day, ``<table>_default`` the rows without a partition. Creating a
partition in advance is cheap while the default partition has no rows of that day.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final

from outbox.table_names import quoted

AHEAD_DAYS: Final = 7
_NAME: Final = re.compile(r"_p(\d{4})(\d{2})(\d{2})")


def partition_name(table: str, day: date) -> str:
    """Return the name of the partition of a day."""
    return f"{table}_p{day:%Y%m%d}"


def day_of(table: str, partition: str) -> date | None:
    """Return the day of a partition from its name; None for the default partition and for other names."""
    match = _NAME.fullmatch(partition.removeprefix(table)) if partition.startswith(table) else None
    if match is None:
        return None
    try:
        return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return None


def default_name(table: str) -> str:
    """Return the name of the default partition."""
    return f"{table}_default"


def create_default(schema: str, table: str, *, of: str = "") -> str:
    """Return the statement that creates the default partition of `of` (default: `table`)."""
    return (
        f"create table if not exists {quoted(schema)}.{quoted(default_name(table))} "
        f"partition of {quoted(schema)}.{quoted(of or table)} default"
    )


def create_day(schema: str, table: str, day: date, *, of: str = "") -> str:
    """Return the statement that creates the partition of a day if it does not exist."""
    begin, end = f"{day:%Y-%m-%d} 00:00:00+00", f"{day + timedelta(days=1):%Y-%m-%d} 00:00:00+00"
    return (
        f"create table if not exists {quoted(schema)}.{quoted(partition_name(table, day))} "
        f"partition of {quoted(schema)}.{quoted(of or table)} for values from ('{begin}') to ('{end}')"
    )


def days_ahead(today: date, ahead_days: int = AHEAD_DAYS) -> list[date]:
    """Return today and the next days, for which partitions must exist."""
    return [today + timedelta(days=number) for number in range(ahead_days + 1)]
