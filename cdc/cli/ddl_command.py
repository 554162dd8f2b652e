"""`cdc ddl`: lists and accepts DDL findings, that is, DDL that changed rows without row events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import UNSET

from cdc.cli import output, wait_notice
from cdc.cli.action_terminal import act
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.errors import UsageError
from cdc.lsn import Lsn
from cdc.model import units

if TYPE_CHECKING:
    from cdc.model.table_facts import DdlFinding


@click.group("ddl")
def group() -> None:
    """List and accept DDL that changed rows without row events."""


@group.command("list")
@config_option
@json_option
def list_command(config_path: Path | None, as_json: bool) -> None:
    """List the open DDL findings.

    Works while capture is down.
    """
    from cdc.control.ddl_actions import open_findings
    from cdc.telemetry.capture_status import ddl_document

    config = configuration(config_path)
    with output.waiting(wait_notice.kafka(config)):
        found = open_findings(config)
    if as_json:
        output.show_json({"findings": [ddl_document(one) for one in found]})
    elif found:
        _show(found)
    else:
        output.note("no open DDL findings")


@group.command("accept")
@click.argument("tables", nargs=-1)
@click.option("--yes", is_flag=True, help="Accept without asking.")
@config_option
@json_option
def accept_command(tables: tuple[str, ...], yes: bool, config_path: Path | None, as_json: bool) -> None:
    """Accept the open DDL findings of TABLES (default: all).

    TABLES are patterns of schema.table. Only the findings shown now are accepted; later ones stay open. A running
    capture notices within seconds.
    """
    from cdc.control.requests import DdlAccept
    from cdc.control.terminal import Declined

    config = configuration(config_path)

    def agreed(found: list[DdlFinding]) -> bool:
        if not as_json:
            _show(found)
        return output.confirm(f"Accept {units.count(len(found), 'finding')}?", yes=yes)

    try:
        outcome = act(
            config,
            DdlAccept(tables=tables or UNSET),
            reading=lambda: output.waiting(wait_notice.kafka(config)),
            agreed=agreed,
        )
    except Declined:
        raise UsageError(
            "nothing was accepted", hint="answer y, or pass --yes", command="cdc ddl accept --yes"
        ) from None
    accepted = outcome.facts["accepted"]
    if as_json:
        output.show_json({"accepted": accepted})
    else:
        output.done(f"accepted for {', '.join(map(output.plain, sorted({one['table'] for one in accepted})))}")


def _show(found: Sequence[DdlFinding]) -> None:
    made = output.table("table", "noticed", "what", "try")
    for one in found:
        made.add_row(
            output.plain(one.table),
            str(Lsn(one.lsn)),
            f"{output.plain(one.what)}\n{output.plain(one.hint)}",
            output.statement(one.command),
        )
    output.show_table(made)
