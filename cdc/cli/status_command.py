"""`cdc status`: shows state, lag, slot and sinks, from the daemon and from both servers."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Final

import click

from cdc.cli import output, sink_lines, status_text, wait_notice
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.cli.status_reader import StatusReader
from cdc.clock import Clock, SystemClock

_WATCH_S: Final = 1.0


@click.command("status")
@click.option("-w", "--watch", is_flag=True, help="Update every second until Ctrl-C.")
@config_option
@json_option
def command(watch: bool, config_path: Path | None, as_json: bool) -> int:
    """Show the state of capture, its slot and its sinks.

    Asks the daemon (http.listen), PostgreSQL and Kafka, and shows what the reachable ones answer. "next start" is how
    `cdc run` would end now, by the same rules as the start itself. Exit code 3 when the state or the next start needs
    an operator; 1 when nothing answers or a sink has no live worker.
    """
    from cdc.inspect.pipeline_state import PipelineObserver

    config = configuration(config_path)
    clock = SystemClock()
    observer = PipelineObserver(config, clock)
    reader = StatusReader(config, observer, clock)
    try:
        if watch:
            return _watch(reader, clock, as_json=as_json)
        with output.waiting(f"{wait_notice.source(config)} and {wait_notice.kafka(config)}"):
            found = reader.take(patient=True)
    finally:
        observer.close()
    if as_json:
        output.show_json(found)
    else:
        output.show_table(sink_lines.with_sinks(status_text.lines(found), found))
    return sink_lines.exit_code(status_text.exit_code(found), found)


def _watch(reader: StatusReader, clock: Clock, *, as_json: bool) -> int:
    """Read until Ctrl-C: update in place on a terminal; with --json print one compact document per line."""
    with output.waiting("reading the state"):
        found = reader.take()
    never = threading.Event()
    try:
        if as_json or not sys.stdout.isatty():
            while True:
                if as_json:
                    click.echo(json.dumps(found, ensure_ascii=False))
                else:
                    output.show_table(sink_lines.with_sinks(status_text.lines(found), found))
                clock.wait(never, _WATCH_S)
                found = reader.take()
        from rich.live import Live

        with Live(
            sink_lines.with_sinks(status_text.lines(found), found), console=output.console(), auto_refresh=False
        ) as live:
            live.refresh()
            while True:
                clock.wait(never, _WATCH_S)
                found = reader.take()
                live.update(sink_lines.with_sinks(status_text.lines(found), found), refresh=True)
    except KeyboardInterrupt:
        return sink_lines.exit_code(status_text.exit_code(found), found)
