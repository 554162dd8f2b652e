"""`cdc inbox`: lists and handles dead letters of event consumers, which are stored in the consumer's own database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cdc.cli import output
from cdc.cli.command_options import configuration, of_outbox, outbox_names
from cdc.config.secret import Secret
from cdc.errors import ConfigError, UsageError
from cdc.model import units

if TYPE_CHECKING:
    from outbox.db_api import RowsCursor
    from outbox.dead_letters import DeadLetters, LetterAction

_F = TypeVar("_F", bound=Callable[..., Any])
_SHOWN_MAX: Final = 20


_database_options: Final = of_outbox("TAILRACE_INBOX_DSN", "DSN of the consumer's database  [default: source.dsn].")


def _filter_options(command: _F) -> _F:
    for option in (
        click.option("--key", help="Only this key, as text  [default: all]."),
        click.option("--error", default="", help="Only keys whose first dead letter has this error  [default: all]."),
        click.option("--topic", default="", help="Only keys of this topic  [default: all]."),
    ):
        command = option(command)
    return command


@click.group("inbox")
def group() -> None:
    """List, retry and skip the dead letters of event consumers.

    A dead letter blocks the later events of its key; other keys are not affected.
    """


@group.command("list")
@click.argument("consumer", required=False, default="")
@_database_options
def list_command(consumer: str, dsn: str | None, schema: str | None, config_path: Path | None, as_json: bool) -> None:
    """Count dead letters by consumer, topic and error.

    CONSUMER: the name of a consumer (default: all).
    """
    with _letters(consumer, dsn, schema, config_path) as (letters, cursor):
        counts = letters.counts(cursor)
    if as_json:
        output.show_json({"letters": [one._asdict() for one in counts]})
        return
    table = output.table("consumer", "topic", "error", "keys", "dead letters", right=["keys", "dead letters"])
    for one in counts:
        words = map(output.plain, (one.consumer, one.topic, one.error))
        table.add_row(*words, f"{one.key_count:,}", f"{one.letter_count:,}")
    if counts:
        output.show_table(table)
    else:
        output.done("no dead letters")


@group.command("show")
@click.argument("consumer")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=_SHOWN_MAX,
    show_default=True,
    help="Show at most this many dead letters.",
)
@_database_options
def show_command(
    consumer: str, limit: int, dsn: str | None, schema: str | None, config_path: Path | None, as_json: bool
) -> None:
    """Show the oldest dead letters of CONSUMER and their errors.

    Payloads are not shown; they are in the table.
    """
    with _letters(consumer, dsn, schema, config_path) as (letters, cursor):
        found = letters.letters(cursor, limit)
    rows = [
        {
            "topic": one.delivery.topic,
            "partition": one.delivery.partition,
            "offset": one.delivery.offset,
            "key": one.delivery.key.decode(errors="replace"),
            "type": one.delivery.type,
            "error": one.error,
            "attempts": one.attempt_count,
            "wish": one.wish or "",
        }
        for one in found
    ]
    if as_json:
        output.show_json({"letters": rows})
        return
    names = ("topic", "partition", "offset", "key", "type", "error", "attempts")
    table = output.table(*names, "request", right=["partition", "offset", "attempts"])
    for row in rows:
        table.add_row(*(output.plain(str(row[name])) for name in (*names, "wish")))
    output.show_table(table)


@group.command("retry")
@click.argument("consumer")
@_filter_options
@_database_options
def retry_command(
    consumer: str, topic: str, error: str, key: str | None, dsn: str | None, schema: str | None,
    config_path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Request that CONSUMER processes its dead letters again.

    Without options all keys are retried, each in its order. A running consumer acts within about a second.
    """
    _ask("retry", consumer, topic, error, key, (dsn, schema, config_path), as_json=as_json)


@group.command("skip")
@click.argument("consumer")
@click.option("--yes", is_flag=True, help="Skip without asking.")
@_filter_options
@_database_options
def skip_command(
    consumer: str, yes: bool, topic: str, error: str, key: str | None, dsn: str | None, schema: str | None,
    config_path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Skip the first dead letter of each key of CONSUMER.

    The consumer then processes the events behind it. A skipped event is never processed.
    """
    if not output.confirm(f"Skip the first dead letter of each key of {consumer}?", yes=yes):
        raise UsageError("nothing was skipped", hint="answer y, or pass --yes")
    _ask("skip", consumer, topic, error, key, (dsn, schema, config_path), as_json=as_json)


def _ask(
    wish: LetterAction, consumer: str, topic: str, error: str, key: str | None,
    database: tuple[str | None, str | None, Path | None], *, as_json: bool,
) -> None:  # fmt: skip
    with _letters(consumer, *database) as (letters, cursor):
        count = letters.ask(cursor, wish, topic=topic, error=error, key=None if key is None else key.encode())
    if as_json:
        output.show_json({"wish": wish, "keys": count})
    else:
        output.done(
            f"asked {consumer} to {wish} the dead letters of {units.count(count, 'key')}"
            if count
            else "no dead letter matches"
        )


@contextmanager
def _letters(
    consumer: str, dsn: str | None, schema: str | None, config_path: Path | None
) -> Iterator[tuple[DeadLetters, RowsCursor]]:
    """Open the dead letters and a cursor on their database, in one transaction."""
    import psycopg

    from cdc.replication.connect import connect, translate
    from outbox.dead_letters import DeadLetters
    from outbox.errors import OutboxError

    names = outbox_names(schema, config_path)
    source = Secret(dsn) if dsn else configuration(config_path).source.dsn
    with output.waiting("waiting for PostgreSQL"):
        connection = connect(source, application_name="cdc-inbox")
    try:
        with connection, connection.transaction():
            yield DeadLetters(consumer, names), connection.cursor()
    except OutboxError as error:
        raise ConfigError(error.message, hint=error.hint) from error
    except psycopg.errors.UndefinedTable as error:
        raise ConfigError(
            f"schema {names.schema} of this database has no table for dead letters",
            command="cdc migrate up",
            hint="create the tables",
        ) from error
    except psycopg.Error as error:
        raise translate(error, "read dead letters") from error
