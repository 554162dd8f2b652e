"""`cdc run`: runs capture in the foreground until a signal arrives or an operator is needed."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

import click

from cdc.cli.command_options import any_file, config_option, logged_configuration
from cdc.cli.exit_message import run_logged
from cdc.config.config_file import ConfigFile
from cdc.config.load import load_all
from cdc.config.settings import Applied
from cdc.errors import EXIT_OK
from cdc.run.part import Part


@click.command("run")
@click.option("--with-sinks", is_flag=True, help="Also run every configured sink.")
@click.option("--json-logs", is_flag=True, help="Log JSON on a terminal too  [default: JSON only to a pipe or file].")
@click.option("-v", "--verbose", is_flag=True, help="Log every batch and every retry.")
@click.option("--until-eof", is_flag=True, hidden=True, help="Stop, as by SIGTERM, at the end of standard input.")
@click.option(
    "--report-fd", type=int, hidden=True, help="Write reports about this process, one JSON line each, to this file."
)
@click.option("--http-socket", hidden=True, help="Serve HTTP on this Unix socket instead of http.listen.")
@config_option
def command(
    *,
    with_sinks: bool,
    json_logs: bool,
    verbose: bool,
    until_eof: bool,
    report_fd: int | None,
    http_socket: str | None,
    config_path: Path | None,
) -> int:
    """Capture changes into Kafka until stopped.

    SIGTERM and Ctrl-C stop it in order; a kill at any moment loses nothing either. Capture waits for servers that are
    unavailable. Exit code 3 means that an operator must act; the error says how.

    With --with-sinks each sink runs in its own process, as with `cdc sink run`. A sink that fails is restarted; one
    that needs an operator is restarted at longer intervals, and the log names it. Capture continues either way. The
    sinks stop with capture.

    Each pipeline of a file with [pipelines.*] runs in its own process, and http.listen serves all of them. One that
    fails is restarted. One that needs an operator is started again at SIGHUP; the others continue. Exit code 0 after a
    signal, or the highest of the pipelines when all of them have ended. --pipeline runs one alone.
    """
    from cdc.telemetry import log

    as_json = json_logs or not sys.stderr.isatty()
    file = any_file(config_path)
    log.configure(json=as_json, verbose=verbose, pipeline=file.pipeline)
    several = not file.pipeline and bool(file.names)

    if report_fd is not None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent may send it before capture handles it

    def work() -> int:
        if several:
            flags = [f"--{name}" for name, given in (("json-logs", as_json), ("verbose", verbose)) if given]
            return _run_pipelines(file, flags, with_sinks=with_sinks)
        _run_one(config_path, with_sinks=with_sinks, as_json=as_json, part=Part(until_eof, report_fd, http_socket))
        return EXIT_OK

    return run_logged(work, "pipelines_stopped" if several else "capture_stopped", as_json=as_json)


def _run_one(config_path: Path | None, *, with_sinks: bool, as_json: bool, part: Part) -> None:
    config, file = logged_configuration(config_path)
    from cdc.config.sink_environment import sink_environment
    from cdc.run.app import run_capture
    from cdc.run.child_process import ChildProcess, sink_command

    def launched(sink: str) -> ChildProcess:
        instance = socket.gethostname() if isinstance(config.sinks[sink], Applied) else ""
        command = sink_command(sink, file.path, json_logs=as_json, instance=instance, pipeline=file.pipeline)
        return ChildProcess(command, sink_environment(sink, file.environ))

    run_capture(config, sinks=launched if with_sinks else None, file=file, part=part)


def _run_pipelines(file: ConfigFile, flags: list[str], *, with_sinks: bool) -> int:
    from cdc.cli.environment_notes import log_environment
    from cdc.run.pipelines import run_pipelines

    configs = load_all(file.path, file.variables)
    for name in configs:
        log_environment(ConfigFile(file.path, file.variables, name))
    return run_pipelines(configs, file, flags, with_sinks=with_sinks)
