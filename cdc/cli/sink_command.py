"""`cdc sink`: run sinks, and see how far they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc.cli import output, sink_query_command, sink_rebuild_command, sink_status_command
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.cli.exit_message import run_logged
from cdc.cli.sink_status_command import seen, sink_table
from cdc.cli.tail_command import FROM
from cdc.config.load import SINK_NAME
from cdc.config.settings import Applied
from cdc.config.sink_kinds import sink_of
from cdc.errors import UsageError

if TYPE_CHECKING:
    from sinks.compose import Replay


@click.group("sink")
def group() -> None:
    """What is kept in step with the log: search indexes, caches, lake tables."""


@group.command("run")
@click.argument("name")
@click.option("--master", metavar="URL", help="Spark master in place of the configured one: local[4], spark://...")
@click.option("--from", "start", help=f"Search and cache, with --as: where to begin: {FROM}.")
@click.option("--as", "as_name", metavar="NAME2", help="Search and cache: into a target of its own of this name.")
@click.option("--instance", default="", help="Search and cache: a name in the group that stays over restarts.")
@click.option("--json-logs", is_flag=True, help="Log JSON also to a terminal (a pipe or file always gets JSON).")
@click.option("--until-eof", is_flag=True, hidden=True, help="End as by SIGTERM at the end of the standard input.")
@click.option("--report-fd", type=int, hidden=True, help="Write a line of JSON about this process there.")
@config_option
def run_command(
    name: str,
    *,
    master: str | None,
    start: str | None,
    as_name: str | None,
    instance: str,
    json_logs: bool,
    until_eof: bool,
    report_fd: int | None,
    config_path: Path | None,
) -> int:
    """Keep the sink NAME in step with the log until stopped.

    Several processes of one search or cache sink share its partitions. SIGTERM and Ctrl-C end it in order, what is
    under way finished first; being killed at any moment loses nothing either.

    --from with --as replays history into another target, beside the first and without disturbing it: with the
    settings of NAME, under the name NAME2. It goes on where it was when it is started again.
    """
    from cdc.telemetry import log

    as_json = json_logs or not sys.stderr.isatty()
    log.configure(json=as_json)

    def work() -> None:
        config = configuration(config_path)
        if isinstance(sink_of(config, name), Applied):
            from cdc.run.app import run_applied

            _refuse(master is not None, "--master is for a warehouse")
            replay = replay_of(start, as_name)
            run_applied(config, name, until_eof=until_eof, replay=replay, instance=instance, report_fd=report_fd)
            return
        from cdc.cli.download_bars import Bars
        from cdc.run.app import run_sink

        _refuse(bool(start or as_name or instance), "--from, --as and --instance are for search and cache")
        with Bars() as told:
            run_sink(config, name, told, master=master, until_eof=until_eof, report_fd=report_fd)

    with log.bound(sink=as_name or name):
        return run_logged(work, "sink_stopped", as_json=as_json)


def replay_of(start: str | None, name: str | None) -> Replay | None:
    """What --from and --as mean together. Raises UsageError when one of them is missing."""
    from cdc.cli.tail_command import parse_start
    from sinks.compose import Replay

    if start is None and name is None:
        return None
    if start is None or name is None:
        raise UsageError(
            "--from and --as come together: another place in the log is for another target",
            hint="a sink itself always goes on where it is",
            command="cdc sink run NAME --from beginning --as NAME2",
        )
    if SINK_NAME.fullmatch(name) is None:
        raise UsageError(f"--as {name!r}: a name has lower-case letters, digits and underscores, 40 at most")
    return Replay(parse_start(start), name)


def _refuse(wrong: bool, message: str) -> None:
    if wrong:
        raise UsageError(message, command="cdc sink run --help")


@group.command("list")
@config_option
@json_option
def list_command(config_path: Path | None, as_json: bool) -> None:
    """Show the sinks of the configuration and how far each is."""
    found = seen(configuration(config_path))
    if as_json:
        output.show_json({"sinks": found})
        return
    if not found:
        output.note("the configuration has no sinks; add a table [sinks.NAME]")
        return
    output.show_table(sink_table(found))


for _command in (*sink_status_command.COMMANDS, *sink_rebuild_command.COMMANDS, sink_query_command.group):
    group.add_command(_command)
