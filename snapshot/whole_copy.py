"""Reads tables without a key, whole and in one snapshot; see `snapshot.keyless_rule` for why.

The tables are locked (ACCESS SHARE) before the snapshot is taken, as `snapshot.table_reader` does, and stay so until
they are read: no rewrite, TRUNCATE or other DDL comes in between. The snapshot lives as long, and holds up vacuum.
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
_PART_ROWS: Final = 2000  # handed on at once, as a slice of capture
_PART_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class SharedSnapshot:
    """What the tables were like when they were copied.

    Attributes:
        text: `snapshot` as PostgreSQL prints it.
        inserted: the end of the WAL right after it.
        at_us: when that was by the server's clock, since 1970.
        forms: by table; those that are not published are missing.
    """

    text: str
    inserted: Lsn
    at_us: int
    forms: Mapping[str, Form]

    @property
    def snapshot(self) -> PgSnapshot:
        """The snapshot of all of them."""
        return PgSnapshot.parse(self.text)


@contextlib.contextmanager
def shared_snapshot(
    connection: Connection, publication: str, tables: Sequence[SourceTable], started: str, seconds: float
) -> Iterator[SharedSnapshot]:
    """Lock the tables and hold a snapshot of them for the time of the block, so many `seconds` at most.

    `started` is the run of the server that the stream comes from.

    Raises:
        snapshot.table_reader.ReadLater: a lock is in the way.
        SourceRefused: the role may not read all rows.
        SourceUnreachable: no answer in time, or from another run of the server.
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
            raise table_reader.ReadLater(table_reader.said(error)) from error
        raise translate(error, _DOING) from error


def lines(connection: Connection, form: Form, order: Sequence[str] = ()) -> Iterator[list[bytes]]:
    """Lines of COPY of a table, by the columns of `order`, some at a time. Inside of `shared_snapshot`."""
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
    # A later statement than the snapshot, or commits that it sees might lie behind.
    inserted = table_reader.now(connection).inserted.before_header()
    sights = table_reader.table_layouts(connection, publication, tables)
    return SharedSnapshot(text, inserted, at_us, {name: sight.form for name, sight in sights.items()})
