"""`cdc run`: runs capture in the foreground until a signal arrives or an operator is needed."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import click

from cdc.cli.command_options import config_file, config_option, logged_configuration
from cdc.cli.exit_message import run_logged
from cdc.config.settings import Applied


@click.command("run")
@click.option("--with-sinks", is_flag=True, help="Also run every configured sink.")
@click.option("--json-logs", is_flag=True, help="Log JSON on a terminal too  [default: JSON only to a pipe or file].")
@click.option("-v", "--verbose", is_flag=True, help="Log every batch and every retry.")
@click.option("--until-eof", is_flag=True, hidden=True, help="Stop, as by SIGTERM, at the end of standard input.")
@config_option
def command(with_sinks: bool, json_logs: bool, verbose: bool, until_eof: bool, config_path: Path | None) -> int:
    """Capture changes into Kafka until stopped.

    SIGTERM and Ctrl-C stop it in order; a kill at any moment loses nothing either. Capture waits for servers that are
    unavailable. Exit code 3 means that an operator must act; the error says how.

    With --with-sinks each sink runs in its own process, as with `cdc sink run`. A sink that fails is restarted; one
    that needs an operator is restarted at longer intervals, and the log names it. Capture continues either way. The
    sinks stop with capture.
    """
    from cdc.telemetry import log

    as_json = json_logs or not sys.stderr.isatty()
    log.configure(json=as_json, verbose=verbose)

    def work() -> None:
        config = logged_configuration(config_path)
        from cdc.config.sink_environment import sink_environment
        from cdc.run.app import run_capture
        from cdc.run.supervisor import SinkProcess, sink_command

        file = config_file(config_path)

        def launched(sink: str) -> SinkProcess:
            instance = socket.gethostname() if isinstance(config.sinks[sink], Applied) else ""
            command = sink_command(sink, file, json_logs=as_json, instance=instance)
            return SinkProcess(command, sink_environment(sink, os.environ))

        run_capture(config, sinks=launched if with_sinks else None, file=file, until_eof=until_eof)

    return run_logged(work, "capture_stopped", as_json=as_json)
