"""Deploys the tables with Alembic: up, down, what is pending, the SQL of it, and whether the models agree.

Knows nothing of the service: connections come from whoever calls. One migration is one transaction, and its locks are
waited for only as long as `Settings.lock_timeout_ms`: whoever writes meanwhile waits that long at most behind us, then
goes on, and we try again later.

`up` is:

1. take the advisory lock of the schema, so that two deployments do not run at once,
2. make the schema unless it is there: a role that owns its schema needs no right on the database,
3. refuse tables that no migration made, and a history of another release,
4. apply what is pending, one transaction each, tried again while a lock is not to be had,
5. make partitions ahead, and add outbox and heartbeat to the publication, where that is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import tenacity
from alembic import command
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from outbox import table_partitions
from outbox.errors import MigrationRefused
from outbox.revisions import VERSION_TABLE, Phase, Revision, Settings, above, config_of, due, revisions, script
from outbox.table_names import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

_T = TypeVar("_T")

_PAUSE_S: Final = 1.0  # between attempts, so that those who queued up behind us are through
_ADVISORY: Final = 0x7461696C  # "tail": the class of our advisory locks; the other half is the schema's hash
_LOCK_NOT_AVAILABLE: Final = "55P03"
_TRIED_AGAIN: Final = frozenset({_LOCK_NOT_AVAILABLE, "40P01", "40001"})
_NO_RIGHT: Final = "42501"


@dataclass(frozen=True, slots=True)
class State:
    """How far a database is.

    Attributes:
        current: the newest revision that is applied; empty: none.
        applied, pending: in the order in which they are applied.
        partitioned: None where there is no outbox.
    """

    current: str
    applied: tuple[Revision, ...]
    pending: tuple[Revision, ...]
    partitioned: bool | None


class Migrator:
    """Migrates one schema of one database. Not thread-safe; each call has a connection of its own."""

    def __init__(
        self,
        connect: Callable[[], Any],
        settings: Settings | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`connect` makes a psycopg connection; `sleep` waits between attempts."""
        self._settings = settings or Settings()
        self._engine = create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)
        self._sleep = sleep
        self._now = now

    def state(self) -> State:
        """How far the database is. Raises MigrationRefused for a history this release does not know."""
        with self._session() as connection:
            return self._state(connection)

    def up(self, phase: Phase | None = None) -> list[Revision]:
        """Apply what is due; returns it. Raises MigrationRefused; what is applied by then stays."""
        with self._session() as connection, self._alone(connection):
            self._make_schema(connection)
            state = self._state(connection)
            self._refuse_foreign(connection, state)
            applied = due(list(state.pending), phase)
            for one in applied:
                self._patiently(connection, partial(self._run, connection, "upgrade", one.id))
            if self._is_partitioned(connection):
                self._make_partitions(connection)
            if self._settings.publication:
                self._publish(connection)
            return applied

    def down(self, target: str, *, with_data: bool = False) -> list[Revision]:
        """Undo everything above revision `target` (``base``: all of it); returns it, newest first.

        Raises MigrationRefused when a table that would be dropped has rows, unless `with_data`.
        """
        with self._session() as connection, self._alone(connection):
            state = self._state(connection)
            undone = above(state.applied, target)
            if not with_data:
                self._refuse_rows(connection, undone)
            known = ["base", *(one.id for one in state.applied)]
            for one in undone:
                below = known[known.index(one.id) - 1]
                self._patiently(connection, partial(self._run, connection, "downgrade", below))
            if not above(self._state(connection).applied, "base"):
                self._forget(connection)
            return undone

    def check(self) -> list[str]:
        """In what the migrated schema differs from the models; empty: in nothing. Raises as `state`."""
        from outbox.migrate_check import differences

        with self._session() as connection:
            state = self._state(connection)
            pending = [f"migration {one.id} is pending: {one.title}" for one in state.pending]
            if pending:
                return pending
            return differences(connection, self._settings.names, partitioned=bool(state.partitioned))

    def sql(self, *, since: str = "base", phase: Phase | None = None) -> str:
        """The statements of `up` for a database at revision `since`. Asks no database."""
        return script(self._settings, since=since, phase=phase)

    def partition(self) -> str:
        """Turn an outbox that is not partitioned into one that is, while applications write.

        Returns the name under which the table of before stays, with its rows. Raises MigrationRefused.
        """
        from outbox.repartition import prepare, swap

        names = self._settings.names
        with self._session() as connection, self._alone(connection):
            if self._state(connection).partitioned is not False:
                raise MigrationRefused(
                    f"{names.schema}.{names.outbox} is not there, or partitioned already", hint="cdc migrate status"
                )
            days = table_partitions.days_ahead(self._now().astimezone(UTC).date())
            self._patiently(connection, partial(prepare, connection, names, days))
            return self._patiently(connection, partial(swap, connection, names))

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            try:
                connection.execute(text(f"set lock_timeout = {int(self._settings.lock_timeout_ms)}"))
                connection.commit()
                yield connection
            except DBAPIError as error:
                connection.rollback()
                raise _refusal(error, self._settings) from error

    @contextmanager
    def _alone(self, connection: Connection) -> Iterator[None]:
        """Hold the advisory lock of the schema, for the session: migrations have transactions of their own."""
        key = {"class": _ADVISORY, "schema": self._settings.names.schema}
        take = text("select pg_try_advisory_lock(:class, hashtext(:schema))")

        def attempt() -> None:
            if not connection.execute(take, key).scalar():
                raise _Busy
            connection.commit()

        try:
            self._retrying(_Busy)(attempt)
        except _Busy:
            raise MigrationRefused(
                "another migration of this schema is running",
                hint="wait for it; select pid from pg_locks where locktype = 'advisory' names its session",
            ) from None
        try:
            yield
        finally:
            connection.rollback()
            connection.execute(text("select pg_advisory_unlock(:class, hashtext(:schema))"), key)
            connection.commit()

    def _patiently(self, connection: Connection, call: Callable[[], _T]) -> _T:
        """Run something that takes locks, again while they are not to be had."""

        def attempt() -> _T:
            try:
                return call()
            except DBAPIError as error:
                connection.rollback()
                if _sqlstate(error) in _TRIED_AGAIN:
                    raise _Locked from error
                raise

        try:
            return self._retrying(_Locked)(attempt)
        except _Locked as error:
            raise MigrationRefused(
                f"a lock was not to be had in {self._settings.attempts} attempts of "
                f"{self._settings.lock_timeout_ms} ms",
                hint="a transaction holds one of the outbox's tables for long: pg_stat_activity has it; what was "
                "applied stays, and the same command goes on from there",
            ) from error

    def _retrying(self, kind: type[Exception]) -> tenacity.Retrying:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(kind),
            stop=tenacity.stop_after_attempt(self._settings.attempts),
            wait=tenacity.wait_random(0, 2 * _PAUSE_S),
            reraise=True,
            sleep=self._sleep,
        )

    def _run(self, connection: Connection, which: Literal["upgrade", "downgrade"], target: str) -> None:
        config = config_of(self._settings)
        config.attributes["connection"] = connection
        (command.upgrade if which == "upgrade" else command.downgrade)(config, target)
        connection.commit()

    def _state(self, connection: Connection) -> State:
        names, known = self._settings.names, revisions()
        current = ""
        if _has_table(connection, names.schema, VERSION_TABLE):
            statement = f"select version_num from {_colons(names.qualified(VERSION_TABLE))}"  # noqa: S608 - quoted
            found = connection.execute(text(statement)).scalar()
            current = str(found) if found else ""
        ids = [one.id for one in known]
        if current and current not in ids:
            raise MigrationRefused(
                f"the schema is at revision {current}, which this release does not know; its newest is {ids[-1]}",
                hint="a newer release has migrated it: use that one",
            )
        count = ids.index(current) + 1 if current else 0
        partitioned = self._is_partitioned(connection)
        connection.rollback()
        return State(current, tuple(known[:count]), tuple(known[count:]), partitioned)

    def _is_partitioned(self, connection: Connection) -> bool | None:
        names = self._settings.names
        kind = connection.execute(
            text(
                "select c.relkind = 'p' from pg_catalog.pg_class c join pg_catalog.pg_namespace n "
                "on n.oid = c.relnamespace where n.nspname = :schema and c.relname = :name and c.relkind in ('r', 'p')"
            ),
            {"schema": names.schema, "name": names.outbox},
        ).scalar()
        return None if kind is None else bool(kind)

    def _make_schema(self, connection: Connection) -> None:
        schema = self._settings.names.schema
        there = connection.execute(
            text("select 1 from pg_catalog.pg_namespace where nspname = :schema"), {"schema": schema}
        ).scalar()
        if there is None:
            connection.execute(text(f"create schema {_colons(quoted(schema))}"))
        connection.commit()

    def _refuse_foreign(self, connection: Connection, state: State) -> None:
        names, wanted = self._settings.names, self._settings.partitioned
        if state.partitioned is False and wanted and state.applied:
            raise MigrationRefused(
                f"{names.schema}.{names.outbox} is there and not partitioned",
                hint="`cdc migrate partition` turns it into a partitioned one without stopping writers",
            )
        foreign = [name for name in names.tables if not state.applied and _has_table(connection, names.schema, name)]
        connection.rollback()
        if foreign:
            raise MigrationRefused(
                f"schema {names.schema} has {', '.join(foreign)}, which no migration made",
                hint="use another schema (--schema), or name an outbox of your own in [outbox] of the configuration",
            )

    def _refuse_rows(self, connection: Connection, undone: list[Revision]) -> None:
        names = self._settings.names
        for key in (key for one in undone for key in one.drops):
            name = getattr(names, key)
            if not _has_table(connection, names.schema, name):
                continue
            statement = f"select 1 from {_colons(names.qualified(name))} limit 1"  # noqa: S608 - quoted
            found = connection.execute(text(statement)).scalar()
            if found is not None:
                raise MigrationRefused(
                    f"{names.schema}.{name} has rows, and would be dropped with them",
                    hint="nothing was undone; --with-data drops it all the same",
                )
        connection.rollback()

    def _make_partitions(self, connection: Connection) -> None:
        names = self._settings.names
        for day in table_partitions.days_ahead(self._now().astimezone(UTC).date()):
            statement = table_partitions.create_day(names.schema, names.outbox, day)
            self._patiently(connection, partial(_execute, connection, statement))

    def _publish(self, connection: Connection) -> None:
        """Add outbox and heartbeat to the publication, unless they are in it."""
        names, publication = self._settings.names, self._settings.publication
        rows = connection.execute(
            text("select tablename from pg_catalog.pg_publication_tables where pubname = :p and schemaname = :s"),
            {"p": publication, "s": names.schema},
        ).scalars()
        there = set(rows)
        exists = connection.execute(
            text("select 1 from pg_catalog.pg_publication where pubname = :p"), {"p": publication}
        ).scalar()
        connection.rollback()
        if exists is None:
            raise MigrationRefused(
                f"there is no publication {publication!r}",
                hint="`cdc run` makes its own; or leave --publication out, and name the table in source.tables",
            )
        for name in (names.outbox, names.heartbeat):
            if name not in there:
                statement = f"alter publication {quoted(publication)} add table {names.qualified(name)}"
                self._patiently(connection, partial(_execute, connection, statement))

    def _forget(self, connection: Connection) -> None:
        """Take the version table away when nothing is deployed any more. The schema stays: it may be the DBA's."""
        _execute(connection, f"drop table if exists {self._settings.names.qualified(VERSION_TABLE)}")


class _Busy(Exception):
    """The advisory lock is somebody else's."""


class _Locked(Exception):
    """A lock was not to be had in time."""


def _has_table(connection: Connection, schema: str, name: str) -> bool:
    return bool(
        connection.execute(
            text(
                "select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
                "where n.nspname = :schema and c.relname = :name"
            ),
            {"schema": schema, "name": name},
        ).scalar()
    )


def _execute(connection: Connection, statement: str) -> None:
    connection.execute(text(_colons(statement)))
    connection.commit()


def _colons(statement: str) -> str:
    """A statement with values and names in it as SQLAlchemy's `text` takes it."""
    return statement.replace("\\", "\\\\").replace(":", "\\:")


def _sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", "") or "")


def _refusal(error: DBAPIError, settings: Settings) -> Exception:
    """What PostgreSQL will not do, without its statement and parameters."""
    state = _sqlstate(error)
    if state == _NO_RIGHT:
        return MigrationRefused(
            "the role may not do this: it must own the schema and the tables in it",
            hint=f"as a superuser: create schema {quoted(settings.names.schema)} authorization ROLE; "
            "`cdc migrate sql` prints every statement for a DBA; a publication is changed by its owner",
        )
    if error.connection_invalidated or state.startswith(("08", "57P")) or not state:
        return MigrationRefused(
            "the connection to PostgreSQL broke", hint="a migration is one transaction: run the same command again"
        )
    reason = str(getattr(getattr(error.orig, "diag", None), "message_primary", "") or type(error.orig).__name__)
    return MigrationRefused(f"PostgreSQL refuses a migration ({state}): {reason}", hint="nothing of it stays")
