"""`cdc views plan` and `explain`: how a view can be updated, and how it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, json_option
from cdc.cli.lake_choice import choose_lake, lake_option, named_view, views_of_files, views_option
from cdc.control.chosen_lake import check_file
from cdc.errors import EXIT_OK

_POSSIBLE: Final[dict[bool | None, str]] = {True: "yes", False: "no", None: "unknown"}


@click.command("plan")
@click.argument("name")
@views_option
@lake_option
@config_option
@json_option
def plan_command(name: str, folder: Path | None, lake_text: str | None, config_path: Path | None, as_json: bool) -> int:
    """Show which plans can update a view, and why others cannot.

    recompute runs the query again; affected replaces the rows of the keys that a cut may have changed. Also shows the
    view's sources and key.
    """
    from sinks.warehouse.read.lake_reader import Lake
    from sinks.warehouse.read.planning_report import planned

    lake = Lake(choose_lake(config_path, lake_text).location)
    files = views_of_files(config_path, lake_text, folder)
    named_view(files, name)
    document = planned(lake, lake.manifest(), files.views, name, files.refused).document()
    if as_json:
        output.show_json(document)
        return EXIT_OK
    shown = output.table("plan", "possible", "")
    for plan, found in document["plans"].items():
        shown.add_row(plan, _POSSIBLE[found["possible"]], output.plain(found["reason"] or ""))
    output.show_table(shown)
    output.note(f"reads {', '.join(document['reads'])}")
    output.note(f"key: {', '.join(document['key']) or 'none'}; plan in its file: {document['wish']}")
    for table, why in document["recomputed_when"].items():
        output.note(f"recomputed when {table} changes: {why}")
    return EXIT_OK


@click.command("explain")
@click.argument("name")
@lake_option
@config_option
@json_option
def explain_command(name: str, lake_text: str | None, config_path: Path | None, as_json: bool) -> int:
    """Show which plan last updated a view, why, and its cost."""
    from sinks.warehouse.read.lake_reader import Lake, view_summary
    from sinks.warehouse.read.planning_report import plan_record, plans_document

    found = choose_lake(config_path, lake_text)
    lake = Lake(found.location)
    manifest = lake.manifest()
    if name not in manifest.views and name not in manifest.unbuilt:
        check_file(found, name)
    summary, record = view_summary(lake, manifest, name), plan_record(lake, manifest, name)
    known = dict(record.runs) if record is not None else {}
    cancelled = dict(record.cancelled) if record is not None else {}
    document: dict[str, Any] = {
        "name": name,
        "cut": summary.cut,
        "left_behind": summary.reason or None,
        "plan": record.plan if record else None,
        "reason": record.reason if record else None,
        "seconds": record.seconds if record else None,
        "keys": record.keys if record else None,
        "rows": record.rows if record else None,
        "plans": plans_document(record.refused if record else None),
        "runs": {plan: [run._asdict() for run in runs] for plan, runs in known.items()},
        "cancelled": {plan: [run._asdict() for run in runs] for plan, runs in cancelled.items()},
    }
    if as_json:
        output.show_json(document)
        return EXIT_OK
    if record is None:
        output.note(f"{name} was computed by a release without plans; its next change gets one")
        return EXIT_OK
    heading = "last runs: seconds (changed records)"
    shown = output.table("requested plan", heading, right=(heading,))
    for plan, runs in [*known.items(), *((f"{plan}, cancelled", runs) for plan, runs in cancelled.items())]:
        shown.add_row(plan, "  ".join(f"{run.seconds:.2f} ({run.changes:,})" for run in runs))
    output.show_table(shown)
    keys = f"{record.keys:,} keys, " if record.keys else ""
    output.note(f"last updated by {record.plan} in {record.seconds:.2f} s: {keys}{record.rows:,} rows; {record.reason}")
    if record.refused and record.refused != record.reason:
        output.note(f"affected is not possible: {record.refused}")
    if summary.reason:
        output.note(f"behind the newest cut: {summary.reason}")
    return EXIT_OK
