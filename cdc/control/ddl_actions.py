"""Accepts DDL findings."""

from __future__ import annotations

from typing import Final

from cdc.config.settings import Config
from cdc.control.requests import DdlAccept
from cdc.control.terminal import Done, Terminal
from cdc.errors import TopicMismatch, UsageError
from cdc.kafka.log_reader import LogReader
from cdc.model.table_facts import AcceptedFindings, DdlFinding
from cdc.patterns import matches
from cdc.progress.bounded_reader import BoundedReader
from cdc.progress.recorded_catalog import recorded_catalog
from cdc.publish.acceptance import accept as record_accepted
from cdc.telemetry.capture_status import ddl_document

_ANSWER_S: Final = 5.0


def open_findings(config: Config) -> list[DdlFinding]:
    """Return the open findings from the log; none when capture never ran."""
    with LogReader(config.kafka, client_id="tailrace-ddl") as reader:
        try:
            return recorded_catalog(BoundedReader(reader, _ANSWER_S), config.name).unsettled
        except TopicMismatch:
            return []


def accept(config: Config, request: DdlAccept, terminal: Terminal) -> Done:
    """Accept the findings that are open now; later ones stay open.

    The terminal is asked about the list of `DdlFinding`. Raises UsageError when no open finding matches.
    """
    tables = request.tables or ()
    with terminal.reading():
        found = [one for one in open_findings(config) if not tables or matches(one.table, tables)]
    if not found:
        raise UsageError(
            f"no open DDL finding matches {', '.join(tables)}" if tables else "no open DDL findings",
            command="cdc ddl list",
        )
    terminal.ask(found)
    newest: dict[str, AcceptedFindings] = {}
    for one in sorted(found, key=lambda one: (one.epoch, one.lsn)):
        newest[one.table] = AcceptedFindings(epoch=one.epoch, lsn=one.lsn)
    record_accepted(config, newest)
    return Done("done", {"accepted": [ddl_document(one) for one in found]})
