"""`cdc sink`: runs sinks and shows their state."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc.cli import output, sink_query_command, sink_rebuild_command, sink_status_command
from cdc.cli.command_options import any_file, config_option, configuration, json_option, logged_configuration
from cdc.cli.exit_message import run_logged
from cdc.cli.sink_status_command import all_sinks, sink_table
from cdc.cli.tail_command import FROM, parse_start
from cdc.config.load import SINK_NAME
from cdc.config.settings import Applied
from cdc.config.sink_kinds import sink_of
from cdc.errors import UsageError

if TYPE_CHECKING:
    from sinks.compose import Replay


@click.group("sink")
def group() -> None:
    """Run sinks, show their state, pause and rebuild them.

    Sinks keep search indexes, caches and lake tables up to date with the log.
    """


@group.command("run")
@click.argument("name")
@click.option(
    "--master", metavar="URL", help="Lake: Spark master, e.g. local[4] or spark://...  [default: configured]."
)
@click.option("--from", "start", help=f"Search and cache, with --as: where to start: {FROM}.")
@click.option("--as", "as_name", metavar="NAME2", help="Search and cache, with --from: name of the second target.")
@click.option("--instance", default="", help="Search and cache: static group member id that survives restarts.")
@click.option("--json-logs", is_flag=True, help="Log JSON on a terminal too  [default: JSON only to a pipe or file].")
@click.option("--until-eof", is_flag=True, hidden=True, help="Stop, as by SIGTERM, at the end of standard input.")
@click.option(
    "--report-fd",
    type=int,
    hidden=True,
    help="Write reports about this process, one JSON line each, to this descriptor.",
)
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
    """Keep the sink NAME up to date with the log until stopped.

    Several processes of one search or cache sink share its partitions. SIGTERM and Ctrl-C stop it after the work in
    progress; a kill at any moment loses nothing either.

    --from with --as replays history into a second target named NAME2, with the settings of NAME. The target of NAME is
    not affected. A later start with the same options resumes the replay.
    """
    from cdc.telemetry import log

    as_json = json_logs or not sys.stderr.isatty()
    log.configure(json=as_json, pipeline=any_file(config_path).pipeline)

    def work() -> None:
        config, file = logged_configuration(config_path)
        if isinstance(sink_of(config, name), Applied):
            from cdc.run.app import run_applied

            _refuse(master is not None, "--master applies to lake sinks only")
            replay = replay_of(start, as_name)
            run_applied(
                config,
                name,
                until_eof=until_eof,
                replay=replay,
                instance=instance,
                report_fd=report_fd,
                file=file,
            )
            return
        from cdc.cli.progress_bars import DownloadBars
        from cdc.run.app import run_sink

        _refuse(bool(start or as_name or instance), "--from, --as and --instance apply to search and cache sinks only")
        with DownloadBars() as bars:
            run_sink(config, name, bars, master=master, until_eof=until_eof, report_fd=report_fd, file=file)

    with log.bound(sink=as_name or name):
        return run_logged(work, "sink_stopped", as_json=as_json)


def replay_of(start: str | None, name: str | None) -> Replay | None:
    """Return the replay that --from and --as ask for, or None. Raises UsageError when one of them is missing."""
    from sinks.compose import Replay

    if start is None and name is None:
        return None
    if start is None or name is None:
        raise UsageError(
            "--from and --as must be given together",
            hint="a sink itself always continues from its own position; a replay needs a second target",
            command="cdc sink run NAME --from beginning --as NAME2",
        )
    if SINK_NAME.fullmatch(name) is None:
        raise UsageError(f"invalid --as {name!r}: use at most 40 lower-case letters, digits and underscores")
    return Replay(parse_start(start), name)


def _refuse(wrong: bool, message: str) -> None:
    if wrong:
        raise UsageError(message, command="cdc sink run --help")


@group.command("list")
@config_option
@json_option
def list_command(config_path: Path | None, as_json: bool) -> None:
    """Show the configured sinks and their positions."""
    found = all_sinks(configuration(config_path))
    if as_json:
        output.show_json({"sinks": found})
        return
    if not found:
        output.note("no sink is configured; add a section [sinks.NAME]")
        return
    output.show_table(sink_table(found))


for _command in (*sink_status_command.COMMANDS, *sink_rebuild_command.COMMANDS, sink_query_command.group):
    group.add_command(_command)
