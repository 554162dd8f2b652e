"""`cdc dlq`: lists and handles records that a sink's store rejected, and the keys blocked behind them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from msgspec import UNSET

from cdc.cli import output
from cdc.cli.action_terminal import act
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.clock import SystemClock
from cdc.errors import EXIT_FAILED, EXIT_OK, UsageError
from cdc.model import units

if TYPE_CHECKING:
    from sinks.deadletters.blocked_keys import Action, BlockedKey
    from sinks.deadletters.dead_letter_record import DeadLetter
    from sinks.operate.dead_letter_view import BlockedRow, DeadLetterView, KeyFilter

_SETTLE_S: Final = 60.0  # without any key settled; a running worker notices a request within a second
_SHOWN_MAX: Final = 20
_REASON_SHOWN: Final = 200

_F = TypeVar("_F", bound=Callable[..., Any])


def _filter_options(command: _F) -> _F:
    """Add the options that select blocked keys."""
    for option in (
        click.option(
            "--key", metavar="JSON", help='Only this key: JSON, e.g. {"id": 7}, or its value  [default: all].'
        ),
        click.option("--error", metavar="CLASS", help="Only keys rejected with this error  [default: all]."),
        click.option(
            "--table", "tables", multiple=True, help="Only tables that match this pattern; repeatable  [default: all]."
        ),
    ):
        command = option(command)
    return command


@click.group("dlq")
def group() -> None:
    """List, retry, skip and export the dead letters of a sink.

    A dead letter blocks the later records of its key; other keys are not affected.
    """


@group.command("list")
@click.argument("sinks", nargs=-1)
@config_option
@json_option
def list_command(sinks: tuple[str, ...], config_path: Path | None, as_json: bool) -> None:
    """Count blocked keys by sink, table and error.

    SINKS: names of sinks (default: all). Works while the sinks are down.
    """
    from sinks.operate.dead_letter_view import DeadLetterView, applied_sinks

    config = configuration(config_path)
    counted: dict[tuple[str, str, str], list[int]] = {}
    with output.waiting("reading blocked keys"):
        for sink in sinks or applied_sinks(config):
            with DeadLetterView(config, sink) as view:
                for row in view.blocked():
                    numbers = counted.setdefault((sink, row.table, row.block.error), [0, 0, 1 << 62])
                    numbers[0] += 1
                    numbers[1] += row.block.record_count
                    numbers[2] = min(numbers[2], row.block.since_ms)
    if as_json:
        output.show_json({"blocked": [_count(*of, *numbers) for of, numbers in sorted(counted.items())]})
    elif not counted:
        output.done("no key is blocked")
    else:
        table = output.table("sink", "table", "error", "keys", "records", "since", right=["keys", "records"])
        for of, (keys, records, since_ms) in sorted(counted.items()):
            table.add_row(*map(output.plain, of), f"{keys:,}", f"{records:,}", _time(since_ms))
        output.show_table(table)


@group.command("show")
@click.argument("sink")
@_filter_options
@click.option(
    "--limit", type=click.IntRange(1), default=_SHOWN_MAX, show_default=True, help="Show at most this many keys."
)
@config_option
@json_option
def show_command(
    sink: str, tables: tuple[str, ...], error: str | None, key: str | None, limit: int, config_path: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show blocked keys of SINK and why each was rejected.

    Row values are not shown; `cdc dlq export` prints them.
    """
    from sinks.operate.dead_letter_view import DeadLetterView

    choice = _choice(tables, error, key)
    with DeadLetterView(configuration(config_path), sink) as view, output.waiting("reading dead letters"):
        found = [row for row in view.blocked() if choice.fits(row)]
        shown = found[:limit]
        reasons: dict[BlockedKey, str] = {}
        for letter in view.letters(shown):
            reasons.setdefault((letter.place, letter.record.key or b""), letter.reason)
    if as_json:
        output.show_json({"keys": [_row(row, reasons.get(row.at, "")) for row in shown], "count": len(found)})
        return
    numbers = ("first", "records", "tries")
    table = output.table("table", "key", *numbers, "since", "error", "reason", right=numbers)
    for row in shown:
        block = row.block
        cells = (
            row.table,
            row.key,
            str(block.first),
            f"{block.record_count:,}",
            str(block.tries),
            _time(block.since_ms),
        )
        reason = reasons.get(row.at, "")[:_REASON_SHOWN]
        table.add_row(*map(output.plain, (*cells, block.error, reason)))
    if found:
        output.show_table(table)
    output.note(f"{len(shown)} of {len(found)} blocked keys" if found else "no blocked key matches")


@group.command("retry")
@click.argument("sink")
@_filter_options
@click.option("--no-wait", is_flag=True, help="Return immediately after submitting the request.")
@config_option
@json_option
def retry_command(
    sink: str, tables: tuple[str, ...], error: str | None, key: str | None, no_wait: bool, config_path: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Apply the dead letters of SINK again.

    The worker that owns a key's partition applies its dead letters in order, then the records that follow them.
    Without options all keys are retried. Exit code 1 when a record is rejected again, or when no worker answered; a
    worker acts on the request when it starts.
    """
    return _ask(sink, "retry", _choice(tables, error, key), config_path, no_wait=no_wait, as_json=as_json, yes=True)


@group.command("skip")
@click.argument("sink")
@_filter_options
@click.option("--no-wait", is_flag=True, help="Return immediately after submitting the request.")
@click.option("--yes", is_flag=True, help="Skip without asking.")
@config_option
@json_option
def skip_command(
    sink: str, tables: tuple[str, ...], error: str | None, key: str | None, no_wait: bool, yes: bool,
    config_path: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Skip the dead letters of SINK and unblock their keys.

    Without options all keys are skipped. The store keeps its older rows until the next change of each key, and
    `cdc verify` reports them.
    """
    return _ask(sink, "skip", _choice(tables, error, key), config_path, no_wait=no_wait, as_json=as_json, yes=yes)


@group.command("export")
@click.argument("sink")
@_filter_options
@config_option
def export_command(
    sink: str, tables: tuple[str, ...], error: str | None, key: str | None, config_path: Path | None
) -> None:
    """Print the dead letters of SINK as JSON lines, with row values.

    Keys and values are text, or base64 if they are not UTF-8.
    """
    from sinks.operate.dead_letter_view import DeadLetterView

    choice = _choice(tables, error, key)
    with DeadLetterView(configuration(config_path), sink) as view:
        for letter in view.letters([row for row in view.blocked() if choice.fits(row)]):
            click.echo(json.dumps(_letter(letter), ensure_ascii=False))


def _choice(tables: tuple[str, ...], error: str | None, key: str | None) -> KeyFilter:
    from sinks.operate.dead_letter_view import KeyFilter

    try:
        wanted = None if key is None else json.loads(key)
    except (ValueError, RecursionError):
        raise UsageError('--key must be JSON: an object of key columns, e.g. {"id": 7}, or a value') from None
    return KeyFilter(tables, error or "", wanted)


def _ask(
    sink: str, action: Action, choice: KeyFilter, config_path: Path | None, *, no_wait: bool, as_json: bool, yes: bool
) -> int:
    from cdc.control.requests import DeadLettersRetry, DeadLettersSkip
    from cdc.control.terminal import Declined
    from sinks.operate.dead_letter_view import DeadLetterView

    config = configuration(config_path)
    kind = DeadLettersRetry if action == "retry" else DeadLettersSkip
    request = kind(
        sink=sink,
        tables=tuple(choice.tables) or UNSET,
        error=choice.error or UNSET,
        key=UNSET if choice.key is None else cast("Any", choice.key),  # a key of another form matches no key
    )
    chosen: list[BlockedRow] = []

    def agreed(found: list[BlockedRow]) -> bool:
        chosen.extend(found)
        records = sum(row.block.record_count for row in found)
        return output.confirm(
            f"Skip {units.count(records, 'dead letter')} of {units.count(len(found), 'key')}?", yes=yes
        )

    try:
        act(config, request, reading=lambda: output.waiting("reading blocked keys"), agreed=agreed)
    except Declined:
        raise UsageError("nothing was skipped", hint="answer y, or pass --yes") from None
    refused: list[BlockedRow] = []
    waiting = chosen
    if chosen and not no_wait:
        with DeadLetterView(config, sink) as view:
            refused, waiting = _wait(view, chosen)
    done = len(chosen) - len(refused) - len(waiting)
    _print_result(as_json, action, done=done, refused=refused, waiting=len(waiting))
    return EXIT_FAILED if (refused or waiting) and not no_wait else EXIT_OK


def _wait(view: DeadLetterView, chosen: Sequence[BlockedRow]) -> tuple[list[BlockedRow], list[BlockedRow]]:
    """Wait for the sink, for as long as keys are still being settled."""
    clock, before = SystemClock(), len(chosen) + 1
    with output.waiting("waiting for the sink"):
        while True:
            refused, waiting = view.settled(chosen, clock, within_s=_SETTLE_S)
            if not waiting or len(waiting) >= before:
                return refused, waiting
            before = len(waiting)


def _print_result(as_json: bool, action: Action, *, done: int, refused: Sequence[BlockedRow], waiting: int) -> None:
    if as_json:
        output.show_json(
            {"action": action, "done": done, "refused": [_row(row, "") for row in refused], "waiting": waiting}
        )
        return
    if not (done or refused or waiting):
        output.note("no blocked key matches")
    if done:
        output.done(
            f"{units.count(done, 'key')} {'applied and unblocked' if action == 'retry' else 'skipped and unblocked'}"
        )
    for error, count in sorted(_counts(row.block.error for row in refused).items()):
        output.refused(f"{units.count(count, 'key')} rejected again: {output.plain(error)}")
    if waiting:
        output.note(f"{units.count(waiting, 'key')} waiting for the sink, which acts on them when it runs")


def _counts(errors: Iterable[str]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for error in errors:
        counted[error] = counted.get(error, 0) + 1
    return counted


def _count(sink: str, table: str, error: str, keys: int, records: int, since_ms: int) -> dict[str, object]:
    return {
        "sink": sink, "table": table, "error": error, "keys": keys, "records": records, "since": _time(since_ms),
    }  # fmt: skip


def _row(row: BlockedRow, reason: str) -> dict[str, object]:
    (topic, partition), block = row.at[0], row.block
    return {
        "table": row.table,
        "topic": topic,
        "partition": partition,
        "key": row.key,
        "first_offset": block.first,
        "last_offset": block.last,
        "records": block.record_count,
        "tries": block.tries,
        "since": _time(block.since_ms),
        "error": block.error,
        "reason": reason,
        "wished": row.requested,
    }


def _letter(letter: DeadLetter) -> dict[str, object]:
    topic, partition, offset, timestamp_ms, key, value, headers = letter.record
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp_ms": timestamp_ms,
        "position": letter.position or None,
        "error": letter.error,
        "reason": letter.reason,
        "parked_at": _time(letter.parked_at_ms),
        **_text("key", key),
        **_text("value", value),
        "headers": [[name, text.decode(errors="replace")] for name, text in headers or ()],
    }


def _text(name: str, data: bytes | None) -> dict[str, object]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
