"""`cdc history`: every version of one row, from the archive of a lake. Needs neither Spark nor Kafka."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdc.cli import event_text, output
from cdc.cli.command_options import config_option, json_option
from cdc.cli.lake_choice import choose_lake, json_value, lake_option
from cdc.errors import EXIT_OK, UsageError
from cdc.lsn import Lsn
from cdc.model.log_record import LogRecord

if TYPE_CHECKING:
    from cdc.inspect.log_reading import Event
    from sinks.warehouse.read.row_history import Change, RowHistory


@click.command("history")
@click.argument("table")
@click.argument("key", nargs=-1, required=True)
@lake_option
@config_option
@json_option
def command(table: str, key: Sequence[str], lake_text: str | None, config_path: Path | None, as_json: bool) -> int:
    """Show every version of one row: time, position, changed columns.

    KEY is JSON, e.g. '{"id": 7}', or the values of the key columns in the table's order.
    """
    from sinks.warehouse.read.lake_reader import Lake
    from sinks.warehouse.read.row_history import history_of

    wanted = parse_key(key)
    lake = Lake(choose_lake(config_path, lake_text).location)
    manifest = lake.manifest()
    found = history_of(lake, manifest, table, wanted)
    if as_json:
        output.show_json([_document(change) for change in found.changes])
        return EXIT_OK
    named = ", ".join(f"{name} = {value}" for name, value in found.key.items())
    if not found.changes:
        output.note(f"{found.table} has no history for {named}, up to {Lsn(manifest.end_lsn)}")
        return EXIT_OK
    _print_lines(found)
    output.note(f"{found.table} with {named}, up to {Lsn(manifest.end_lsn)}")
    return EXIT_OK


def parse_key(words: Sequence[str]) -> dict[str, Any] | list[str]:
    """Return a mapping of columns to values for a JSON object, else the list of values. Raises UsageError."""
    if not words[0].lstrip().startswith("{"):
        return list(words)
    try:
        found = json.loads(words[0])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found or len(words) > 1:
        raise UsageError(
            f"invalid key {' '.join(words)!r}",
            hint="expected a JSON object or the values of the key columns",
            command="""cdc history orders '{"id": 7}'""",
        )
    return found


def _print_lines(found: RowHistory) -> None:
    from cdc.inspect.log_reading import Table

    terminal = sys.stdout.isatty()
    shape = event_text.layout(
        [Table(found.table, "", tuple(found.key))], width=output.console().width if terminal else 0, with_offset=False
    )
    today = f"{datetime.now(UTC).astimezone():%Y-%m-%d}" if terminal else ""
    for change in found.changes:
        click.echo(event_text.line(_event(found, change), shape, today))


def _event(found: RowHistory, change: Change) -> Event:
    """Return the change as an event for `event_text`, with the old row, which the archive always has."""
    import msgspec

    from cdc.inspect.log_reading import Event
    from cdc.model.event_envelope import EventEnvelope, EventSource

    schema, _, table = found.table.partition(".")
    row = change.after if change.after is not None else change.before or {}
    key = {name: row.get(name, value) for name, value in found.key.items()}
    envelope = EventEnvelope(
        before=msgspec.Raw(_json(change.before)),
        after=msgspec.Raw(_json(change.after)),
        source=EventSource(
            schema=schema,
            table=table,
            epoch=change.epoch,
            commit_lsn=change.commit_lsn,
            ordinal=change.ordinal,
            unchanged=change.unknown,
        ),
        op=change.op,
        ts_ms=int(change.committed_at.timestamp() * 1000),
    )
    position = (change.epoch, change.commit_lsn, change.ordinal)
    return Event(LogRecord("", 0, 0, envelope.ts_ms, _json(key), None, None), envelope, position)


def _document(change: Change) -> dict[str, Any]:
    return {
        "op": change.op,
        "lsn": str(Lsn(change.commit_lsn)),
        "position": [change.epoch, change.commit_lsn, change.ordinal],
        "committed_at": change.committed_at.isoformat(),
        "changed": {
            name: {"old": json_value(old), "new": json_value(new)} for name, (old, new) in change.changed.items()
        },
        "row": json_value(change.after),
        "unknown": list(change.unknown),
    }


def _json(value: object) -> bytes:
    return json.dumps(json_value(value), ensure_ascii=False).encode()
