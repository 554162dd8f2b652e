"""Translates times in other zones than UTC, for a view that declares that both sides have the same rules. Pure.

Before 1970 packages of time zone data differ by intent, so such a time is an error when it is computed.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from sinks.warehouse.views.meaning.known_time import KEEPS_OFFSET
from sinks.warehouse.views.meaning.pg_types import TIMESTAMP, TIMESTAMPTZ
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, once, raising

UTC: Final = frozenset({"utc", "gmt", "z", "etc/utc"})
_NAME: Final = re.compile(
    r"(?:Africa|America|Antarctica|Asia|Atlantic|Australia|Europe|Indian|Pacific)(?:/[A-Z][A-Za-z_-]+){1,2}"
)
_FIRST: Final = "timestamp '1970-01-01 00:00:00Z'"
_FIRST_LOCAL: Final = "timestamp '1970-01-02 00:00:00Z'"  # in 1970 in every zone
_HINT: Final = (
    "write at time zone 'UTC', or declare above the query that Spark and PostgreSQL have the same time zone rules:"
    " -- time zones: same"
)


def zone_of(node: exp.Expr, zone: Typed, *, declared: bool) -> str:
    """Return the name of a zone, empty for UTC. Raises NotProven."""
    name = zone.literal or ""
    if name.lower() in UTC:
        return ""
    if not _NAME.fullmatch(name):
        raise NotProven(node, "uses this time zone", "write a name of an area and a place: 'Europe/Berlin'")
    if not declared:
        raise NotProven(node, "uses a time zone other than UTC, whose rules differ between releases", _HINT)
    return name


def in_known_years(found: Typed) -> Typed:
    """Return a time that fails outside the years 1 to 9999, whose text and fields differ in Spark."""
    kind = found.type.spark
    failed = raising("a time is outside of the years 1 to 9999", kind)
    form = (
        f"case when {{0}} is null then cast(null as {kind}) when year({{0}}) between 1 and 9999 then {{0}}"
        f" else {failed} end"
    )
    return found.of(once(form, [found]), found.type)


def local(found: Typed, zone: str) -> Typed:
    """Return the local time of a timestamptz."""
    if not zone:
        return found.of(f"cast({found.sql} as timestamp_ntz)", TIMESTAMP)
    failed = raising("a time before 1970 in this zone is not known to be equal", "timestamp_ntz")
    form = (
        f"case when {{0}} < {_FIRST} then {failed} else cast(from_utc_timestamp({{0}}, '{zone}') as timestamp_ntz) end"
    )
    return in_known_years(Typed(once(form, [found]), TIMESTAMP))


def instant(found: Typed, zone: str) -> Typed:
    """Return the timestamptz of a local time.

    PostgreSQL and Spark agree on a time that the zone skips. Of one that it has twice, PostgreSQL means the later one
    and Spark the earlier one.
    """
    if not zone:
        return found.of(f"cast({found.sql} as timestamp)", TIMESTAMPTZ)
    shown = found.of(f"cast({found.sql} as timestamp)", TIMESTAMPTZ)
    earlier = Typed(f"to_utc_timestamp({shown.sql}, '{zone}')", TIMESTAMPTZ)
    after = "({1} + interval '3' hour)"
    offset = f"(unix_micros(from_utc_timestamp({after}, '{zone}')) - unix_micros({after}))"
    both = f"named_struct('x', {{0}}, 'a', {{1}}, 'b', timestamp_micros(unix_micros({{0}}) - {offset}))"
    pair = Typed(once(both, [shown, earlier]), TIMESTAMPTZ)
    failed = raising("a time before 1970 in this zone is not known to be equal", "timestamp")
    chosen = f"if(from_utc_timestamp({{0}}.b, '{zone}') = {{0}}.x, {{0}}.b, {{0}}.a)"
    form = f"case when {{0}}.x < {_FIRST_LOCAL} then {failed} else {chosen} end"
    return in_known_years(Typed(once(form, [pair]), TIMESTAMPTZ))


def truncated(found: Typed, unit: str, spark_unit: str, zone: str) -> Typed:
    """Return ``date_trunc(unit, timestamptz, zone)``."""
    here = local(found, zone)
    there = Typed(f"cast(date_trunc('{spark_unit}', {here.sql}) as timestamp_ntz)", TIMESTAMP)
    if unit not in KEEPS_OFFSET:
        return instant(there, zone)
    micros = "unix_micros(cast({} as timestamp))"
    behind = f"({micros.format('{1}')} - {micros.format('{2}')})"
    return Typed(once(f"timestamp_micros(unix_micros({{0}}) - {behind})", [found, here, there]), TIMESTAMPTZ)
