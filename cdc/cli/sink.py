"""`cdc sink`: run sinks, and see how far they are."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.text import Text

from cdc.cli import output
from cdc.cli.lastword import run_logged
from cdc.cli.options import config_option, configuration, json_option


@click.group("sink")
def group() -> None:
    """What is kept in step with the log: lake tables."""


@group.command("run")
@click.argument("name")
@click.option("--master", metavar="URL", help="Spark master in place of the configured one: local[4], spark://...")
@click.option("--json-logs", is_flag=True, help="Log JSON also to a terminal (a pipe or file always gets JSON).")
@click.option("--until-eof", is_flag=True, hidden=True, help="End as by SIGTERM at the end of the standard input.")
@config_option
def run_command(name: str, master: str | None, json_logs: bool, until_eof: bool, config_path: Path | None) -> int:
    """Keep the sink NAME in step with the log until stopped.

    SIGTERM and Ctrl-C end it behind the cut under way; being killed at any moment loses nothing either.
    """
    from cdc.telemetry import log

    as_json = json_logs or not sys.stderr.isatty()
    log.configure(json=as_json)

    def work() -> None:
        config = configuration(config_path)
        from cdc.app import run_sink
        from cdc.cli.localprogress import Bars

        with Bars() as told:
            run_sink(config, name, told, master=master, until_eof=until_eof)

    with log.bound(sink=name):
        return run_logged(work, "sink_stopped", as_json=as_json)


@group.command("list")
@config_option
@json_option
def list_command(config_path: Path | None, as_json: bool) -> None:
    """Show the sinks of the configuration and how far each is."""
    from cdc.config.sinks import lakes
    from cdc.lsn import Lsn
    from sinks.warehouse.location import Location
    from sinks.warehouse.manifest import ManifestStore

    config = configuration(config_path)
    found = []
    for name, settings in sorted(lakes(config).items()):
        current = ManifestStore(Location.configured(settings)).current()
        found.append(
            {
                "name": name,
                "kind": "warehouse",
                "path": settings.path,
                "cut": current.cut if current else 0,
                "lsn": str(Lsn(current.end_lsn)) if current else None,
                "published_at": _time(current.committed_at_us) if current else None,
                "tables": len(current.tables) if current else 0,
                "views": len(current.views) if current else 0,
            }
        )
    if as_json:
        output.show_json({"sinks": found})
        return
    if not found:
        output.note("the configuration has no sinks; add a table [sinks.NAME]")
        return
    table = output.table("sink", "kind", "path", "cut", "LSN", "published", "tables", "views", right=["cut", "tables"])
    for sink in found:
        table.add_row(*(Text("-" if value is None else str(value)) for value in sink.values()))
    output.show_table(table)


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="seconds")
