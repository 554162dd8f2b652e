"""`cdc local`: runs real servers on this machine for development, tests and the demo."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.table import Table

from cdc.cli.progress_bars import DownloadBars
from cdc.errors import LocalError, UsageError
from cdc.local.local_server import ServerOptions
from cdc.local.postgres_programs import MAJORS
from cdc.local.server_logs import read_lines
from cdc.local.stack import DEFAULT, DEFAULT_SERVERS, SERVERS, Stack, existing_servers

if TYPE_CHECKING:
    from cdc.local.server_description import Description

_FOLLOW_S: Final = 0.2
# A pipe has no width; this keeps every row on one line.
_PIPE_WIDTH: Final = 200
_STYLES: Final = {"running": "green", "starting": "yellow", "died": "red", "stopped": "dim", "absent": "dim"}

_stack = click.option("--stack", "stack_name", default=DEFAULT, show_default=True, help="Stack of servers.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
_servers = click.argument("servers", nargs=-1, type=click.Choice(SERVERS))


@click.group("local")
def group() -> None:
    """Run PostgreSQL, Kafka and more on this machine, without Docker."""


@group.command()
@_servers
@_stack
@click.option(
    "--pg-port", type=click.IntRange(1, 65535), help="Port of PostgreSQL  [default: the last one, or a free one]."
)
@click.option(
    "--kafka-port", type=click.IntRange(1, 65535), help="Port of Kafka  [default: the last one, or a free one]."
)
@click.option(
    "--registry-port",
    type=click.IntRange(1, 65535),
    help="Port of the registry  [default: the last one, or a free one].",
)
@click.option(
    "--opensearch-port",
    type=click.IntRange(1, 65535),
    help="Port of OpenSearch  [default: the last one, or a free one].",
)
@click.option(
    "--valkey-port", type=click.IntRange(1, 65535), help="Port of Valkey  [default: the last one, or a free one]."
)
@click.option(
    "--pg-version",
    type=click.Choice(MAJORS),
    help="Major version of PostgreSQL; only the newest has psql  [default: of the stack's data, else the newest].",
)
@click.option("--kafka-heap", metavar="SIZE", help="Memory of Kafka's JVM, e.g. 512m or 2g.")
@click.option("--pg-set", multiple=True, metavar="NAME=VALUE", help="A setting of PostgreSQL; repeatable.")
@click.option("--kafka-set", multiple=True, metavar="NAME=VALUE", help="A setting of Kafka; repeatable.")
@click.option("--fast-start", is_flag=True, help="Start faster, run slower under load; for tests.")
@_json
def up(
    servers: tuple[str, ...],
    stack_name: str,
    pg_port: int | None,
    kafka_port: int | None,
    registry_port: int | None,
    opensearch_port: int | None,
    valkey_port: int | None,
    pg_version: str | None,
    kafka_heap: str | None,
    pg_set: tuple[str, ...],
    kafka_set: tuple[str, ...],
    fast_start: bool,
    as_json: bool,
) -> None:
    """Start servers, or keep the ones that already run.

    SERVERS: postgres, kafka, registry (schema registry for Avro), opensearch, valkey (default: postgres and kafka). The
    programs are downloaded the first time. The servers run until `cdc local down`, which keeps their data.
    """
    options = {
        "postgres": ServerOptions(pg_port, _settings(pg_set, "--pg-set"), fast_start, version=pg_version),
        "kafka": ServerOptions(kafka_port, _settings(kafka_set, "--kafka-set"), fast_start, heap=kafka_heap),
        "registry": ServerOptions(registry_port, fast_start=fast_start),
        "opensearch": ServerOptions(opensearch_port, fast_start=fast_start),
        "valkey": ServerOptions(valkey_port, fast_start=fast_start),
    }
    stack = Stack(stack_name, servers or DEFAULT_SERVERS, options=options)
    with DownloadBars() as bars:
        described = stack.up(bars)
    _show(stack, described, as_json=as_json)


@group.command()
@_servers
@_stack
@click.option("--wipe", is_flag=True, help="Delete their data too.")
@_json
def down(servers: tuple[str, ...], stack_name: str, wipe: bool, as_json: bool) -> None:
    """Stop servers that `cdc local up` started.

    SERVERS: names of servers (default: all of the stack). Their data is kept unless --wipe is given.
    """
    stack = Stack(stack_name, servers or existing_servers(stack_name))
    _show(stack, stack.down(wipe=wipe), as_json=as_json)


@group.command()
@_stack
@_json
def status(stack_name: str, as_json: bool) -> None:
    """Show the state of the servers.

    Exit code 1 when a server has died or does not answer.
    """
    stack = Stack(stack_name, existing_servers(stack_name))
    described = stack.describe()
    _show(stack, described, as_json=as_json)
    if any(d.condition in {"died", "starting"} for d in described):
        raise SystemExit(1)


@group.command()
@_stack
@_json
def env(stack_name: str, as_json: bool) -> None:
    """Print shell commands that point programs at the servers.

    Use it as: eval "$(cdc local env)".
    """
    exports: dict[str, str] = {}
    for described in Stack(stack_name, existing_servers(stack_name)).describe():
        if described.condition == "running":
            exports |= described.exports
    if not exports:
        raise LocalError(
            f"no server of stack {stack_name} is running", hint="start the servers", command=_command("up", stack_name)
        )
    if as_json:
        click.echo(json.dumps(exports))
        return
    for name, value in exports.items():
        click.echo(f"export {name}={shlex.quote(value)}")


@group.command()
@_servers
@_stack
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="Number of last lines to print."
)
@click.option("-f", "--follow", is_flag=True, help="Print new lines until interrupted.")
def logs(servers: tuple[str, ...], stack_name: str, lines: int, follow: bool) -> None:
    """Print the logs of the servers.

    SERVERS: names of servers (default: all of the stack).
    """
    described = Stack(stack_name, servers or existing_servers(stack_name)).describe()
    files = {d.name: Path(d.log) for d in described if Path(d.log).exists()}
    if not files:
        raise LocalError(
            f"no server of stack {stack_name} has a log", hint="start the servers", command=_command("up", stack_name)
        )
    ends = {name: _print_log(name, file, 0, last=lines, many=len(files) > 1) for name, file in files.items()}
    while follow:
        time.sleep(_FOLLOW_S)
        for name, file in files.items():
            ends[name] = _print_log(name, file, ends[name], last=None, many=len(files) > 1)


def _print_log(name: str, file: Path, offset: int, *, last: int | None, many: bool) -> int:
    """Print the lines after `offset` and return the offset of their end."""
    found, end = read_lines(file, offset, last=last)
    for line in found:
        click.echo(f"{name}: {line}" if many else line)
    return end


def _show(stack: Stack, described: Sequence[Description], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"stack": stack.name, "servers": [asdict(d) for d in described]}, indent=1))
        return
    console = Console(highlight=False)
    table = Table("server", "state", "version", "address", "pid", "memory", "up", box=None, pad_edge=False)
    table.columns[3].overflow = "fold"  # a truncated address is useless
    for d in described:
        table.add_row(
            d.name,
            f"[{_STYLES[d.condition]}]{d.condition}[/]",
            d.version,
            d.address,
            str(d.pid or ""),
            f"{d.rss_bytes / 1e6:.0f} MB" if d.rss_bytes else "",
            f"{d.uptime_s:.0f} s" if d.uptime_s is not None else "",
        )
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.print(table)


def _settings(pairs: Sequence[str], option: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"invalid {option} {pair!r}", hint="expected NAME=VALUE, e.g. max_connections=50")
        settings[name.strip()] = value
    return settings


def _command(verb: str, stack_name: str) -> str:
    return f"cdc local {verb}" + ("" if stack_name == DEFAULT else f" --stack {stack_name}")
