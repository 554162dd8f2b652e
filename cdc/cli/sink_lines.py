"""The sinks in `cdc status`: from the daemon that supervises them, else from Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from cdc.cli import output, sink_status_command
from cdc.config.settings import Config, Warehouse
from cdc.errors import EXIT_FAILED, EXIT_OK, TailraceError
from cdc.model import units
from cdc.model.sink_report import UNKNOWN

if TYPE_CHECKING:
    from rich.table import Table

_CALM: Final = frozenset({"RUNNING", "CATCHING_UP"})
"""States that a sink reports until it notices that Kafka does not answer, which takes 15 to 30 seconds."""


def sinks_of(config: Config, daemon: dict[str, Any] | None) -> list[dict[str, Any]] | None:
    """Return the documents of all sinks; empty if none is configured, None while Kafka does not answer.

    A daemon started with --with-sinks knows its sinks best. Otherwise the sinks' reports are in Kafka.
    """
    if not config.sinks:
        return []
    kept = (daemon or {}).get("sinks")
    if isinstance(kept, dict):
        return [{"name": name, **_alive(one), **_views(config, name)} for name, one in sorted(kept.items())]
    try:
        return sink_status_command.all_sinks(config)
    except TailraceError:
        return None


def exit_code(code: int, document: dict[str, Any]) -> int:
    """Return the exit code of `cdc status`: `code` is that of capture alone; the sinks count when it is 0."""
    if code != EXIT_OK:
        return code
    sinks = document["sinks"]
    return EXIT_FAILED if sinks is None else sink_status_command.exit_code(sinks)


def with_sinks(grid: Table, document: dict[str, Any]) -> Table:
    """Add a line for each sink to the lines for people."""
    if document["sinks"] is None:
        grid.add_row("sinks", Text("unknown: their state in Kafka cannot be read", style="red"))
    for one in document["sinks"] or []:
        bad = sink_status_command.exit_code([one]) != EXIT_OK
        grid.add_row(f"sink {output.plain(one['name'])}", Text(_line(one), style="bold red" if bad else ""))
        for note in sink_status_command.notes(one):
            grid.add_row("", Text(note, style="red" if bad else "dim"))
    return grid


def _line(one: dict[str, Any]) -> str:
    parts = [sink_status_command.shown_state(one)]
    if one.get("unconfirmed") and one["state"] in _CALM:
        age_s = one.get("heartbeat_age_seconds")
        ago = "" if age_s is None else f" {units.duration(age_s)} ago"
        parts[0] += f"? Kafka does not answer, and the sink reported this{ago}; it may not have noticed"
    if one.get("lag_records") is not None:
        parts.append(f"{one['lag_records']:,} behind")
    if one.get("restarts"):
        parts.append(f"{one['restarts']} restarts")
    if one.get("next_start_seconds") is not None:
        parts.append(f"restarts in {one['next_start_seconds']:.0f} s")
    return ", ".join(parts)


def _views(config: Config, name: str) -> dict[str, Any]:
    """Return the views of a lake that are behind; empty for other sinks, and while the lake cannot be read."""
    settings = config.sinks.get(name)
    if not isinstance(settings, Warehouse):
        return {}
    from cdc.inspect.lake_state import views_behind

    try:
        return {"views_behind": views_behind(settings)}
    except (TailraceError, ImportError):
        return {}


def _alive(one: dict[str, Any]) -> dict[str, Any]:
    """Convert a daemon's document to the form of `cdc sink status`; the daemon restarts a process that has ended."""
    age_s, runs = one.get("report_age_seconds"), one.get("pid") is not None
    found = {**one, "workers": int(runs), "ended": not runs, "heartbeat_age_seconds": age_s}
    if one["state"] == UNKNOWN:
        found["reason"] = f"its process {one['pid']} has not reported for {units.duration(age_s or 0.0)}"
    return found
