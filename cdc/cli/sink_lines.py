"""The sinks of a pipeline in `cdc status`: from the daemon that keeps them running, else from Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from cdc.cli import output, sink_status_command
from cdc.cli.status_text import duration
from cdc.errors import EXIT_FAILED, EXIT_OK, TailraceError
from cdc.model.sink_report import UNKNOWN

if TYPE_CHECKING:
    from rich.table import Table

    from cdc.config.settings import Config


def sinks_of(config: Config, daemon: dict[str, Any] | None) -> list[dict[str, Any]] | None:
    """Documents of all sinks; empty without any in the configuration, None while Kafka does not say.

    A daemon that runs with its sinks knows them best. Other sinks run elsewhere, and Kafka has their reports.
    """
    if not config.sinks:
        return []
    kept = (daemon or {}).get("sinks")
    if isinstance(kept, dict):
        return [{"name": name, **_alive(one)} for name, one in sorted(kept.items())]
    try:
        return sink_status_command.seen(config)
    except TailraceError:
        return None


def exit_code(code: int, document: dict[str, Any]) -> int:
    """Of `cdc status`: `code` is that of capture alone, and the sinks count when it is 0."""
    if code != EXIT_OK:
        return code
    sinks = document["sinks"]
    return EXIT_FAILED if sinks is None else sink_status_command.exit_code(sinks)


def with_sinks(grid: Table, document: dict[str, Any]) -> Table:
    """The lines for people, with a line for each sink."""
    if document["sinks"] is None:
        grid.add_row("sinks", Text("unknown: Kafka has their state, and does not answer", style="red"))
    for one in document["sinks"] or []:
        bad = sink_status_command.exit_code([one]) != EXIT_OK
        grid.add_row(f"sink {output.plain(one['name'])}", Text(_line(one), style="bold red" if bad else ""))
        for note in sink_status_command.notes(one):
            grid.add_row("", Text(note, style="red" if bad else "dim"))
    return grid


def _line(one: dict[str, Any]) -> str:
    parts = [sink_status_command.shown_state(one)]
    if one.get("lag_records") is not None:
        parts.append(f"{one['lag_records']:,} behind")
    if one.get("restarts"):
        parts.append(f"{one['restarts']} restarts")
    if one.get("next_start_seconds") is not None:
        parts.append(f"started again in {one['next_start_seconds']:.0f} s")
    return ", ".join(parts)


def _alive(one: dict[str, Any]) -> dict[str, Any]:
    """A daemon's document in the form of `cdc sink status`: it starts a process that has ended again by itself."""
    age_s, runs = one.get("report_age_seconds"), one.get("pid") is not None
    found = {**one, "workers": int(runs), "ended": not runs, "heartbeat_age_seconds": age_s}
    if one["state"] == UNKNOWN:
        found["reason"] = f"its process {one['pid']} runs and has not reported for {duration(age_s or 0.0)}"
    return found
