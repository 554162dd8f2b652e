"""Selects the lake that a command reads, and formats values of a lake."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
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
from cdc.control.chosen_lake import LakeChoice
from cdc.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from cdc.config.settings import Warehouse
    from sinks.warehouse.views.definition import View, ViewFiles

F = TypeVar("F", bound=Callable[..., Any])

CELL_CHARACTERS_MAX: Final = 60
_NUMBERS: Final = (int, float, Decimal)

lake_option: Final = click.option(
    "--lake",
    "lake_text",
    metavar="NAME|PATH|URL",
    default=None,
    help="Name of a warehouse sink, or folder or URL of a lake  [default: the only warehouse sink].",
)
"""``--lake``; pass the value to `choose_lake`."""

views_option: Final = click.option(
    "--views",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the views' SQL files  [default: from the warehouse sink].",
)
"""``--views``; pass the value to `views_of_files`."""


def choose_lake(config_path: Path | None, lake_text: str | None) -> LakeChoice:
    """Return the selected lake: by the name of its sink, by its place, or the only one of the configuration.

    A place that a sink of the configuration has is read with that sink's storage options and views. Raises UsageError.
    """
    from sinks.warehouse.lake.location import Location

    if lake_text is None:
        return LakeChoice.of(_only(lakes(configuration(config_path))))
    known = _known(config_path, lake_text)
    if lake_text in known:
        return LakeChoice.of(known[lake_text])
    for sink in known.values():
        if _same_place(sink.path, lake_text):
            return LakeChoice.of(sink)
    if known and _is_name(lake_text):
        raise UsageError(
            f"no lake {lake_text!r}: it is neither a warehouse sink nor a folder",
            hint=f"warehouse sinks in the configuration: {', '.join(sorted(known))}",
        )
    return LakeChoice(Location.of(lake_text), None)


def name_of_lake(config_path: Path | None, lake_text: str | None) -> str:
    """Return the name of the warehouse sink that `choose_lake` selects; empty for a lake without one."""
    if lake_text is None:
        return next(iter(lakes(configuration(config_path))))
    known = _known(config_path, lake_text)
    if lake_text in known:
        return lake_text
    return next((name for name, sink in known.items() if _same_place(sink.path, lake_text)), "")


def views_of_files(config_path: Path | None, lake_text: str | None, folder: Path | None) -> ViewFiles:
    """Return the views in `folder`, by default in the folder of the selected lake's sink. Raises UsageError."""
    from sinks.warehouse.views.definition import read_views

    folder = folder or choose_lake(config_path, lake_text).views
    if folder is None:
        raise UsageError(
            "the folder of the views is unknown", hint="set views in the section of the warehouse sink, or pass --views"
        )
    return read_views(folder)


def named_view(files: ViewFiles, name: str) -> View:
    """Return a view by its name. Raises UsageError with the closest name, or why its file cannot be used."""
    from sinks.warehouse.lake.table_naming import known_names_hint

    if name in files.refused:
        raise files.refused[name]
    views = {view.name: view for view in files.views}
    if name not in views:
        hint = known_names_hint(name, [*views, *files.refused]) or "the folder has no *.sql file"
        raise UsageError(f"no view {name} in the folder of views", hint=hint)
    return views[name]


def _only(sinks: Mapping[str, Warehouse]) -> Warehouse:
    if len(sinks) == 1:
        return next(iter(sinks.values()))
    names = sorted(sinks)
    if not names:
        raise UsageError(
            "the configuration has no warehouse sink", hint="name the lake with --lake, or add [sinks.lake]"
        )
    raise UsageError(
        f"the configuration has {len(names)} warehouse sinks: {', '.join(names)}",
        hint=f"name one of them, e.g. --lake {names[0]}",
    )


def _known(config_path: Path | None, lake_text: str) -> dict[str, Warehouse]:
    """Return the warehouse sinks by name. A folder can be read without a configuration, or with an invalid one."""
    if not config_file(config_path).exists():
        return {}
    try:
        return lakes(configuration(config_path))
    except ConfigError:
        if "://" in lake_text or _is_name(lake_text):
            raise
        return {}


def _is_name(lake_text: str) -> bool:
    return not any(mark in lake_text for mark in ("/", "\\", "://")) and not Path(lake_text).exists()


def _same_place(one: str, other: str) -> bool:
    if "://" in one or "://" in other:
        return one.rstrip("/") == other.rstrip("/")
    return Path(one).resolve() == Path(other).resolve()


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
