"""`cdc probe`: asks a running process of this machine whether it is alive or ready, for health checks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from cdc.cli import output
from cdc.cli.command_options import any_file, config_option, json_option
from cdc.config.config_file import ConfigFile
from cdc.config.load import load_all
from cdc.config.sink_kinds import sink_of
from cdc.errors import EXIT_FAILED, EXIT_OK, UsageError
from cdc.inspect.endpoint_probe import TIMEOUT_S, Probed, arguments_of, probe, reachable

_CAPTURE: Final = ("run",)
_SINK: Final = ("sink", "run")


@dataclass(frozen=True, slots=True)
class Probing:
    """What to ask: capture, or one sink, and the configuration file and pipeline of that process."""

    sink: str | None = None
    config_path: Path | None = None
    pipeline: str = ""


@click.command("probe")
@click.option("--sink", help="Ask the process of this sink  [default: capture].")
@click.option(
    "--pid", type=click.IntRange(min=1), help="Ask what this process runs, by its arguments; 1 in a container."
)
@click.option("--ready", is_flag=True, help="Ask /readyz  [default: /livez].")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=TIMEOUT_S, show_default=True,
    help="Seconds to wait for the answer.",
)  # fmt: skip
@config_option
@json_option
def command(
    sink: str | None, *, pid: int | None, ready: bool, timeout_s: float, config_path: Path | None, as_json: bool
) -> int:
    """Check that capture or a sink of this machine is alive, or ready.

    Asks the address of http.listen, or of the sink's listen, with HTTPS if http.tls_certificate is set; the certificate
    is not checked. Exit code 0 if the answer is 200, else 1. Without an address there is nothing to ask: then only
    --ready fails.

    With --pid the answer is that of the process: `cdc run`, `cdc sink run NAME`, or 0 for any other command.
    """
    probing: Probing | None = Probing(sink, config_path)
    if pid is not None:
        if sink is not None:
            raise UsageError("--pid and --sink exclude each other", hint="the process has the name of its sink")
        probing = _process(pid, config_path)
    if probing is None:
        answer = Probed(ok=not ready, url="", text=f"process {pid} runs neither capture nor a sink")
    else:
        answer = _ask(probing, ready=ready, timeout_s=timeout_s)
    if as_json:
        output.show_json({"ok": answer.ok, "url": answer.url or None, "answer": answer.text})
    else:
        line = output.plain(f"{answer.url}: {answer.text}" if answer.url else answer.text)
        click.echo(line, err=not answer.ok)
    return EXIT_OK if answer.ok else EXIT_FAILED


def _ask(probing: Probing, *, ready: bool, timeout_s: float) -> Probed:
    # Without warnings about the environment: a health check runs every few seconds, and changes nothing.
    file, path = any_file(probing.config_path), "/readyz" if ready else "/livez"
    pipeline = probing.pipeline or file.pipeline
    if probing.sink is None and not pipeline and file.names:
        # The process of all pipelines. Their [http] is the same.
        config = next(iter(load_all(file.path, os.environ).values()))
    else:
        config = ConfigFile(file.path, os.environ, pipeline).load()
    sink = probing.sink
    listen = config.http.listen if sink is None else sink_of(config, sink).listen
    setting = "http.listen" if sink is None else f"sinks.{sink}.listen"
    address = reachable(listen)
    if address is None:
        return Probed(ok=not ready, url="", text=f"{setting} has no address, so there is nothing to ask")
    of = pipeline if sink is None else ""
    return probe(address, path, tls=bool(config.http.tls_certificate), timeout_s=timeout_s, pipeline=of)


def _process(pid: int, config_path: Path | None) -> Probing | None:
    """Return what process `pid` runs; None if that is another command. Raises UsageError if it does not exist."""
    try:
        arguments = arguments_of(pid)
    except OSError as error:
        raise UsageError(f"cannot read the arguments of process {pid}: {error.strerror}") from error
    return probing_of(arguments, config_path)


def probing_of(arguments: list[str], config_path: Path | None = None) -> Probing | None:
    """Return what `cdc` with these arguments runs; None if that is neither capture nor a sink.

    `config_path` overrides the file that the arguments name.
    """
    from cdc.cli import run_command, sink_command
    from cdc.cli.main import cli

    given, words = _options(cli, arguments)
    for path, run in ((_CAPTURE, run_command.command), (_SINK, sink_command.run_command)):
        if tuple(words[: len(path)]) == path:
            own, _ = _options(run, words[len(path) :])
            file = config_path or own.get("config_path") or given.get("config_path")
            return Probing(own.get("name"), Path(file) if file is not None else None, own.get("pipeline", ""))
    return None


def _options(command: click.Command, arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values of a command's parameters, and the arguments behind them. Wrong arguments have no values."""
    context = click.Context(command, resilient_parsing=True, ignore_unknown_options=True)
    context.allow_interspersed_args = not isinstance(command, click.Group)
    values, rest, _ = command.make_parser(context).parse_args(list(arguments))
    return {name: value for name, value in values.items() if isinstance(value, str)}, rest
