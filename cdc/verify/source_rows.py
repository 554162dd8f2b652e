"""Reads rows of a table by key range or by keys, each time in a snapshot that is returned.

A snapshot lasts only for one query, so vacuum is not held up by large tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg import sql

from cdc.lsn import Lsn
from cdc.model.visibility import PgSnapshot, widened
from cdc.replication import catalog_queries
from cdc.replication.connect import Connection
from cdc.replication.table_shape import SourceTable
from cdc.verify.row_json import Row, canonical, row_of
from cdc.verify.source_tables import Shape, rows_of

PAGE_ROWS: Final = 5_000

_BEGIN: Final = "begin isolation level repeatable read, read only; set local row_security = off"
# age() of a normal id counts from the next id to be assigned. It assigns no id itself and needs no right.
_SNAPSHOT: Final = "select pg_catalog.pg_current_snapshot()::text, pg_catalog.age('3'::pg_catalog.xid) + 3::int8"
Keys: TypeAlias = Mapping[bytes, Row]
"""Rows by key in normal form."""


class RowsAtSnapshot(NamedTuple):
    """Rows of some keys, as of a snapshot.

    Attributes:
        lsn: every transaction that the snapshot sees has its commit record below.
        next_xid: every transaction that began before this query has a lower id; 64 bits.
    """

    snapshot: PgSnapshot
    lsn: Lsn
    rows: Keys
    next_xid: int = 0


class KeyedRows:
    """Reads one table. The connection is in autocommit mode and has no other user."""

    def __init__(self, connection: Connection, table: SourceTable, shape: Shape) -> None:
        self._connection = connection
        self._table = table
        self._shape = shape
        self._types = {column.name: column.type_name for column in table.columns}

    def pages(self) -> Iterator[Keys]:
        """Yield all rows by key range. Rows that are written meanwhile may be included or not."""
        after: tuple[str, ...] | None = None
        while True:
            condition = self._above() if after is not None else sql.SQL("true")
            query = sql.SQL("{} order by {} limit {}").format(
                self._select(condition), self._order(), sql.Literal(PAGE_ROWS)
            )
            found = self._rows(query, list(after or ()))
            yield self._by_key(found)
            if len(found) < PAGE_ROWS:
                return
            after = tuple(found[-1][1:])

    def moment(self, keys: Sequence[bytes]) -> RowsAtSnapshot:
        """Return the current rows of these keys; if PostgreSQL cannot read a key's form, reads the whole table."""
        texts = self._texts(keys)
        try:
            self._connection.execute(_BEGIN)
            with catalog_queries.reading("read the WAL position"):
                row = self._connection.execute(_SNAPSHOT).fetchone()
            rows: Keys
            if texts is None:
                wanted = set(keys)
                everything = self._by_key(self._rows(self._select(sql.SQL("true")), []))
                rows = {key: row for key, row in everything.items() if key in wanted}
            else:
                rows = self._by_key(self._rows(self._select(self._among()), [list(one) for one in texts]))
            # After the snapshot, so that everything it sees is below. The insert position, because a commit may not be
            # flushed yet.
            with catalog_queries.reading("read the WAL position"):
                at = self._connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            assert at is not None
            snapshot = PgSnapshot.parse(row[0])
            return RowsAtSnapshot(snapshot, Lsn.parse(at[0]), rows, widened(row[1], snapshot.xmax))
        finally:
            if not self._connection.closed:
                self._connection.execute("rollback")

    def _select(self, condition: sql.Composable) -> sql.Composed:
        shape = self._shape
        where = sql.SQL("({}) and ({})").format(sql.SQL(shape.where or "true"), condition)
        return sql.SQL("select (select pg_catalog.to_{}(r.*)::text from (select {}) r), {} from {} where {}").format(
            shape.whole,
            shape.shown,
            sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in self._table.key),
            rows_of(self._table),
            where,
        )

    def _key_columns(self) -> sql.Composed:
        return sql.SQL(", ").join(map(sql.Identifier, self._table.key))

    def _order(self) -> sql.Composable:
        """Order by the key columns. A bare name would mean the column of the result, which has the key as text."""
        place = (self._table.namespace, self._table.name)
        return sql.SQL(", ").join(sql.Identifier(*place, name) for name in self._table.key)

    def _above(self) -> sql.Composed:
        """Return the condition for keys greater than the one in the parameters."""
        marks = (
            sql.SQL("${}::{}").format(sql.SQL(str(at)), sql.SQL(self._types[name]))
            for at, name in enumerate(self._table.key, 1)
        )
        return sql.SQL("({}) > ({})").format(self._key_columns(), sql.SQL(", ").join(marks))

    def _among(self) -> sql.Composed:
        """Return the condition for the keys in the parameters, one array per key column."""
        arrays = (sql.SQL("${}::text[]").format(sql.SQL(str(at + 1))) for at, _ in enumerate(self._table.key))
        casts = (
            sql.SQL("k.c{}::{}").format(sql.SQL(str(at)), sql.SQL(self._types[name]))
            for at, name in enumerate(self._table.key)
        )
        names = (sql.SQL("c{}").format(sql.SQL(str(at))) for at, _ in enumerate(self._table.key))
        return sql.SQL("({}) in (select {} from unnest({}) as k({}))").format(
            self._key_columns(), sql.SQL(", ").join(casts), sql.SQL(", ").join(arrays), sql.SQL(", ").join(names)
        )

    def _rows(self, query: sql.Composed, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        # Raw parameters ($1): names and filters may contain `%`.
        with catalog_queries.reading(f"read {self._table.table}"), psycopg.RawCursor(self._connection) as cursor:
            cursor.execute(query.as_bytes(self._connection), list(parameters))
            return cursor.fetchall()

    def _by_key(self, found: Sequence[tuple[Any, ...]]) -> Keys:
        rows = [self._shape.row(text) for text, *_ in found]
        return {canonical({column: row[column] for column in self._table.key}): row for row in rows}

    def _texts(self, keys: Sequence[bytes]) -> list[tuple[str, ...]] | None:
        """Return the key values as PostgreSQL reads them, column by column; None if it cannot read one."""
        if self._shape.formed.intersection(self._table.key):
            return None
        found: list[list[str]] = []
        for key in keys:
            values = row_of(key)
            texts = [_text(values.get(column)) for column in self._table.key]
            if None in texts:
                return None
            found.append([text for text in texts if text is not None])
        return list(zip(*found, strict=True))


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | Decimal):
        return str(value)
    return None
