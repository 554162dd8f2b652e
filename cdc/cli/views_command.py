"""`cdc views`: lists and shows the views of a lake, at the newest or an older cut. Needs no Kafka."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table
from rich.text import Text

from cdc.cli import output, view_query_command, view_swap_command
from cdc.cli.command_options import config_option, json_option
from cdc.cli.lake_choice import (
    choose_lake,
    grid,
    json_value,
    lake_option,
    named_view,
    views_of_files,
    views_option,
)
from cdc.cli.view_chart_command import chart
from cdc.cli.view_check_command import check_command
from cdc.cli.view_plan_command import explain_command, plan_command
from cdc.clock import SystemClock
from cdc.control.chosen_lake import LakeChoice, check_file
from cdc.errors import EXIT_OK, ViewRefused
from cdc.model import units

if TYPE_CHECKING:
    from sinks.warehouse.lake.manifest import Manifest
    from sinks.warehouse.read.lake_reader import At, ViewSummary
    from sinks.warehouse.views.definition import View, ViewFiles

_LIMIT: Final = 20
_NOT_YET: Final = "not published yet"

limit_option: Final = click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=_LIMIT, show_default=True, help="Show at most this many rows."
)
where_option: Final = click.option(
    "--where", default="", help="Only rows that match this SQL condition  [default: all]."
)


@click.group("views")
def group() -> None:
    """Query, check, swap and roll back the views of a lake."""


group.add_command(chart)


@group.command("list")
@lake_option
@config_option
@json_option
def list_views(lake_text: str | None, config_path: Path | None, as_json: bool) -> int:
    """List all views with their LSN, row count and state.

    A view that is behind the newest cut is shown with the reason. So is a view whose file cannot be used.
    """
    from sinks.warehouse.read.lake_reader import Lake, views

    where = choose_lake(config_path, lake_text)
    lake = Lake(where.location)
    manifest = lake.manifest()
    now_s = SystemClock().wall_s()
    found = [_document(summary, now_s) for summary in views(lake, manifest)]
    missing = _in_files(where, manifest) | {name: view.reason for name, view in manifest.unbuilt.items()}
    found += [_unpublished(name, reason) for name, reason in missing.items() if name not in manifest.views]
    for view in found:
        view["reason"] = view["reason"] or (missing.get(view["name"], _NOT_YET).replace(_NOT_YET, "") or None)
    found.sort(key=lambda view: str(view["name"]))
    if as_json:
        output.show_json(found)
    elif not found:
        output.note("no views: put SQL files into the folder that the sink's `views` setting names")
    else:
        output.show_table(_listing(found))
    return EXIT_OK


@group.command("show")
@click.argument("name")
@limit_option
@where_option
@lake_option
@config_option
@json_option
def show(name: str, limit: int, where: str, lake_text: str | None, config_path: Path | None, as_json: bool) -> int:
    """Show rows of a view as of the newest cut."""
    return _show(choose_lake(config_path, lake_text), name, None, limit=limit, where=where, as_json=as_json)


@group.command("at")
@click.argument("at", metavar="LSN|CUT")
@click.argument("name")
@limit_option
@where_option
@lake_option
@config_option
@json_option
def show_at(
    at: str, name: str, limit: int, where: str, lake_text: str | None, config_path: Path | None, as_json: bool
) -> int:
    """Show rows of a view as of an older cut.

    An LSN selects the newest cut that ends at or before it; CUT is the number of a cut.
    """
    from sinks.warehouse.read.lake_reader import parse_at

    wanted = parse_at(at)
    return _show(choose_lake(config_path, lake_text), name, wanted, limit=limit, where=where, as_json=as_json)


group.add_command(plan_command)
group.add_command(explain_command)
group.add_command(check_command)


@group.command("sql")
@click.argument("name")
@click.option("--spark", "translated", is_flag=True, help="Print it as Spark runs it, translated from its dialect.")
@views_option
@lake_option
@config_option
@json_option
def sql(
    name: str, translated: bool, folder: Path | None, lake_text: str | None, config_path: Path | None, as_json: bool
) -> int:
    """Print the SQL of a view."""
    files = views_of_files(config_path, lake_text, folder)
    view = named_view(files, name)
    text = _translated(config_path, lake_text, view, files) if translated else view.sql
    if as_json:
        output.show_json(
            {"name": name, "file": str(view.file), "dialect": view.dialect, "late": view.late, "sql": text}
        )
    else:
        output.show_script(text if text.endswith("\n") else text + "\n")
    return EXIT_OK


def _translated(config_path: Path | None, lake_text: str | None, own: View, files: ViewFiles) -> str:
    """Return a view as Spark runs it. PostgreSQL's SQL needs the types of the columns it reads, from the lake."""
    if own.dialect == "spark":
        return own.plain
    from sinks.warehouse.read.lake_reader import Lake
    from sinks.warehouse.read.planning_report import planned

    lake = Lake(choose_lake(config_path, lake_text).location)
    return planned(lake, lake.manifest(), files.views, own.name, files.refused).view.sql


def _show(found: LakeChoice, name: str, at: At, *, limit: int, where: str, as_json: bool) -> int:
    from cdc.lsn import Lsn
    from sinks.warehouse.read.lake_reader import Lake, read, view_summary

    lake = Lake(found.location)
    manifest = lake.manifest(at)
    if name not in manifest.views and name not in manifest.unbuilt:
        check_file(found, name)
    summary = view_summary(lake, manifest, name)
    table, state = lake.view(name, manifest)
    rows = read(lake, table, state.version, where=where, limit=limit)
    document = _document(summary, SystemClock().wall_s())
    if as_json:
        output.show_json(document | {"shown": [json_value(row) for row in rows.to_pylist()]})
        return EXIT_OK
    output.show_table(grid(rows.to_pylist(), list(rows.column_names)))
    position = f"cut {summary.cut}" + (f", {summary.lsn}" if summary.lsn is not None else "")
    behind = f"; behind the newest cut: {summary.reason}" if summary.reason else ""
    count = f"{rows.num_rows:,}" if where else f"{rows.num_rows:,} of {summary.rows:,}"
    output.note(f"{count} rows of {name} as of {position}{behind}")
    if summary.reason:
        output.note(f"the lake is at cut {manifest.cut}, {Lsn(manifest.end_lsn)}")
    return EXIT_OK


def _in_files(found: LakeChoice, manifest: Manifest) -> dict[str, str]:
    """Return the views, and new versions of views, that the files define -> why they may have no rows."""
    from sinks.warehouse.views.definition import read_views
    from sinks.warehouse.views.generations import TextStore, usable

    if found.views is None:
        return {}
    try:
        files = read_views(found.views)
    except ViewRefused as error:
        output.note(error.message)
        return {}
    named = {name: error.reason for name, error in files.refused.items()}
    problems = usable(files, manifest.views, TextStore(found.location)).problems(manifest.views)
    return dict.fromkeys((view.name for view in files.views), _NOT_YET) | named | problems


def _document(summary: ViewSummary, now_s: float) -> dict[str, Any]:
    at_us = summary.committed_at_us
    return {
        "name": summary.name,
        "cut": summary.cut,
        "lsn": None if summary.lsn is None else str(summary.lsn),
        "rows": summary.rows,
        "committed_at": None if at_us is None else datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(),
        "age_seconds": None if at_us is None else round(max(0.0, now_s - at_us / 1e6), 1),
        "reason": summary.reason or None,
    }


def _unpublished(name: str, reason: str) -> dict[str, Any]:
    empty = dict.fromkeys(("cut", "lsn", "rows", "committed_at", "age_seconds"))
    return {"name": name, **empty, "reason": reason}


def _listing(found: list[dict[str, Any]]) -> Table:
    made = output.table("view", "lsn", "cut", "rows", "age", "", right=("cut", "rows"))
    for view in found:
        age = view["age_seconds"]
        made.add_row(
            Text(output.plain(view["name"]), style="bold"),
            view["lsn"] or "",
            "" if view["cut"] is None else str(view["cut"]),
            "" if view["rows"] is None else f"{view['rows']:,}",
            "" if age is None else units.duration(age),
            Text(output.plain(view["reason"] or ""), style="yellow"),
        )
    return made


for _command in (*view_swap_command.COMMANDS, view_query_command.command):
    group.add_command(_command)
