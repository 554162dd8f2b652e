"""`cdc ddl`: lists and accepts DDL findings, that is, DDL that changed rows without row events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc.cli import output, wait_notice
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.config.settings import Config
from cdc.errors import TopicMismatch, UsageError
from cdc.lsn import Lsn
from cdc.patterns import matches

if TYPE_CHECKING:
    from cdc.model.table_facts import DdlFinding

_ANSWER_S: Final = 5.0


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
    from cdc.telemetry.capture_status import ddl_document

    found = _open_findings(configuration(config_path))
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
    from cdc.model.table_facts import AcceptedFindings
    from cdc.publish.acceptance import accept
    from cdc.telemetry.capture_status import ddl_document

    config = configuration(config_path)
    found = [one for one in _open_findings(config) if not tables or matches(one.table, tables)]
    if not found:
        raise UsageError(
            f"no open DDL finding matches {', '.join(tables)}" if tables else "no open DDL findings",
            command="cdc ddl list",
        )
    if not as_json:
        _show(found)
    if not output.confirm(f"Accept {len(found)} findings?", yes=yes):
        raise UsageError("nothing was accepted", hint="answer y, or pass --yes", command="cdc ddl accept --yes")
    newest: dict[str, AcceptedFindings] = {}
    for one in sorted(found, key=lambda one: (one.epoch, one.lsn)):
        newest[one.table] = AcceptedFindings(epoch=one.epoch, lsn=one.lsn)
    accept(config, newest)
    if as_json:
        output.show_json({"accepted": [ddl_document(one) for one in found]})
    else:
        output.done(f"accepted for {', '.join(output.plain(table) for table in sorted(newest))}")


def _open_findings(config: Config) -> list[DdlFinding]:
    from cdc.kafka.log_reader import LogReader
    from cdc.progress.bounded_reader import BoundedReader
    from cdc.progress.recorded_catalog import recorded_catalog

    with LogReader(config.kafka, client_id="tailrace-ddl") as reader, output.waiting(wait_notice.kafka(config)):
        try:
            return recorded_catalog(BoundedReader(reader, _ANSWER_S), config.name).unsettled
        except TopicMismatch:
            return []


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
