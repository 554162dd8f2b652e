"""`cdc migrate`: deploys the tables of the outbox, the inbox, the heartbeat and the event store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, of_outbox, outbox_names, schema_option

if TYPE_CHECKING:
    from cdc.config.secret import Secret
    from outbox.migrate import Migrator
    from outbox.revisions import Phase, Revision, Settings
    from outbox.table_names import Names

_F = TypeVar("_F", bound=Callable[..., Any])
_APPLICATION: Final = "cdc-migrate"


_placing: Final = of_outbox("TAILRACE_MIGRATE_DSN", "Of the role that owns the tables  [default: source.dsn].")


def _deploying(command: _F) -> _F:
    """The options that say what is deployed."""
    for option in (
        click.option("--publication", default="", help="Add outbox and heartbeat to this publication."),
        click.option("--partitioned", is_flag=True, help="Make the outbox partitioned by day."),
        click.option("--phase", type=click.Choice(["pre", "post"]), help="Before or after a deployment; else all."),
    ):
        command = option(command)
    return command


_lock_option: Final = click.option(
    "--lock-timeout",
    "lock_timeout_ms",
    type=click.IntRange(10, 60_000),
    default=2_000,
    show_default=True,
    help="Milliseconds that writers may wait behind one attempt.",
)
_attempts_option: Final = click.option(
    "--attempts", type=click.IntRange(1, 10_000), default=60, show_default=True, help="Of a migration, for its locks."
)


@click.group("migrate")
def group() -> None:
    """Deploy the outbox tables: outbox, inbox, heartbeat, event store."""


@group.command("up")
@_deploying
@_lock_option
@_attempts_option
@_placing
def up_command(
    phase: Phase | None, partitioned: bool, publication: str, lock_timeout_ms: int, attempts: int, dsn: str | None,
    schema: str | None, config_path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Apply what is pending, a transaction each; safe beside applications that write.

    Run it with --phase pre before the release that needs it is deployed, and with --phase post when no process of the
    one before runs any more; without --phase everything is applied.
    """
    names = outbox_names(schema, config_path)
    settings = _settings(names, partitioned or None, publication, lock_timeout_ms, attempts)
    with _migrator(dsn, config_path, settings) as migrator:
        applied = migrator.up(phase)
    _say(applied, "applied", as_json=as_json, nothing="nothing was pending")


@group.command("down")
@click.option("--to", "target", required=True, help="The revision to go back to; base: drop all tables.")
@click.option("--with-data", is_flag=True, help="Drop tables that have rows, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_lock_option
@_attempts_option
@_placing
def down_command(
    target: str, with_data: bool, yes: bool, lock_timeout_ms: int, attempts: int, dsn: str | None, schema: str | None,
    config_path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Undo migrations down to a revision. Refused for tables that have rows, unless --with-data."""
    from cdc.errors import UsageError

    names = outbox_names(schema, config_path)
    if not output.confirm(f"Undo the migrations of schema {names.schema} down to {target}?", yes=yes):
        raise UsageError("nothing was undone", hint="answer y, or say --yes")
    settings = _settings(names, None, "", lock_timeout_ms, attempts)
    with _migrator(dsn, config_path, settings) as migrator:
        undone = migrator.down(target, with_data=with_data)
    _say(undone, "undone", as_json=as_json, nothing="nothing was to be undone")


@group.command("status")
@_placing
def status_command(dsn: str | None, schema: str | None, config_path: Path | None, as_json: bool) -> None:
    """Show which migrations are applied and which are pending."""
    names = outbox_names(schema, config_path)
    with _migrator(dsn, config_path, _settings(names)) as migrator:
        state = migrator.state()
    if as_json:
        output.show_json(
            {
                "schema": names.schema,
                "current": state.current,
                "partitioned": state.partitioned,
                "applied": [_document(one) for one in state.applied],
                "pending": [_document(one) for one in state.pending],
            }
        )
        return
    table = output.table("revision", "phase", "state", "what")
    for word, found in (("applied", state.applied), ("pending", state.pending)):
        for one in found:
            table.add_row(one.id, one.phase, word, one.title)
    output.show_table(table)
    if state.partitioned is not None:
        output.note(f"the outbox is {'partitioned by day' if state.partitioned else 'one table'}")


@group.command("sql")
@_deploying
@click.option("--since", default="base", show_default=True, help="The revision the database is at.")
@schema_option
@config_option
def sql_command(
    phase: Phase | None, partitioned: bool, publication: str, since: str, schema: str | None, config_path: Path | None
) -> None:
    """Print the statements of `cdc migrate up` for a DBA. Asks no database."""
    from outbox.revisions import script

    names = outbox_names(schema, config_path)
    with _translated():
        output.show_script(script(_settings(names, partitioned or None, publication), since=since, phase=phase))


@group.command("check")
@_placing
def check_command(dsn: str | None, schema: str | None, config_path: Path | None, as_json: bool) -> int:
    """Compare the tables with the models of this release. Exit code 1 when they differ."""
    from cdc.errors import EXIT_FAILED, EXIT_OK

    names = outbox_names(schema, config_path)
    with _migrator(dsn, config_path, _settings(names)) as migrator:
        found = migrator.check()
    if as_json:
        output.show_json({"schema": names.schema, "differences": found})
    elif not found:
        output.done(f"schema {names.schema} is what the models say")
    else:
        for sentence in found:
            output.refused(sentence)
    return EXIT_FAILED if found else EXIT_OK


@group.command("partition")
@_lock_option
@_attempts_option
@_placing
def partition_command(
    lock_timeout_ms: int, attempts: int, dsn: str | None, schema: str | None, config_path: Path | None, as_json: bool
) -> None:
    """Exchange an outbox of one table for one that is partitioned by day, while applications write.

    Nothing is copied: rows of before are in the WAL, and stay in the old table under another name. Drop that when
    capture is past them.
    """
    names = outbox_names(schema, config_path)
    settings = _settings(names, None, "", lock_timeout_ms, attempts)
    with _migrator(dsn, config_path, settings) as migrator:
        before = migrator.partition()
    if as_json:
        output.show_json({"schema": names.schema, "before": before})
    else:
        output.done(
            f"{names.schema}.{names.outbox} is partitioned by day; the table of before is {names.schema}.{before}"
        )


def _settings(
    names: Names,
    partitioned: bool | None = None,
    publication: str = "",
    lock_timeout_ms: int = 2_000,
    attempts: int = 60,
) -> Settings:
    with _translated():
        from outbox.revisions import Settings

        return Settings(names, partitioned, publication, lock_timeout_ms, attempts)


@contextmanager
def _migrator(dsn: str | None, config_path: Path | None, settings: Settings) -> Iterator[Migrator]:
    """A migrator on the database that is meant; its refusals become errors of the command line."""
    from cdc.config.secret import Secret

    source = Secret(dsn) if dsn else configuration(config_path).source.dsn
    with _translated():
        from outbox.migrate import Migrator

        with output.waiting("asking the database"):
            yield Migrator(lambda: _connect(source), settings)


def _connect(dsn: Secret) -> object:
    """A session of SQLAlchemy's: no autocommit, or a migration would not be one transaction."""
    from cdc.replication.connect import connect

    connection = connect(dsn, application_name=_APPLICATION)
    connection.autocommit = False
    return connection


@contextmanager
def _translated() -> Iterator[None]:
    from cdc.errors import ConfigError, SourceRefused
    from outbox.errors import MigrationRefused, OutboxError

    try:
        yield
    except MigrationRefused as error:
        raise SourceRefused(error.message, hint=error.hint) from error
    except OutboxError as error:
        raise ConfigError(error.message, hint=error.hint) from error
    except ModuleNotFoundError as error:
        if error.name not in {"sqlalchemy", "alembic"}:
            raise
        raise ConfigError(
            f"the package {error.name!r} is not installed; migrations need it",
            hint="it is an extra",
            command="pip install 'tailrace[capture,outbox]'",
        ) from error


def _say(revisions: list[Revision], word: str, *, as_json: bool, nothing: str) -> None:
    if as_json:
        output.show_json({word: [_document(one) for one in revisions]})
        return
    for one in revisions:
        output.done(f"{word} {one.id}: {one.title}")
    if not revisions:
        output.done(nothing)


def _document(one: Revision) -> dict[str, object]:
    return {"revision": one.id, "phase": one.phase, "what": one.title}
