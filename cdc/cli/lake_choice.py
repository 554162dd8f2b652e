"""Selects the lake that a command reads, and formats values of a lake."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from rich.table import Table
from rich.text import Text

from cdc.cli import output
from cdc.cli.command_options import config_file, configuration
from cdc.config.sink_kinds import lakes
from cdc.errors import UsageError

if TYPE_CHECKING:
    from sinks.warehouse.lake.location import Location

F = TypeVar("F", bound=Callable[..., Any])

CELL_CHARACTERS_MAX: Final = 60
_NUMBERS: Final = (int, float, Decimal)

lake_option: Final = click.option(
    "--lake",
    "lake_path",
    metavar="PATH|URL",
    default=None,
    help="Folder or object-store URL of the lake  [default: from the warehouse sink].",
)
"""``--lake``; pass the value to `choose_lake`."""


@dataclass(frozen=True, slots=True)
class LakeChoice:
    """A lake, and the folder of its views' SQL files if known."""

    location: Location
    views: Path | None


def choose_lake(config_path: Path | None, lake_path: str | None) -> LakeChoice:
    """Return the selected lake. Raises UsageError when the configuration does not have exactly one."""
    from sinks.warehouse.lake.location import Location

    if lake_path is not None:
        return LakeChoice(Location.of(lake_path, _options_of(config_path, lake_path)), None)
    sinks = lakes(configuration(config_path))
    if len(sinks) != 1:
        what = f"the configuration has {len(sinks)} warehouse sinks: {', '.join(sorted(sinks))}" if sinks else ""
        raise UsageError(
            what or "the configuration has no warehouse sink",
            hint="name the lake with --lake" + ("" if sinks else ", or add [sinks.lake]"),
        )
    (sink,) = sinks.values()
    return LakeChoice(Location.configured(sink), Path(sink.views) if sink.views else None)


def _options_of(config_path: Path | None, lake_path: str) -> dict[str, str]:
    """Return the storage options of the sink with this path; empty if no sink has it, and the environment counts."""
    if "://" not in lake_path or not config_file(config_path).exists():
        return {}
    for sink in lakes(configuration(config_path)).values():
        if sink.path.rstrip("/") == lake_path.rstrip("/"):
            return {name: value.reveal() for name, value in sink.storage.items()}
    return {}


def json_value(value: object) -> Any:
    """Convert a value for JSON without loss: decimals as text, times in ISO 8601, bytes in PostgreSQL's hex format."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, dict):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return value


def grid(rows: list[dict[str, Any]], columns: list[str]) -> Table:
    """Return rows as a table for a terminal."""
    numbers = [name for name in columns if any(_is_number(row[name]) for row in rows)]
    made = output.table(*map(output.plain, columns), right=list(map(output.plain, numbers)))
    for row in rows:
        made.add_row(*(cell(row[name]) for name in columns))
    return made


def cell(value: object) -> Text:
    """Format a value on one line, truncated."""
    if value is None:
        return Text("null", style="dim")
    if isinstance(value, datetime):
        text = value.isoformat(sep=" ")
    else:
        shown = json_value(value)
        text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    text = output.plain(text)
    return Text(text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 1] + "…")


def _is_number(value: object) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)
