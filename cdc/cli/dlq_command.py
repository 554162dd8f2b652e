"""`cdc dlq`: records that a sink's store would not take, and the keys that wait behind them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option

if TYPE_CHECKING:
    from sinks.deadletters.blocked_keys import Action, BlockedKey
    from sinks.deadletters.dead_letter_record import DeadLetter
    from sinks.operate.dead_letter_view import BlockedRow, DeadLetterView, KeyFilter

_SETTLE_S: Final = 60.0  # without any key settled; a running worker notices a wish within a second
_SHOWN_MAX: Final = 20
_REASON_SHOWN: Final = 200

_F = TypeVar("_F", bound=Callable[..., Any])


def _choosing(command: _F) -> _F:
    """The options that say which blocked keys are meant."""
    for option in (
        click.option("--key", metavar="JSON", help='One key: its columns as an object, as {"id": 7}, or its value.'),
        click.option("--error", metavar="CLASS", help="Only keys that were refused for this."),
        click.option("--table", "tables", multiple=True, help="Only tables that fit this pattern; may be given again."),
    ):
        command = option(command)
    return command


@click.group("dlq")
def group() -> None:
    """Records a sink could not apply. A key stays behind its first one; other keys flow on."""


@group.command("list")
@click.argument("sinks", nargs=-1)
@config_option
@json_option
def list_command(sinks: tuple[str, ...], config_path: Path | None, as_json: bool) -> None:
    """Count what is blocked, by sink, table and error: SINKS, or all. Works while they are down."""
    from sinks.operate.dead_letter_view import DeadLetterView, applied_sinks

    config = configuration(config_path)
    counted: dict[tuple[str, str, str], list[int]] = {}
    with output.waiting("reading what is blocked"):
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
        output.done("nothing is blocked")
    else:
        table = output.table("sink", "table", "error", "keys", "records", "since", right=["keys", "records"])
        for of, (keys, records, since_ms) in sorted(counted.items()):
            table.add_row(*map(output.plain, of), f"{keys:,}", f"{records:,}", _time(since_ms))
        output.show_table(table)


@group.command("show")
@click.argument("sink")
@_choosing
@click.option("--limit", type=click.IntRange(1), default=_SHOWN_MAX, show_default=True, help="Keys to show.")
@config_option
@json_option
def show_command(
    sink: str, tables: tuple[str, ...], error: str | None, key: str | None, limit: int, config_path: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show blocked keys of SINK and why each was refused. Rows are in `cdc dlq export`, not here."""
    from sinks.operate.dead_letter_view import DeadLetterView

    choice = _choice(tables, error, key)
    with DeadLetterView(configuration(config_path), sink) as view, output.waiting("reading what is parked"):
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
        told = (
            row.table,
            row.key,
            str(block.first),
            f"{block.record_count:,}",
            str(block.tries),
            _time(block.since_ms),
        )
        reason = reasons.get(row.at, "")[:_REASON_SHOWN]
        table.add_row(*map(output.plain, (*told, block.error, reason)))
    if found:
        output.show_table(table)
    output.note(f"{len(shown)} of {len(found)} blocked keys" if found else "nothing is blocked there")


@group.command("retry")
@click.argument("sink")
@_choosing
@click.option("--no-wait", is_flag=True, help="Leave once it is asked for.")
@config_option
@json_option
def retry_command(
    sink: str, tables: tuple[str, ...], error: str | None, key: str | None, no_wait: bool, config_path: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Have SINK try blocked keys again: those chosen, or all.

    The worker that has a key's partition applies what is parked of it, in order, and then what comes after. Exit code 1
    when some are refused again, or when nobody has looked: the sink does not run then, and will do it when it does.
    """
    return _ask(sink, "retry", _choice(tables, error, key), config_path, no_wait=no_wait, as_json=as_json, yes=True)


@group.command("skip")
@click.argument("sink")
@_choosing
@click.option("--no-wait", is_flag=True, help="Leave once it is asked for.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
@json_option
def skip_command(
    sink: str, tables: tuple[str, ...], error: str | None, key: str | None, no_wait: bool, yes: bool,
    config_path: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Have SINK pass over what is parked of blocked keys: those chosen, or all.

    The store keeps what it has for them, which is older than the topic, until their next change; `cdc verify` says so.
    """
    return _ask(sink, "skip", _choice(tables, error, key), config_path, no_wait=no_wait, as_json=as_json, yes=yes)


@group.command("export")
@click.argument("sink")
@_choosing
@config_option
def export_command(
    sink: str, tables: tuple[str, ...], error: str | None, key: str | None, config_path: Path | None
) -> None:
    """Print what is parked of SINK as JSON, a record a line, rows included: keys and values as text, or as base64."""
    from sinks.operate.dead_letter_view import DeadLetterView

    choice = _choice(tables, error, key)
    with DeadLetterView(configuration(config_path), sink) as view:
        for letter in view.letters([row for row in view.blocked() if choice.fits(row)]):
            click.echo(json.dumps(_letter(letter), ensure_ascii=False))


def _choice(tables: tuple[str, ...], error: str | None, key: str | None) -> KeyFilter:
    from cdc.errors import UsageError
    from sinks.operate.dead_letter_view import KeyFilter

    try:
        wanted = None if key is None else json.loads(key)
    except (ValueError, RecursionError):
        raise UsageError('--key is JSON: an object of key columns, as {"id": 7}, or a value') from None
    return KeyFilter(tables, error or "", wanted)


def _ask(
    sink: str, action: Action, choice: KeyFilter, config_path: Path | None, *, no_wait: bool, as_json: bool, yes: bool
) -> int:
    from cdc.errors import EXIT_FAILED, EXIT_OK, UsageError
    from sinks.operate.dead_letter_view import DeadLetterView

    with DeadLetterView(configuration(config_path), sink) as view:
        with output.waiting("reading what is blocked"):
            chosen = [row for row in view.blocked() if choice.fits(row)]
        if not chosen:
            _say(as_json, action, done=0, refused=[], waiting=0)
            return EXIT_OK
        records = sum(row.block.record_count for row in chosen)
        if not output.confirm(f"Pass over {records} records of {len(chosen)} keys?", yes=yes):
            raise UsageError("nothing was passed over", hint="answer y, or say --yes")
        view.ask(chosen, action)
        if no_wait:
            _say(as_json, action, done=0, refused=[], waiting=len(chosen))
            return EXIT_OK
        refused, waiting = _wait(view, chosen)
    _say(as_json, action, done=len(chosen) - len(refused) - len(waiting), refused=refused, waiting=len(waiting))
    return EXIT_FAILED if refused or waiting else EXIT_OK


def _wait(view: DeadLetterView, chosen: Sequence[BlockedRow]) -> tuple[list[BlockedRow], list[BlockedRow]]:
    """As long as some are settled every now and then."""
    from cdc.clock import SystemClock

    clock, before = SystemClock(), len(chosen) + 1
    with output.waiting("waiting for the sink"):
        while True:
            refused, waiting = view.settled(chosen, clock, within_s=_SETTLE_S)
            if not waiting or len(waiting) >= before:
                return refused, waiting
            before = len(waiting)


def _say(as_json: bool, action: Action, *, done: int, refused: Sequence[BlockedRow], waiting: int) -> None:
    if as_json:
        output.show_json(
            {"action": action, "done": done, "refused": [_row(row, "") for row in refused], "waiting": waiting}
        )
        return
    if not (done or refused or waiting):
        output.note("nothing is blocked there")
    if done:
        output.done(f"{done:,} keys {'are applied and flow on' if action == 'retry' else 'are passed over'}")
    for error, count in sorted(_counts(row.block.error for row in refused).items()):
        output.refused(f"{count:,} keys are refused again: {output.plain(error)}")
    if waiting:
        output.note(f"{waiting:,} keys wait for the sink: it acts on them as soon as it runs")


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
