"""`cdc local`: real servers on this machine for development, tests and the demo."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.table import Table

from cdc.cli.download_bars import Bars
from cdc.errors import LocalError, UsageError
from cdc.local.local_server import ServerOptions
from cdc.local.postgres_programs import MAJORS
from cdc.local.server_logs import read_lines
from cdc.local.stack import DEFAULT, DEFAULT_SERVERS, SERVERS, Stack, existing_servers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.local.server_description import Description

_FOLLOW_S: Final = 0.2
# What reads a pipe has no width; this holds every row on one line.
_PIPE_WIDTH: Final = 200
_STYLES: Final = {"running": "green", "starting": "yellow", "died": "red", "stopped": "dim", "absent": "dim"}

_stack = click.option("--stack", "stack_name", default=DEFAULT, show_default=True, help="Which stack of servers.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_servers = click.argument("servers", nargs=-1, type=click.Choice(SERVERS))


@click.group("local")
def group() -> None:
    """Real PostgreSQL and Kafka on this machine, without Docker."""


@group.command()
@_servers
@_stack
@click.option(
    "--pg-port", type=click.IntRange(1, 65535), help="Port of PostgreSQL; default: the last one, or a free one."
)
@click.option(
    "--kafka-port", type=click.IntRange(1, 65535), help="Port of Kafka; default: the last one, or a free one."
)
@click.option(
    "--registry-port", type=click.IntRange(1, 65535), help="Port of the registry; default: the last one, or a free one."
)
@click.option(
    "--opensearch-port",
    type=click.IntRange(1, 65535),
    help="Port of OpenSearch; default: the last one, or a free one.",
)
@click.option(
    "--valkey-port", type=click.IntRange(1, 65535), help="Port of Valkey; default: the last one, or a free one."
)
@click.option(
    "--pg-version",
    type=click.Choice(MAJORS),
    help="Major of PostgreSQL; default: that of the stack's data, for a new stack the newest. Older ones have no psql.",
)
@click.option("--kafka-heap", metavar="SIZE", help="Memory of Kafka's JVM, as 512m or 2g.")
@click.option("--pg-set", multiple=True, metavar="NAME=VALUE", help="A setting of PostgreSQL; may be repeated.")
@click.option("--kafka-set", multiple=True, metavar="NAME=VALUE", help="A setting of Kafka; may be repeated.")
@click.option("--fast-start", is_flag=True, help="Ready sooner, slower under load: for tests.")
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
    """Start the servers, or find those that run; the first time they are fetched.

    Without names PostgreSQL and Kafka; only when they are named `registry`, a schema registry for Avro, `opensearch`,
    and `valkey`, a store for caches. They run until `cdc local down`. Their data is kept.
    """
    options = {
        "postgres": ServerOptions(pg_port, _settings(pg_set, "--pg-set"), fast_start, version=pg_version),
        "kafka": ServerOptions(kafka_port, _settings(kafka_set, "--kafka-set"), fast_start, kafka_heap),
        "registry": ServerOptions(registry_port, fast_start=fast_start),
        "opensearch": ServerOptions(opensearch_port, fast_start=fast_start),
        "valkey": ServerOptions(valkey_port, fast_start=fast_start),
    }
    stack = Stack(stack_name, servers or DEFAULT_SERVERS, options=options)
    with Bars() as bars:
        described = stack.up(bars)
    _show(stack, described, as_json=as_json)


@group.command()
@_servers
@_stack
@click.option("--wipe", is_flag=True, help="Remove their data too.")
@_json
def down(servers: tuple[str, ...], stack_name: str, wipe: bool, as_json: bool) -> None:
    """Stop the servers; only processes that `up` started are ended."""
    stack = Stack(stack_name, servers or existing_servers(stack_name))
    _show(stack, stack.down(wipe=wipe), as_json=as_json)


@group.command()
@_stack
@_json
def status(stack_name: str, as_json: bool) -> None:
    """Show how the servers do. Exit code 1 when one has died or does not answer."""
    stack = Stack(stack_name, existing_servers(stack_name))
    described = stack.describe()
    _show(stack, described, as_json=as_json)
    if any(d.condition in {"died", "starting"} for d in described):
        raise SystemExit(1)


@group.command()
@_stack
@_json
def env(stack_name: str, as_json: bool) -> None:
    """Print shell commands that point programs at the servers: eval "$(cdc local env)"."""
    exports: dict[str, str] = {}
    for described in Stack(stack_name, existing_servers(stack_name)).describe():
        if described.condition == "running":
            exports |= described.exports
    if not exports:
        raise LocalError(
            f"no server of stack {stack_name} is running", hint="start them", command=_command("up", stack_name)
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
    "-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="How many of the last lines."
)
@click.option("-f", "--follow", is_flag=True, help="Go on as lines are written, until interrupted.")
def logs(servers: tuple[str, ...], stack_name: str, lines: int, follow: bool) -> None:
    """Print what the servers wrote."""
    described = Stack(stack_name, servers or existing_servers(stack_name)).describe()
    files = {d.name: Path(d.log) for d in described if Path(d.log).exists()}
    if not files:
        raise LocalError(
            f"no server of stack {stack_name} has a log", hint="start them", command=_command("up", stack_name)
        )
    ends = {name: _print_log(name, file, 0, last=lines, many=len(files) > 1) for name, file in files.items()}
    while follow:
        time.sleep(_FOLLOW_S)
        for name, file in files.items():
            ends[name] = _print_log(name, file, ends[name], last=None, many=len(files) > 1)


def _print_log(name: str, file: Path, offset: int, *, last: int | None, many: bool) -> int:
    """Print the lines after `offset` and return where they end."""
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
    table.columns[3].overflow = "fold"  # an address that is cut off is none
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
            raise UsageError(f"{option} {pair!r} is not NAME=VALUE", hint="as in max_connections=50")
        settings[name.strip()] = value
    return settings


def _command(verb: str, stack_name: str) -> str:
    return f"cdc local {verb}" + ("" if stack_name == DEFAULT else f" --stack {stack_name}")
