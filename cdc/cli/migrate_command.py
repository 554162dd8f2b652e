"""`cdc migrate`: creates and upgrades the tables of the outbox, the inbox, the heartbeat and the event store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, of_outbox, outbox_names, schema_option
from cdc.config.secret import Secret
from cdc.errors import EXIT_FAILED, EXIT_OK, ConfigError, SourceRefused, UsageError

if TYPE_CHECKING:
    from outbox.migrate import Migrator
    from outbox.revisions import Phase, Revision, Settings
    from outbox.table_names import Names

_F = TypeVar("_F", bound=Callable[..., Any])
_APPLICATION: Final = "cdc-migrate"


_database_options: Final = of_outbox(
    "TAILRACE_MIGRATE_DSN", "DSN of the role that owns the tables  [default: source.dsn]."
)


def _deployment_options(command: _F) -> _F:
    """Add the options that select what is deployed."""
    for option in (
        click.option(
            "--publication", default="", help="Add outbox and heartbeat to this publication  [default: none]."
        ),
        click.option("--partitioned", is_flag=True, help="Partition the outbox by day."),
        click.option(
            "--phase", type=click.Choice(["pre", "post"]), help="Before or after a deployment  [default: both]."
        ),
    ):
        command = option(command)
    return command


_lock_option: Final = click.option(
    "--lock-timeout",
    "lock_timeout_ms",
    type=click.IntRange(10, 60_000),
    default=2_000,
    show_default=True,
    help="Milliseconds an attempt waits for a lock; writers queue behind it.",
)
_attempts_option: Final = click.option(
    "--attempts",
    type=click.IntRange(1, 10_000),
    default=60,
    show_default=True,
    help="Attempts to get the locks of a migration.",
)


@click.group("migrate")
def group() -> None:
    """Create and upgrade the outbox tables.

    They are outbox, inbox, heartbeat and event store.
    """


@group.command("up")
@_deployment_options
@_lock_option
@_attempts_option
@_database_options
def up_command(
    phase: Phase | None, partitioned: bool, publication: str, lock_timeout_ms: int, attempts: int, dsn: str | None,
    schema: str | None, config_path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Apply the pending migrations, each in its own transaction.

    Safe while applications write. Run it with --phase pre before you deploy the release that needs it, and with
    --phase post when no process of the previous release runs any more. Without --phase everything is applied.
    """
    names = outbox_names(schema, config_path)
    settings = _settings(names, partitioned or None, publication, lock_timeout_ms, attempts)
    with _migrator(dsn, config_path, settings) as migrator:
        applied = migrator.up(phase)
    _print_revisions(applied, "applied", as_json=as_json, nothing="no migration is pending")


@group.command("down")
@click.option("--to", "target", required=True, help="Revision to return to; base: drop all tables.")
@click.option("--with-data", is_flag=True, help="Also drop tables that have rows.")
@click.option("--yes", is_flag=True, help="Revert without asking.")
@_lock_option
@_attempts_option
@_database_options
def down_command(
    target: str, with_data: bool, yes: bool, lock_timeout_ms: int, attempts: int, dsn: str | None, schema: str | None,
    config_path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Revert migrations down to a revision.

    Refuses to drop tables that have rows, unless --with-data is given.
    """
    names = outbox_names(schema, config_path)
    if not output.confirm(f"Revert the migrations of schema {names.schema} down to {target}?", yes=yes):
        raise UsageError("nothing was reverted", hint="answer y, or pass --yes")
    settings = _settings(names, None, "", lock_timeout_ms, attempts)
    with _migrator(dsn, config_path, settings) as migrator:
        undone = migrator.down(target, with_data=with_data)
    _print_revisions(undone, "undone", as_json=as_json, nothing="no migration to revert")


@group.command("status")
@_database_options
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
        output.note(f"the outbox is {'partitioned by day' if state.partitioned else 'not partitioned'}")


@group.command("sql")
@_deployment_options
@click.option("--since", default="base", show_default=True, help="Current revision of the database.")
@schema_option
@config_option
def sql_command(
    phase: Phase | None, partitioned: bool, publication: str, since: str, schema: str | None, config_path: Path | None
) -> None:
    """Print the SQL of `cdc migrate up` for a DBA.

    Connects to no database.
    """
    from outbox.revisions import script

    names = outbox_names(schema, config_path)
    with _translated():
        output.show_script(script(_settings(names, partitioned or None, publication), since=since, phase=phase))


@group.command("check")
@_database_options
def check_command(dsn: str | None, schema: str | None, config_path: Path | None, as_json: bool) -> int:
    """Compare the tables with the models of this release.

    Exit code 1 when they differ.
    """
    names = outbox_names(schema, config_path)
    with _migrator(dsn, config_path, _settings(names)) as migrator:
        found = migrator.check()
    if as_json:
        output.show_json({"schema": names.schema, "differences": found})
    elif not found:
        output.done(f"schema {names.schema} matches the models")
    else:
        for sentence in found:
            output.refused(sentence)
    return EXIT_FAILED if found else EXIT_OK


@group.command("partition")
@_lock_option
@_attempts_option
@_database_options
def partition_command(
    lock_timeout_ms: int, attempts: int, dsn: str | None, schema: str | None, config_path: Path | None, as_json: bool
) -> None:
    """Replace an unpartitioned outbox with one partitioned by day.

    Applications may write meanwhile. No row is copied: existing rows are in the WAL and stay in the old table, which
    gets another name. Drop it when capture has passed its rows.
    """
    names = outbox_names(schema, config_path)
    settings = _settings(names, None, "", lock_timeout_ms, attempts)
    with _migrator(dsn, config_path, settings) as migrator:
        before = migrator.partition()
    if as_json:
        output.show_json({"schema": names.schema, "before": before})
    else:
        output.done(f"{names.schema}.{names.outbox} is partitioned by day; the old table is {names.schema}.{before}")


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
    """Open a migrator on the selected database; its errors become errors of the command line."""
    source = Secret(dsn) if dsn else configuration(config_path).source.dsn
    with _translated():
        from outbox.migrate import Migrator

        with output.waiting("connecting to the database"):
            yield Migrator(lambda: _connect(source), settings)


def _connect(dsn: Secret) -> object:
    """Connect without autocommit, so that each migration is one transaction."""
    from cdc.replication.connect import connect

    connection = connect(dsn, application_name=_APPLICATION)
    connection.autocommit = False
    return connection


@contextmanager
def _translated() -> Iterator[None]:
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
            f"migrations need the package {error.name!r}, which is not installed",
            hint="install the extra",
            command="pip install 'tailrace[capture,outbox]'",
        ) from error


def _print_revisions(revisions: list[Revision], word: str, *, as_json: bool, nothing: str) -> None:
    if as_json:
        output.show_json({word: [_document(one) for one in revisions]})
        return
    for one in revisions:
        output.done(f"{word} {one.id}: {one.title}")
    if not revisions:
        output.done(nothing)


def _document(one: Revision) -> dict[str, object]:
    return {"revision": one.id, "phase": one.phase, "what": one.title}
