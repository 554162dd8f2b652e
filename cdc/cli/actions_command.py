"""`cdc actions`: shows what operators did, from the topic of actions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc.cli import output, wait_notice
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.control.action_record import LIMIT_MAX

if TYPE_CHECKING:
    from cdc.control.action_record import ActionRecord


@click.command("actions")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=20,
    show_default=True,
    help="Show at most this many of the newest actions.",
)
@config_option
@json_option
def command(limit: int, config_path: Path | None, as_json: bool) -> None:
    """Show what operators did to capture, snapshots and sinks.

    Pauses, snapshots, dead letters, DDL findings and versions of views: each action by a command or over HTTP is
    recorded with its result, also if it was refused. Row keys and conditions are not recorded. Reads Kafka, so it works
    while capture is down.
    """
    from cdc.control.action_log import read_newest
    from cdc.control.action_record import document

    config = configuration(config_path)
    with output.waiting(wait_notice.kafka(config)):
        found = read_newest(config, limit)
    if as_json:
        output.show_json({"actions": [document(one) for one in found.records], "unreadable": found.unreadable})
        return
    if found.records:
        table = output.table("at", "who", "from", "via", "action", "arguments", "result", "error")
        for one in found.records:
            table.add_row(*map(output.plain, _cells(one)))
        output.show_table(table)
    else:
        output.note("no action is recorded yet")
    if found.unreadable:
        output.note(f"{found.unreadable} records of the topic were written by another program")


def _cells(one: ActionRecord) -> tuple[str, ...]:
    arguments = " ".join(f"{name}={_text(value)}" for name, value in one.arguments.items())
    error = f"{one.error.kind}: {one.error.message}".rstrip(": ") if one.error is not None else ""
    return one.at, one.who, one.origin, one.via, one.action, arguments, one.result, error


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
