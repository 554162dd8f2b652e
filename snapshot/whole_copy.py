"""Reads tables without a key as a whole, in one snapshot; `snapshot.keyless_rule` says why.

The tables are locked (ACCESS SHARE) before the snapshot is taken, and stay locked until they are read, so that no
rewrite, TRUNCATE or other DDL comes in between. The snapshot delays vacuum for the same time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from cdc.lsn import Lsn
from cdc.model.visibility import PgSnapshot
from cdc.replication.connect import LOCK_TIMEOUT, Connection, deadline
from cdc.replication.error_mapping import translate
from cdc.replication.table_shape import SourceTable
from snapshot import table_reader
from snapshot.chunk import Form

_DOING: Final = "copy a table without a key"
_BEGIN: Final = (
    "begin isolation level repeatable read, read only; set local row_security = off; set local statement_timeout = 0;"
    f" set local lock_timeout = '{LOCK_TIMEOUT}'"
)
_MOMENT: Final = """
select pg_current_snapshot()::text, pg_postmaster_start_time()::text, (extract(epoch from now()) * 1000000)::int8
"""
_PART_ROWS: Final = 2000  # yielded at once; the size of a slice of capture
_PART_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class SharedSnapshot:
    """A snapshot of several tables.

    Attributes:
        text: the snapshot as PostgreSQL prints it.
        inserted: the end of the WAL right after it.
        at_us: its time by the server's clock, in microseconds since 1970.
        forms: what is read of each published table.
    """

    text: str
    inserted: Lsn
    at_us: int
    forms: Mapping[str, Form]

    @property
    def snapshot(self) -> PgSnapshot:
        """Return the parsed snapshot."""
        return PgSnapshot.parse(self.text)


@contextlib.contextmanager
def shared_snapshot(
    connection: Connection, publication: str, tables: Sequence[SourceTable], started: str, seconds: float
) -> Iterator[SharedSnapshot]:
    """Lock the tables and hold a snapshot of them during the block, for at most `seconds`.

    `started` is the run of the server that the stream comes from.

    Raises:
        snapshot.table_reader.ReadLater: a lock is in the way.
        SourceRefused: the role may not read all rows.
        SourceUnreachable: no answer in time, or the server was restarted.
    """
    try:
        with deadline(connection, seconds):
            connection.execute(_BEGIN)
            try:
                yield _begun(connection, publication, tables, started)
            finally:
                with contextlib.suppress(psycopg.Error):
                    connection.execute("rollback")
    except psycopg.Error as error:
        if error.sqlstate in table_reader.AGAIN:
            raise table_reader.ReadLater(table_reader.server_message(error)) from error
        raise translate(error, _DOING) from error


def lines(connection: Connection, form: Form, order: Sequence[str] = ()) -> Iterator[list[bytes]]:
    """Yield the COPY lines of a table in batches, ordered by `order`. Call inside `shared_snapshot`."""
    relation = form.relation
    place = table_reader.place(relation.namespace, relation.name, partitioned=form.partitioned)
    query = table_reader.copying(connection, form, place, order=order)
    part: list[bytes] = []
    size = 0
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for line in copy:
            part.append(bytes(line))
            size += len(line)
            if len(part) >= _PART_ROWS or size >= _PART_BYTES:
                yield part
                part, size = [], 0
    if part:
        yield part


def _begun(connection: Connection, publication: str, tables: Sequence[SourceTable], started: str) -> SharedSnapshot:
    for table in tables:
        place = table_reader.place(table.namespace, table.name, partitioned=table.partitioned)
        connection.execute(sql.SQL("lock table {} in access share mode").format(place))
    row = connection.execute(_MOMENT).fetchone()
    assert row is not None
    text, running, at_us = row
    table_reader.check_same_run(running, started)
    # Read the end of the WAL after the snapshot. Otherwise commits that the snapshot sees could lie behind it.
    inserted = table_reader.now(connection).inserted.before_header()
    sights = table_reader.table_layouts(connection, publication, tables)
    return SharedSnapshot(text, inserted, at_us, {name: sight.form for name, sight in sights.items()})
