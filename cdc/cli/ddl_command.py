"""`cdc ddl`: what DDL has done to rows that the stream did not tell, and what of it is settled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc.cli import output, wait_notice
from cdc.cli.command_options import config_option, configuration, json_option

if TYPE_CHECKING:
    from cdc.config.settings import Config
    from cdc.model.table_facts import DdlFinding

_ANSWER_S: Final = 5.0


@click.group("ddl")
def group() -> None:
    """DDL whose rows the stream does not show: see it, accept it."""


@group.command("list")
@config_option
@json_option
def list_command(config_path: Path | None, as_json: bool) -> None:
    """Show what was found and nobody has accepted. Works while capture is down."""
    from cdc.telemetry.capture_status import ddl_document

    found = _unsettled(configuration(config_path))
    if as_json:
        output.show_json({"findings": [ddl_document(one) for one in found]})
    elif found:
        _show(found)
    else:
        output.note("nothing was found that is not accepted")


@group.command("accept")
@click.argument("tables", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
@json_option
def accept_command(tables: tuple[str, ...], yes: bool, config_path: Path | None, as_json: bool) -> None:
    """Settle what was found for TABLES (patterns of schema.table), or for all.

    Only what is shown now is accepted: what capture finds later stays open. A running capture knows within seconds.
    """
    from cdc.errors import UsageError
    from cdc.model.table_facts import AcceptedFindings
    from cdc.patterns import matches
    from cdc.publish.acceptance import accept
    from cdc.telemetry.capture_status import ddl_document

    config = configuration(config_path)
    found = [one for one in _unsettled(config) if not tables or matches(one.table, tables)]
    if not found:
        raise UsageError("nothing was found there that is not accepted", command="cdc ddl list")
    if not as_json:
        _show(found)
    if not output.confirm(f"Accept {len(found)} findings?", yes=yes):
        raise UsageError("nothing was accepted", hint="answer y, or say --yes", command="cdc ddl accept --yes")
    newest: dict[str, AcceptedFindings] = {}
    for one in sorted(found, key=lambda one: (one.epoch, one.lsn)):
        newest[one.table] = AcceptedFindings(epoch=one.epoch, lsn=one.lsn)
    accept(config, newest)
    if as_json:
        output.show_json({"accepted": [ddl_document(one) for one in found]})
    else:
        output.done(f"accepted for {', '.join(output.plain(table) for table in sorted(newest))}")


def _unsettled(config: Config) -> list[DdlFinding]:
    from cdc.errors import TopicMismatch
    from cdc.kafka.log_reader import LogReader
    from cdc.progress.bounded_reader import BoundedReader
    from cdc.progress.recorded_catalog import recorded_catalog

    with LogReader(config.kafka, client_id="tailrace-ddl") as reader, output.waiting(wait_notice.kafka(config)):
        try:
            return recorded_catalog(BoundedReader(reader, _ANSWER_S), config.name).unsettled
        except TopicMismatch:
            return []


def _show(found: Sequence[DdlFinding]) -> None:
    from cdc.lsn import Lsn

    made = output.table("table", "noticed", "what", "try")
    for one in found:
        made.add_row(
            output.plain(one.table),
            str(Lsn(one.lsn)),
            f"{output.plain(one.what)}\n{output.plain(one.hint)}",
            output.statement(one.command),
        )
    output.show_table(made)
