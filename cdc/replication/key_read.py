"""Reads columns of rows by key, in one snapshot that sees the given transactions.

One query per table. Tables are found by oid, because the names in the stream may be outdated. Tables are locked (ACCESS
SHARE) before the snapshot is taken: a rewrite that commits in between would make existing rows look gone. A commit is
decoded before it is visible, so a value counts only if the snapshot sees the event's transaction. Values are the bytes
of the output functions, which the stream also has; a cast to text differs for some types.

https://www.postgresql.org/docs/18/transaction-iso.html#XACT-REPEATABLE-READ
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import sql

from cdc.errors import SourceRefused, SourceUnreachable
from cdc.model.relation import Relation
from cdc.model.visibility import PgSnapshot
from cdc.replication.connect import LOCK_TIMEOUT, Connection, deadline
from cdc.replication.error_mapping import translate

_DOING: Final = "read large values that an update did not change"
_BEGIN: Final = (
    "begin isolation level repeatable read, read only; set local row_security = off;"
    f" set local lock_timeout = '{LOCK_TIMEOUT}'; set local statement_timeout = '60s'"
)
# Errors by names, locks and plans that changed between two statements here: the next attempt sees the new state.
_CHANGED: Final = frozenset({"42P01", "42703", "42883", "3F000", "40001", "40P01"})
_LOCKED: Final = "55P03"
_DEADLINE_S: Final = 90.0  # more than the statement_timeout of a query; beyond that the connection is dead

_PLACES: Final = """
select c.oid::int8, n.nspname::text, c.relname::text, c.relkind = 'p', current_user::text,
       has_schema_privilege(n.oid, 'usage'), has_table_privilege(c.oid, 'select'), row_security_active(c.oid)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = any(%(oids)s::oid[])
"""

# A unique index compares by the equality of the type's default B-tree class; citext has its own. format_type with -1
# instead of null gives a bpchar or bit type to which a cast does not truncate to one character.
_COLUMNS: Final = """
select a.attrelid::int8, a.attname::text, a.atttypid::int8, format_type(a.atttypid, -1),
       coalesce(e.namespace, 'pg_catalog'), coalesce(e.name, '=')
from pg_attribute a
join pg_class c on c.oid = a.attrelid
join pg_namespace n on n.oid = c.relnamespace
join pg_type t on t.oid = a.atttypid
left join lateral (
    select s.nspname::text as namespace, o.oprname::text as name
    from pg_opclass k
    join pg_am m on m.oid = k.opcmethod and m.amname = 'btree'
    join pg_amop p on p.amopfamily = k.opcfamily and p.amopstrategy = 3
                  and p.amoplefttype = k.opcintype and p.amoprighttype = k.opcintype
    join pg_operator o on o.oid = p.amopopr
    join pg_namespace s on s.oid = o.oprnamespace
    where k.opcdefault and k.opcintype = case when t.typtype = 'd' then t.typbasetype else t.oid end
) e on true
where a.attrelid = any(%(oids)s::oid[]) and a.attnum > 0 and not a.attisdropped
"""


class ReadDeferred(Exception):
    """The read must be repeated later. `error` says why; `unseen` are transaction ids not visible yet, if any."""

    def __init__(self, error: SourceUnreachable, unseen: Collection[int] = ()) -> None:
        super().__init__(error.message)
        self.error = error
        self.unseen = frozenset(unseen)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Columns of rows of one table, by index into the relation. `keys` are distinct texts of the key columns."""

    relation: Relation
    key_columns: tuple[int, ...]
    columns: tuple[int, ...]
    keys: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The rows that were found, by index into `ReadRequest.keys`, with the values of `columns` that still exist."""

    columns: tuple[int, ...] = ()
    rows: Mapping[int, tuple[bytes | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _TableName:
    name: sql.Identifier
    shown: str
    partitioned: bool

    @property
    def rows(self) -> sql.Composed:
        """The table alone: tables that inherit from it are published by themselves, partitions are not."""
        return sql.SQL("{}{}").format(sql.SQL("" if self.partitioned else "only "), self.name)


@dataclass(frozen=True, slots=True)
class _Column:
    type_oid: int
    type_name: str
    equal: sql.Composed


def read_by_key(connection: Connection, asks: Sequence[ReadRequest], xids: Collection[int]) -> list[ReadResult]:
    """Return a result for each request; one without columns if its table is gone.

    `xids` are 32-bit ids of committed transactions that must be visible. The connection is in autocommit.

    Raises:
        ReadDeferred: a transaction is not visible yet, or a table is locked.
        SourceRefused: the role may not read a table.
        SourceUnreachable: the server does not answer.
    """
    places: Mapping[int, _TableName] = {}
    try:
        with deadline(connection, _DEADLINE_S):
            places = _places(connection, [ask.relation.oid for ask in asks])
            with _moment(connection, places):
                _demand(connection, xids)
                columns = _columns(connection, list(places))
                return [_read(connection, ask, places, columns.get(ask.relation.oid, {})) for ask in asks]
    except psycopg.Error as error:
        if error.sqlstate == _LOCKED:
            hint = "another session holds an exclusive lock: see pg_locks"
            tables = ", ".join(place.shown for place in places.values())
            raise ReadDeferred(SourceUnreachable(f"cannot {_DOING}: {tables} is locked", hint=hint)) from error
        translated = translate(error, _DOING)
        if error.sqlstate in _CHANGED:
            raise ReadDeferred(SourceUnreachable(translated.message)) from error
        raise translated from error


def _places(connection: Connection, oids: Sequence[int]) -> dict[int, _TableName]:
    """Return the current names of the tables that still exist. Raises SourceRefused if the role cannot read one."""
    found = {}
    for oid, namespace, name, partitioned, role, usable, readable, filtered in connection.execute(
        _PLACES, {"oids": list(oids)}
    ).fetchall():
        place = _TableName(sql.Identifier(namespace, name), f"{namespace}.{name}", partitioned)
        grant = sql.SQL("grant usage on schema {0} to {2}; grant select on {1} to {2};")
        if filtered:
            grant = sql.SQL("alter role {2} bypassrls;")
        if usable is False or readable is False or filtered:
            raise SourceRefused(
                f"role {role!r} may not read all rows of {place.shown}; large values that an update did not change "
                "are read from there",
                hint='run the command; or, with encode.format = "json", leave such values out: [toast] mode = "omit"',
                command=grant.format(sql.Identifier(namespace), place.name, sql.Identifier(role)).as_string(connection),
                table=place.shown,
            )
        found[oid] = place
    return found


@contextlib.contextmanager
def _moment(connection: Connection, places: Mapping[int, _TableName]) -> Iterator[None]:
    """Begin a transaction that locks the tables and has no snapshot yet: the first statement inside takes it."""
    begin: sql.Composable = sql.SQL(_BEGIN)
    if places:
        tables = sql.SQL(", ").join(place.rows for place in places.values())
        begin = sql.SQL(_BEGIN + "; lock table {} in access share mode").format(tables)
    try:
        connection.execute(begin.as_bytes(connection))
        yield
    finally:
        with contextlib.suppress(psycopg.Error):
            connection.execute("rollback")


def _demand(connection: Connection, xids: Collection[int]) -> None:
    row = connection.execute("select pg_current_snapshot()::text").fetchone()
    assert row is not None
    snapshot = PgSnapshot.parse(row[0])
    unseen = [xid for xid in xids if not snapshot.sees(xid)]
    if unseen:
        raise ReadDeferred(
            SourceUnreachable(
                f"transaction {min(unseen)} is committed, but not yet visible to other sessions",
                hint="with synchronous replication a commit waits for its standby: check pg_stat_replication and "
                "synchronous_standby_names",
                xid=min(unseen),
                xid_count=len(unseen),
            ),
            unseen,
        )


def _columns(connection: Connection, oids: Sequence[int]) -> dict[int, dict[str, _Column]]:
    found: dict[int, dict[str, _Column]] = {}
    for oid, name, type_oid, type_name, namespace, operator in connection.execute(
        _COLUMNS, {"oids": list(oids)}
    ).fetchall():
        equal = sql.SQL("operator({}.{})").format(sql.Identifier(namespace), sql.SQL(operator))
        found.setdefault(oid, {})[name] = _Column(type_oid, type_name, equal)
    return found


def _read(
    connection: Connection, ask: ReadRequest, places: Mapping[int, _TableName], now: Mapping[str, _Column]
) -> ReadResult:
    """Run the query of one table, unless no requested column is left."""
    then = ask.relation.columns
    columns = tuple(
        index
        for index in ask.columns
        if (column := now.get(then[index].name)) is not None and column.type_oid == then[index].type_oid
    )
    keys = [then[index].name for index in ask.key_columns]
    if not columns or not now.keys() >= set(keys):
        return ReadResult()
    names = [sql.SQL(f"k{index}") for index, _ in enumerate(keys)]
    query = sql.SQL("select k.n, {} from unnest({}) with ordinality as k({}, n) join {} as t on {}").format(
        sql.SQL(", ").join(sql.Identifier("t", then[index].name) for index in columns),
        sql.SQL(", ").join(sql.SQL(f"${index + 1}::text[]") for index, _ in enumerate(keys)),
        sql.SQL(", ").join(names),
        places[ask.relation.oid].rows,
        sql.SQL(" and ").join(
            sql.SQL("{} {} k.{}::{}").format(
                sql.Identifier("t", key), now[key].equal, name, sql.SQL(now[key].type_name)
            )
            for key, name in zip(keys, names, strict=True)
        ),
    )
    # A RawCursor, because a name may contain `%`.
    cursor: psycopg.RawCursor[tuple[Any, ...]] = psycopg.RawCursor(connection)
    cursor.execute(query.as_bytes(connection), [list(texts) for texts in zip(*ask.keys, strict=True)])
    result = cursor.pgresult
    assert result is not None
    rows = {}
    for at in range(result.ntuples):
        place = int(result.get_value(at, 0) or b"0") - 1
        rows[place] = tuple(result.get_value(at, 1 + index) for index, _ in enumerate(columns))
    return ReadResult(columns, rows)
