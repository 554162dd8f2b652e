"""Prunes the outbox: deletes rows, or drops partitions, whose events are in Kafka.

The order of the steps matters: first the snapshot S, then the end of the WAL, then the wait. Every row in S was
committed below the end of the WAL that is read after S. When everything below that position is in Kafka, so are the
events of these rows, and the transaction deletes them. A row that is committed in between is not in S.

The wait is for the position that capture may acknowledge, not for the position in Kafka: if the publication is dropped,
PostgreSQL 18 advances the stream without sending rows.

A partition is detached first, so that no transaction writes to it any more. It is dropped when Kafka has everything
below the end of the WAL.

Capture ignores deletes of outbox rows (`outbox.router`). An advisory lock keeps two pruners from working at once.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from psycopg import sql

from cdc.clock import Clock
from cdc.config.outbox_settings import Outbox
from cdc.errors import SourceRefused
from cdc.lsn import Lsn
from cdc.replication.catalog_queries import current_wal
from cdc.replication.connect import Connection, deadline
from cdc.replication.error_mapping import translate
from outbox import table_partitions
from outbox.row_form import column_of

_LOCK: Final = 0x7461696C6F757462  # "tailoutb"; combined with the table's oid, the key of the advisory lock
_LOCK_TIMEOUT: Final = "200ms"  # for DDL, because writers queue behind it
_STATEMENT_TIMEOUT: Final = "30s"
_AWAIT_S: Final = 5.0  # the snapshot that is held meanwhile delays vacuum
_POLL_S: Final = 0.02
# One wait can take as long as `capture.catalog_check_s`. With one statement per wait, the pruner deleted 2,300 rows/s
# while applications wrote 5,000 (2026-11-23).
_STATEMENTS_MAX: Final = 10
_ANSWER_S: Final = 60.0
_VACUUM_ROWS: Final = 50_000  # deleted rows between two vacuums; they leave a few thousand pages
_MARK: Final = "tailrace: to be dropped when Kafka has its events"
_BOUND: Final = re.compile(r"TO \('([^']+)'\)")

# In a partitioned table rows of several partitions share a ctid, so the condition is repeated for the outer query.
_DELETE: Final = "delete from {0} where ctid = any(array(select ctid from {0} where {1} limit {2})) and {1}"
_COLUMNS: Final = """
select array_agg(a.attname::text order by a.attnum) from pg_catalog.pg_attribute a
where a.attrelid = %(oid)s::oid and a.attnum > 0 and not a.attisdropped
"""
_PARTS: Final = """
select n.nspname, c.relname, pg_catalog.pg_get_expr(c.relpartbound, c.oid)
from pg_catalog.pg_inherits i
join pg_catalog.pg_class c on c.oid = i.inhrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where i.inhparent = %(oid)s::oid and c.relkind = 'r'
order by 1, 2
"""
_DETACHED: Final = """
select n.nspname, c.relname
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(namespace)s and not c.relispartition and c.relkind = 'r'
  and pg_catalog.obj_description(c.oid, 'pg_class') = %(mark)s
order by 2
"""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of one turn: deleted rows, dropped partitions, and whether more can be deleted at once."""

    rows: int = 0
    partitions: int = 0
    more: bool = False


class Pruner:
    """Prunes one outbox on an autocommit connection that the caller opens and closes. For one thread."""

    def __init__(
        self,
        settings: Outbox,
        oid: int,
        durable: Callable[[], Lsn],
        clock: Clock,
        stop: threading.Event,
        *,
        partitioned: bool,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`oid` and `partitioned` describe the table; every commit below `durable()` is known to be in Kafka."""
        self._settings = settings
        self._oid = oid
        self._durable = durable
        self._clock = clock
        self._stop = stop
        self._now = now
        self._since_vacuum = 0
        namespace, _, name = settings.table.partition(".")
        self._namespace, self._name = namespace, name
        self._table = sql.Identifier(namespace, name)
        # A table that inherits from the outbox is not published with it, so its rows must not be deleted.
        self._rows = sql.SQL("{}{}").format(sql.SQL("" if partitioned else "only "), self._table)

    def turn(self, connection: Connection) -> Pruned:
        """Prune a bounded number of rows or partitions. Raises SourceRefused, SourceUnreachable."""
        doing = f"prune the outbox {self._settings.table}"
        try:
            with deadline(connection, _ANSWER_S):
                if not self._held(connection):
                    return Pruned()
                if self._settings.prune == "drop":
                    return self._drop(connection)
                pruned = self._delete(connection)
            if self._since_vacuum >= _VACUUM_ROWS:
                self._vacuum(connection)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.SerializationFailure):
            return Pruned()  # a lock or a concurrent delete is in the way; the next turn retries
        except psycopg.Error as error:
            hint, command = "", ""
            if error.sqlstate == "42501":
                role = connection.info.user
                hint = "pruning needs the right to write to the outbox"
                right = "delete on" if self._settings.prune == "delete" else "all on"
                command = f"grant {right} {self._table.as_string(None)} to {sql.Identifier(role).as_string(None)};"
            raise translate(error, doing, hint=hint, command=command) from error
        return pruned

    def _held(self, connection: Connection) -> bool:
        """Take the advisory lock, or return False if another session has it. It is released with the session."""
        connection.execute(f"set lock_timeout = '{_LOCK_TIMEOUT}'".encode())
        connection.execute(f"set statement_timeout = '{_STATEMENT_TIMEOUT}'".encode())
        row = connection.execute(
            "select exists (select from pg_catalog.pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
            " and granted) or pg_catalog.pg_try_advisory_lock(%s)",
            (_LOCK ^ self._oid,),
        ).fetchone()
        return row is not None and bool(row[0])

    def _delete(self, connection: Connection) -> Pruned:
        """Delete a batch of rows that are old enough and whose events are in Kafka."""
        where = self._old(connection)
        connection.execute(b"begin isolation level repeatable read")
        try:
            found = connection.execute(
                sql.SQL("select 1 from {} where {} limit 1").format(self._rows, where), self._names()
            ).fetchone()
            if found is None or not self._await(current_wal(connection)):
                return Pruned()
            statement = sql.SQL(_DELETE).format(self._rows, where, sql.Literal(self._settings.prune_rows))
            rows = 0
            for _ in range(_STATEMENTS_MAX):
                count = connection.execute(statement, self._names()).rowcount
                rows += count
                if count < self._settings.prune_rows:
                    break
            connection.execute(b"commit")
        finally:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.execute(b"rollback")
        self._since_vacuum += rows
        return Pruned(rows=rows, more=rows >= self._settings.prune_rows * _STATEMENTS_MAX)

    def _names(self) -> dict[str, Any]:
        return {"keep_s": self._settings.keep_s}

    def _old(self, connection: Connection) -> sql.Composable:
        """Return the condition for rows that are older than `keep_s`."""
        row = connection.execute(_COLUMNS, {"oid": self._oid}).fetchone()
        column = column_of(row[0] or [], self._settings.columns, "created_at") if row is not None else None
        if column is not None:
            return sql.SQL("{} <= clock_timestamp() - make_interval(secs => %(keep_s)s)").format(sql.Identifier(column))
        if self._settings.keep_s:
            raise SourceRefused(
                f"cannot apply keep_s: the outbox {self._settings.table} has no column with the time of writing",
                hint="name the column with columns = {created_at = …}, or delete rows as soon as Kafka has them",
                command="[outbox] keep_s = 0",
                table=self._settings.table,
            )
        return sql.SQL("true")

    def _await(self, lsn: Lsn) -> bool:
        """Wait until everything below `lsn` is in Kafka; return False after `_AWAIT_S` or when stopped."""
        until_s = self._clock.monotonic_s() + _AWAIT_S
        while self._durable() < lsn.before_header():
            if self._clock.monotonic_s() > until_s or self._clock.wait(self._stop, _POLL_S):
                return False
        return True

    def _vacuum(self, connection: Connection) -> None:
        """Free the space of deleted rows now; until autovacuum runs, the table would keep growing."""
        self._since_vacuum = 0
        with deadline(connection, _ANSWER_S):
            connection.execute(sql.SQL("vacuum (skip_locked, truncate false) {}").format(self._table))

    def _drop(self, connection: Connection) -> Pruned:
        """Create partitions in advance, detach old ones, and drop detached ones whose events are in Kafka."""
        parts = connection.execute(_PARTS, {"oid": self._oid}).fetchall()
        if not parts:
            raise SourceRefused(
                f'[outbox] prune is "drop", but the outbox {self._settings.table} has no partitions',
                hint="delete rows instead, or partition the outbox with `cdc migrate partition`",
                command='[outbox] prune = "delete"',
                table=self._settings.table,
            )
        daily = [name for _, name, _ in parts if table_partitions.day_of(self._name, name) is not None]
        if daily:
            self._make_ahead(connection, {name for _, name, _ in parts})
        for namespace, name, bound in parts:
            match = _BOUND.search(bound or "")
            if match is not None and self._is_old(connection, match[1]):
                self._detach(connection, sql.Identifier(namespace, name))
        return self._drop_detached(connection)

    def _make_ahead(self, connection: Connection, there: set[str]) -> None:
        for day in table_partitions.days_ahead(self._now().date(), self._settings.partitions_ahead):
            if table_partitions.partition_name(self._name, day) not in there:
                connection.execute(table_partitions.create_day(self._namespace, self._name, day).encode())

    def _is_old(self, connection: Connection, bound: str) -> bool:
        row = connection.execute(
            "select %(bound)s::timestamptz <= clock_timestamp() - make_interval(secs => %(keep_s)s)",
            {"bound": bound, "keep_s": self._settings.keep_s},
        ).fetchone()
        return row is not None and bool(row[0])

    def _detach(self, connection: Connection, part: sql.Identifier) -> None:
        """Detach a partition, and mark it in its comment so that it is also dropped after a crash."""
        with connection.transaction():
            connection.execute(sql.SQL("alter table {} detach partition {}").format(self._table, part))
            connection.execute(sql.SQL("comment on table {} is {}").format(part, sql.Literal(_MARK)))

    def _drop_detached(self, connection: Connection) -> Pruned:
        names = {"namespace": self._namespace, "mark": _MARK}
        detached = connection.execute(_DETACHED, names).fetchall()
        if not detached or not self._await(current_wal(connection)):
            return Pruned()
        for namespace, name in detached:
            connection.execute(sql.SQL("drop table {}").format(sql.Identifier(namespace, name)))
        return Pruned(partitions=len(detached))
