"""`cdc views chart`: draws columns of a view. The only module that imports matplotlib (extra `charts`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, json_option
from cdc.cli.lake_choice import choose_lake, lake_option
from cdc.errors import EXIT_OK, LocalError, UsageError

FORMATS: Final = (".png", ".svg", ".pdf")
_ROWS_MAX: Final = 100_000  # more points than a picture has pixels
_BARS_MAX: Final = 60  # names below an axis that are still readable
_SIZE_INCHES: Final = (9.0, 4.5)
_DOTS_PER_INCH: Final = 120


@dataclass(frozen=True, slots=True)
class Picture:
    """The data of a picture.

    Attributes:
        title: above the picture.
        x_name: below the axis.
        x: numbers, dates and times make lines, everything else bars.
        lines: name -> a number for each x, or None where there is none.
    """

    title: str
    x_name: str
    x: Sequence[Any]
    lines: dict[str, list[float | None]]


@click.command("chart")
@click.argument("name")
@click.option("--x", "x_name", required=True, help="Column for the x axis: numbers, dates, times or names.")
@click.option("--y", "y_names", required=True, multiple=True, help="Column of numbers to draw; repeatable.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="File to write: .png, .svg or .pdf.",
)
@click.option("--at", "at_text", default="", metavar="LSN|CUT", help="Read an older cut  [default: the newest].")
@click.option("--where", default="", help="Only rows that match this SQL condition  [default: all].")
@lake_option
@config_option
@json_option
def chart(
    name: str,
    x_name: str,
    y_names: tuple[str, ...],
    file: Path,
    at_text: str,
    where: str,
    lake_text: str | None,
    config_path: Path | None,
    as_json: bool,
) -> int:
    """Draw columns of a view into a picture file."""
    from sinks.warehouse.read.lake_reader import Lake, parse_at, read, view_summary

    if file.suffix.lower() not in FORMATS:
        raise UsageError(
            f"unsupported picture format: {file}", hint=f"use a file name that ends with {', '.join(FORMATS)}"
        )
    lake = Lake(choose_lake(config_path, lake_text).location)
    manifest = lake.manifest(parse_at(at_text) if at_text else None)
    summary = view_summary(lake, manifest, name)
    table, state = lake.view(name, manifest)
    rows = read(lake, table, state.version, where=where, limit=_ROWS_MAX + 1).to_pylist()
    if len(rows) > _ROWS_MAX:
        raise UsageError(f"{name} has more than {_ROWS_MAX:,} rows", hint="select fewer rows with --where")
    lsn = f", {summary.lsn}" if summary.lsn is not None else ""
    title = f"{name} (cut {summary.cut}{lsn})"
    picture = picture_of(rows, title, x_name, y_names)
    draw(picture, file)
    if as_json:
        output.show_json({"name": name, "file": str(file), "points": len(picture.x), "cut": summary.cut})
    else:
        output.note(f"{len(picture.x):,} points of {title} written to {file}")
    return EXIT_OK


def picture_of(rows: Sequence[dict[str, Any]], title: str, x_name: str, y_names: Sequence[str]) -> Picture:
    """Return rows sorted by x, without those whose x is null. Raises UsageError for columns that cannot be drawn."""
    if not rows:
        raise UsageError("no rows to draw", hint="use a wider --where or a later cut")
    by_name = {column.lower(): column for column in rows[0]}
    for wanted in (x_name, *y_names):
        if wanted.lower() not in by_name:
            raise UsageError(f"unknown column {wanted}", hint=f"available: {', '.join(by_name.values())}")
    x_column = by_name[x_name.lower()]
    kept = [row for row in rows if row[x_column] is not None]
    is_scale = all(_is_scale(row[x_column]) for row in kept)
    if not is_scale and len(kept) > _BARS_MAX:
        raise UsageError(
            f"{len(kept):,} values of column {x_column} do not fit on the x axis",
            hint=f"at most {_BARS_MAX}; select fewer with --where, or use a column of numbers or times",
        )
    kept.sort(key=lambda row: row[x_column] if is_scale else _words(row[x_column]))
    x = [_scaled(row[x_column]) if is_scale else _words(row[x_column]) for row in kept]
    lines = {by_name[y.lower()]: [_number(row[by_name[y.lower()]], y) for row in kept] for y in y_names}
    return Picture(title, x_column, x, lines)


def draw(picture: Picture, file: Path) -> None:
    """Write the picture. Raises LocalError when matplotlib is missing or the file cannot be written."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LocalError(
            "charts need the package 'matplotlib', which is not installed",
            hint="install the extra",
            command="pip install 'tailrace[charts]'",
        ) from error
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots()
    bars = bool(picture.x) and isinstance(picture.x[0], str)
    for number, (name, values) in enumerate(picture.lines.items()):
        numbers = [float("nan") if value is None else value for value in values]
        if bars:
            width = 0.8 / len(picture.lines)
            places = [at + (number - (len(picture.lines) - 1) / 2) * width for at in range(len(numbers))]
            axes.bar(places, numbers, width=width, label=name)
        else:
            axes.plot(picture.x, numbers, marker="o" if len(numbers) <= _BARS_MAX else "", label=name)
    if bars:
        axes.set_xticks(range(len(picture.x)), list(picture.x), rotation=45, ha="right")
    elif picture.x and isinstance(picture.x[0], date):
        figure.autofmt_xdate()
    axes.set_title(picture.title)
    axes.set_xlabel(picture.x_name)
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    if len(picture.lines) > 1:
        axes.legend()
    else:
        axes.set_ylabel(next(iter(picture.lines)))
    try:
        figure.savefig(file)
    except OSError as error:
        raise LocalError(f"cannot write {file}: {error.strerror}", hint="name another file") from error


def _is_scale(value: object) -> bool:
    return isinstance(value, int | float | Decimal | date) and not isinstance(value, bool)


def _scaled(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _words(value: object) -> str:
    text = output.plain(value.isoformat() if isinstance(value, datetime) else str(value))
    return re.sub(r"\s+", " ", text).replace("$", r"\$")  # matplotlib reads formulas between dollars


def _number(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return float(value)
    raise UsageError(f"column {name} is not numeric", hint="--y needs a column of numbers")
