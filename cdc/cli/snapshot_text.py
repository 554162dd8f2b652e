"""Formats snapshots for people: a table, and lines that say what each waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from cdc.cli import output
from cdc.model import units

_STYLES: Final = {
    "complete": "green",
    "reading": "bold cyan",
    "sweeping": "bold cyan",
    "waiting": "yellow",
    "paused": "yellow",
    "stopped": "red",
}
_REASONS_MAX: Final = 3


def table(snapshots: Iterable[Mapping[str, Any]]) -> Table:
    """Return one row for each table; unknown values are empty."""
    numbers = ("read", "rows", "bytes", "rows/s", "left")
    made = output.table("table", "state", *numbers, right=numbers)
    for one in snapshots:
        made.add_row(
            output.plain(one["table"]),
            Text(one["state"], style=_STYLES.get(one["state"], "")),
            done(one),
            f"{one['rows']:,}",
            units.size(one["bytes"]),
            f"{one['rows_per_second']:,.0f}" if one["rows_per_second"] else "",
            units.duration(one["eta_seconds"]) if one["eta_seconds"] is not None else "",
        )
    return made


def done(one: Mapping[str, Any]) -> str:
    """Return the progress of a table: a percentage, or the number of keys left."""
    if one["state"] == "complete":
        return "100 %"
    if one["state"] == "sweeping":
        return f"{one['keys_left']:,} keys to check" if one["keys_left"] else ""
    if one["blocks"]:
        return f"{100 * one['blocks_done'] / one['blocks']:.0f} %"
    return f"{one['keys_left']:,} keys left" if one["keys_left"] else ""


def details(one: Mapping[str, Any]) -> str:
    """Return rows, bytes, rate and whatever else is known of a snapshot, in one line."""
    parts = [f"{one['rows']:,} rows", units.size(one["bytes"])]
    if one["rows_per_second"]:
        parts.append(f"{one['rows_per_second']:,.0f} rows/s")
    if one["eta_seconds"] is not None:
        parts.append(f"{units.duration(one['eta_seconds'])} left")
    if one["keys_left"]:
        parts.append(f"{one['keys_left']:,} keys left")
    if one["chunks_waiting"]:
        parts.append(f"{one['chunks_waiting']} chunks waiting")
    if one["state"] not in {"reading", "complete"}:
        parts.append(one["state"])
    if one["waits_for"]:
        parts.append(f"for {reason(one)}")
    return ", ".join(parts)


def reasons(snapshots: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each table that waits or was stopped."""
    for one in snapshots:
        if one["waits_for"]:
            yield f"{one['table']} waits for {reason(one)}"
        if one["state"] == "stopped":
            yield f"{one['table']} lacks rows from before capture; run `cdc snapshot start {one['table']}`"


def reason(one: Mapping[str, Any]) -> str:
    """Return what a table waits for, shortened."""
    waits = list(one["waits_for"])
    more = f"; and {len(waits) - _REASONS_MAX} more" if len(waits) > _REASONS_MAX else ""
    return "; ".join(output.plain(why) for why in waits[:_REASONS_MAX]) + more
