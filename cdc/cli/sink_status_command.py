"""`cdc sink status`, `pause` and `resume`: show how far sinks are, stop them from applying, and resume them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from cdc.cli import output, wait_notice
from cdc.cli.action_terminal import act
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.cli.objective_text import daemon_of, objective_note, with_objectives
from cdc.clock import SystemClock
from cdc.config.settings import Config
from cdc.config.sink_kinds import sink_of
from cdc.errors import EXIT_FAILED, EXIT_OK, EXIT_OPERATOR
from cdc.model import units
from cdc.model.sink_report import STUCK, UNKNOWN, needs_operator

_VIEWS_SHOWN_MAX: Final = 5
_COLUMNS: Final = {
    "name": "sink",
    "kind": "kind",
    "state": "state",
    "workers": "workers",
    "lsn": "LSN",
    "lag_records": "behind",
    "lag_seconds": "seconds",
    "cut": "cut",
    "published_at": "published",
}


@click.command("status")
@click.argument("name", required=False)
@config_option
@json_option
def status_command(name: str | None, config_path: Path | None, as_json: bool) -> int:
    """Show state, workers and lag of the sink NAME (default: all).

    Reads Kafka, and the lake of a warehouse, so it works on any machine. The state is what the workers reported in
    the last 45 s. Capture (http.listen) says how much is left of the error budget of a sink with a freshness objective.
    Exit code 3 when a sink needs an operator, 1 when a sink has no live worker.
    """
    config = configuration(config_path)
    if name is not None:
        sink_of(config, name)
    found = [one for one in all_sinks(config) if name in (None, one["name"])]
    found = with_objectives(config, found, daemon_of(config))
    if as_json:
        output.show_json({"sinks": found} if name is None else found[0])
    elif found:
        output.show_table(sink_table(found))
        for one in found:
            for note in notes(one):
                output.note(f"{one['name']}: {note}")
    else:
        output.note("no sink is configured; add a section [sinks.NAME]")
    return exit_code(found)


@click.command("pause")
@click.argument("name")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the workers.",
)
@config_option
@json_option
def pause_command(name: str, timeout_s: float, config_path: Path | None, as_json: bool) -> None:
    """Pause the sink NAME until `cdc sink resume`.

    A paused sink applies nothing, also after a restart. Returns when all its processes have committed what they applied
    and report that they are paused.
    """
    from cdc.control.requests import SinkPause

    workers = act(configuration(config_path), SinkPause(sink=name), wait_s=timeout_s).facts["workers"]
    if as_json:
        output.show_json({"sink": name, "paused": True, "workers": workers})
    else:
        output.done(f"paused {name}; {workers} {'worker has' if workers == 1 else 'workers have'} stopped applying")


@click.command("resume")
@click.argument("name")
@config_option
@json_option
def resume_command(name: str, config_path: Path | None, as_json: bool) -> None:
    """Resume a paused sink from its position."""
    from cdc.control.requests import SinkResume

    was_paused = act(configuration(config_path), SinkResume(sink=name)).facts["was_paused"]
    if as_json:
        output.show_json({"sink": name, "paused": False, "was_paused": was_paused})
    else:
        output.done(f"resumed {name}" if was_paused else f"{name} was not paused")


COMMANDS: Final = (status_command, pause_command, resume_command)


def all_sinks(config: Config) -> list[dict[str, Any]]:
    """Return the documents of all configured sinks."""
    from cdc.inspect.lake_state import lake_document
    from sinks.operate.sink_view import sink_documents

    with output.waiting(wait_notice.kafka(config)):
        return sink_documents(config, SystemClock(), lake_document)


def exit_code(found: Sequence[dict[str, Any]]) -> int:
    """Return 3 when a sink needs an operator, 1 when one has no worker that is known to be alive."""
    if any(needs_operator(one["state"]) for one in found):
        return EXIT_OPERATOR
    return EXIT_FAILED if any(not one["workers"] or one["state"] in {STUCK, UNKNOWN} for one in found) else EXIT_OK


def shown_state(one: dict[str, Any]) -> str:
    """Return the state; with the age of the last heartbeat if nothing else is known."""
    state, age_s = str(one["state"]), one.get("heartbeat_age_seconds")
    if one.get("workers") or age_s is None:
        reason = one.get("reason")
        return f"{state} ({reason})" if reason and state == "WAITING" else state
    ago = f"{units.duration(age_s)} ago"
    return f"{state}, ended {ago}" if one.get("ended") else f"{state}? last heartbeat {ago}"


def notes(one: dict[str, Any]) -> list[str]:
    """Return notes about a sink for people, shown below the table."""
    found = [str(one["busy"])] if one.get("busy") else []
    error = one.get("error")
    if error and (one["state"] == "WAITING" or needs_operator(one["state"])):
        found.append(output.plain(f"{error.get('error')}: {error.get('message')}"))
        found += [f"hint: {output.plain(error['hint'])}"] if error.get("hint") else []
    if one["state"] == STUCK:
        found.append(
            "the worker's loop has hung for two minutes; end that process, a new one resumes from its position"
        )
    if one["state"] == UNKNOWN and one.get("reason"):
        found.append(output.plain(str(one["reason"])))
    elif one["state"] == UNKNOWN:
        found.append("its group has members, but no worker has ever reported; update the workers")
    if not one.get("workers") and one["state"] != UNKNOWN:
        found.append(f"no worker runs; start `cdc run --with-sinks` or `cdc sink run {one['name']}`")
    if one.get("objective"):
        found.append(objective_note(one["objective"]))
    behind = one.get("views_behind") or {}
    found += [output.plain(f"view {name} is behind: {why}") for name, why in list(behind.items())[:_VIEWS_SHOWN_MAX]]
    if len(behind) > _VIEWS_SHOWN_MAX:
        found.append(f"{len(behind) - _VIEWS_SHOWN_MAX} more views are behind: cdc views list")
    if one.get("iceberg_cut") is not None and one["iceberg_cut"] < (one.get("cut") or 0) - 1:  # it follows each cut
        found.append(
            f"Iceberg readers are at cut {one['iceberg_cut']} of {one['cut']}; see iceberg_behind in the sink's log"
        )
    return found


def sink_table(found: Sequence[dict[str, Any]]) -> Table:
    """Return a table for people, with the columns that at least one sink has."""
    columns = [key for key in _COLUMNS if any(key in one for one in found)]
    titles = [_COLUMNS[key] for key in columns]
    right = [_COLUMNS[key] for key in columns if key in {"workers", "lag_records", "lag_seconds", "cut"}]
    table = output.table(*titles, right=right)
    for one in found:
        row = {**one, "state": shown_state(one)}
        table.add_row(*(Text("-" if row.get(key) is None else str(row[key])) for key in columns))
    return table
