"""Creates, upgrades, downgrades and checks the tables of the outbox with Alembic.

Independent of the service: the caller supplies connections. Each migration is one transaction. It waits at most
`Settings.lock_timeout_ms` for a lock, because writers queue behind it; then it gives up, lets them pass, and tries
again.

`up` runs these steps:

1. Take the advisory lock of the schema, so that two deployments never run at once.
2. Create the schema if it is missing. If it exists, the role needs no right on the database.
3. Refuse tables that no migration created, and a history of an unknown release.
4. Apply the pending migrations, one transaction each; retry while a lock is not available.
5. Create partitions in advance, and add outbox and heartbeat to the publication if requested.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, TypeVar

import tenacity
from alembic import command
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from outbox import table_partitions
from outbox.errors import MigrationRefused
from outbox.revisions import VERSION_TABLE, Phase, Revision, Settings, above, config_of, due, revisions, script
from outbox.table_names import quoted

_T = TypeVar("_T")

_PAUSE_S: Final = 1.0  # between attempts, so that the writers that queued behind the lock can finish
_ADVISORY: Final = 0x7461696C  # "tail": the first key of the advisory locks; the second is the hash of the schema
_LOCK_NOT_AVAILABLE: Final = "55P03"
_TRIED_AGAIN: Final = frozenset({_LOCK_NOT_AVAILABLE, "40P01", "40001"})
_NO_RIGHT: Final = "42501"


@dataclass(frozen=True, slots=True)
class State:
    """The migration state of a database.

    Attributes:
        current: the newest applied revision; empty if there is none.
        applied, pending: revisions in the order in which they are applied.
        partitioned: whether the outbox is partitioned; None if there is no outbox.
    """

    current: str
    applied: tuple[Revision, ...]
    pending: tuple[Revision, ...]
    partitioned: bool | None


class Migrator:
    """Migrates one schema of one database. Not thread-safe; each call opens its own connection."""

    def __init__(
        self,
        connect: Callable[[], Any],
        settings: Settings | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`connect` returns a new psycopg connection; `sleep` waits between attempts."""
        self._settings = settings or Settings()
        self._engine = create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)
        self._sleep = sleep
        self._now = now

    def state(self) -> State:
        """Return the state of the database. Raises MigrationRefused if this release does not know its revision."""
        with self._session() as connection:
            return self._state(connection)

    def up(self, phase: Phase | None = None) -> list[Revision]:
        """Apply the migrations that are due; return them.

        Raises MigrationRefused; migrations that were applied before the error stay applied.
        """
        with self._session() as connection, self._alone(connection):
            self._make_schema(connection)
            state = self._state(connection)
            self._refuse_unknown_tables(connection, state)
            applied = due(list(state.pending), phase)
            for one in applied:
                self._with_retries(connection, partial(self._run, connection, "upgrade", one.id))
            if self._is_partitioned(connection):
                self._make_partitions(connection)
            if self._settings.publication:
                self._publish(connection)
            return applied

    def down(self, target: str, *, with_data: bool = False) -> list[Revision]:
        """Undo the migrations above revision `target` (``base``: all of them); return them, newest first.

        Raises MigrationRefused if a table that would be dropped has rows, unless `with_data`.
        """
        with self._session() as connection, self._alone(connection):
            state = self._state(connection)
            undone = above(state.applied, target)
            if not with_data:
                self._refuse_rows(connection, undone)
            known = ["base", *(one.id for one in state.applied)]
            for one in undone:
                below = known[known.index(one.id) - 1]
                self._with_retries(connection, partial(self._run, connection, "downgrade", below))
            if not above(self._state(connection).applied, "base"):
                self._drop_version_table(connection)
            return undone

    def check(self) -> list[str]:
        """Return the differences between the database and the models; empty if there are none. Raises as `state`."""
        from outbox.migrate_check import differences

        with self._session() as connection:
            state = self._state(connection)
            pending = [f"migration {one.id} is pending: {one.title}" for one in state.pending]
            if pending:
                return pending
            return differences(connection, self._settings.names, partitioned=bool(state.partitioned))

    def sql(self, *, since: str = "base", phase: Phase | None = None) -> str:
        """Return the SQL of `up` for a database at revision `since`, without connecting to one."""
        return script(self._settings, since=since, phase=phase)

    def partition(self) -> str:
        """Replace the outbox with a partitioned one while applications write.

        Returns the new name of the old table, which keeps its rows. Raises MigrationRefused.
        """
        from outbox.repartition import prepare, swap

        names = self._settings.names
        with self._session() as connection, self._alone(connection):
            if self._state(connection).partitioned is not False:
                raise MigrationRefused(
                    f"{names.schema}.{names.outbox} does not exist, or is already partitioned",
                    hint="see `cdc migrate status`",
                )
            days = table_partitions.days_ahead(self._now().astimezone(UTC).date())
            self._with_retries(connection, partial(prepare, connection, names, days))
            return self._with_retries(connection, partial(swap, connection, names))

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
        """Hold the advisory lock of the schema. It belongs to the session, because each migration is a transaction."""
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
                hint="wait for it; find its session with: select pid from pg_locks where locktype = 'advisory'",
            ) from None
        try:
            yield
        finally:
            connection.rollback()
            connection.execute(text("select pg_advisory_unlock(:class, hashtext(:schema))"), key)
            connection.commit()

    def _with_retries(self, connection: Connection, call: Callable[[], _T]) -> _T:
        """Run `call`, and again while a lock is not available."""

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
                f"could not lock the outbox's tables in {self._settings.attempts} attempts of "
                f"{self._settings.lock_timeout_ms} ms",
                hint="find the long transaction on these tables in pg_stat_activity, then run the same command again; "
                "applied migrations stay applied",
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
                f"the schema is at the unknown revision {current}; the newest of this release is {ids[-1]}",
                hint="a newer release has migrated the schema; use that release",
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

    def _refuse_unknown_tables(self, connection: Connection, state: State) -> None:
        names, wanted = self._settings.names, self._settings.partitioned
        if state.partitioned is False and wanted and state.applied:
            raise MigrationRefused(
                f"{names.schema}.{names.outbox} exists and is not partitioned",
                hint="replace it without stopping writers: `cdc migrate partition`",
            )
        foreign = [name for name in names.tables if not state.applied and _has_table(connection, names.schema, name)]
        connection.rollback()
        if foreign:
            raise MigrationRefused(
                f"schema {names.schema} contains {', '.join(foreign)}, which no migration created",
                hint="use another schema (--schema), or configure your own outbox table in [outbox]",
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
                    f"{names.schema}.{name} has rows and would be dropped",
                    hint="nothing was undone; to drop it with its rows, pass --with-data",
                )
        connection.rollback()

    def _make_partitions(self, connection: Connection) -> None:
        names = self._settings.names
        for day in table_partitions.days_ahead(self._now().astimezone(UTC).date()):
            statement = table_partitions.create_day(names.schema, names.outbox, day)
            self._with_retries(connection, partial(_execute, connection, statement))

    def _publish(self, connection: Connection) -> None:
        """Add outbox and heartbeat to the publication if they are not in it."""
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
                f"publication {publication!r} not found",
                hint="`cdc run` creates its own: omit --publication and list the table in source.tables",
            )
        for name in (names.outbox, names.heartbeat):
            if name not in there:
                statement = f"alter publication {quoted(publication)} add table {names.qualified(name)}"
                self._with_retries(connection, partial(_execute, connection, statement))

    def _drop_version_table(self, connection: Connection) -> None:
        """Drop the version table when nothing is deployed any more. Keep the schema, which a DBA may have created."""
        _execute(connection, f"drop table if exists {self._settings.names.qualified(VERSION_TABLE)}")


class _Busy(Exception):
    """Another session holds the advisory lock."""


class _Locked(Exception):
    """A lock was not available in time."""


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
    """Escape a statement for SQLAlchemy's `text`, which would read a colon as a parameter."""
    return statement.replace("\\", "\\\\").replace(":", "\\:")


def _sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", "") or "")


def _refusal(error: DBAPIError, settings: Settings) -> Exception:
    """Convert an error of PostgreSQL, without its statement and parameters."""
    state = _sqlstate(error)
    if state == _NO_RIGHT:
        return MigrationRefused(
            "permission denied: the role must own the schema and the tables in it",
            hint=f"as a superuser: create schema {quoted(settings.names.schema)} authorization ROLE; or print the SQL "
            "for a DBA with `cdc migrate sql`; only the owner of a publication can change it",
        )
    if error.connection_invalidated or state.startswith(("08", "57P")) or not state:
        return MigrationRefused(
            "the connection to PostgreSQL broke", hint="run the same command again: each migration is one transaction"
        )
    reason = str(getattr(getattr(error.orig, "diag", None), "message_primary", "") or type(error.orig).__name__)
    return MigrationRefused(f"PostgreSQL refused a migration ({state}): {reason}", hint="it was rolled back")
