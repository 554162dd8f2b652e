"""What snapshots ask PostgreSQL: who is open, where rows lie, and the rows of a chunk, in the order the rule needs.

Nothing is written to the source. A chunk's transaction locks its leaf before it takes its snapshot, since a rewrite
that commits in between would leave an empty table; it lives for as long as its rows take to arrive, so it holds up no
vacuum.

https://www.postgresql.org/docs/18/transaction-iso.html#XACT-REPEATABLE-READ
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import psycopg
from psycopg import pq, sql
from psycopg.errors import error_from_result

from cdc.errors import SourceRefused, SourceUnreachable
from cdc.lsn import Lsn
from cdc.model.relation import Relation
from cdc.model.visibility import PgSnapshot
from cdc.replication.catalog_queries import reading
from cdc.replication.connect import LOCK_TIMEOUT, Connection, deadline, text_encoding
from cdc.replication.error_mapping import translate
from cdc.replication.table_shape import SourceTable
from snapshot.chunk import Chunk, ChunkSpec, Form, Leaf
from snapshot.chunk_lines import PIECE, Lines
from snapshot.condition import Condition, as_sql
from snapshot.condition import columns as columns_of
from snapshot.key_filter import key_condition

_DOING: Final = "read a table for its snapshot"
_ANSWER_S: Final = 30.0  # a question to the catalog takes milliseconds
_CHUNK_S: Final = 150.0  # more than the statement_timeout of a chunk; beyond that the link is dead
_BEGIN: Final = (
    "begin isolation level repeatable read, read only; set local row_security = off;"
    " set local standard_conforming_strings = on;"
    f" set local lock_timeout = '{LOCK_TIMEOUT}'; set local statement_timeout = '120s'"
)
_BYTES_MAX: Final = 64 << 20  # of one chunk; its heap is some 8 MB, what it stores out of line compressed may be more
AGAIN: Final = frozenset({"55P03", "40001", "40P01", "42P01", "42703", "3F000"})
_GONE: Final = frozenset({"42P01", "3F000"})  # undefined_table, invalid_schema_name
_DENIED: Final = "42501"
_TIMEOUT: Final = "57014"
_POLL_S: Final = 1.0
_UNFIT: Final = frozenset({"42883", "42804", "42P22", "42846", "42725", "0A000"})  # no such operator, collation, cast

# Who is connected to another database cannot write here. A prepared transaction has no pid.
_OPEN: Final = """
select l.transactionid::text::int8
from pg_locks l
left join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted
  and (a.datname is null or a.datname = current_database())
"""
_NOW: Final = """
select pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, pg_postmaster_start_time()::text
"""
_LEAVES: Final = """
select root.oid::int8, c.oid::int8, n.nspname::text, c.relname::text, pg_relation_filenode(c.oid)::int8,
       pg_relation_size(c.oid) / current_setting('block_size')::int8, pg_table_size(c.oid),
       has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'), row_security_active(c.oid),
       current_user::text
from unnest(%(oids)s::oid[]) as root (oid)
cross join lateral (
    select root.oid as relid union select t.relid from pg_partition_tree(root.oid) t where t.isleaf
) l
join pg_class c on c.oid = l.relid and c.relkind = 'r' and c.relpersistence = 'p'
join pg_namespace n on n.oid = c.relnamespace
"""
# Without pg_partition_tree, which locks every partition: this is read by a start and by `cdc status`.
_READABLE: Final = """
with recursive part (root, oid) as (
    select r.oid, r.oid from unnest(%(oids)s::oid[]) as r (oid)
    union
    select p.root, i.inhrelid from part p
    join pg_inherits i on i.inhparent = p.oid join pg_class c on c.oid = i.inhrelid and c.relispartition
)
select p.root::int8, n.nspname::text, c.relname::text,
       has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'), row_security_active(c.oid),
       current_user::text
from part p
join pg_class c on c.oid = p.oid and c.relkind = 'r' and c.relpersistence = 'p'
join pg_namespace n on n.oid = c.relnamespace
"""
# The view of PostgreSQL 15 names generated columns, which are not published before 18.
_PUBLISHED: Final = """
select t.schemaname::text || '.' || t.tablename::text,
       array(select a.attname::text from pg_attribute a
             where a.attrelid = c.oid and a.attname = any(t.attnames)
               and (a.attgenerated = '' or current_setting('server_version_num')::int4 >= 180000)),
       coalesce(t.rowfilter, '')
from pg_publication_tables t
join pg_namespace n on n.nspname = t.schemaname
join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
where t.pubname = %(publication)s
"""
# One statement: the snapshot and what it belongs to.
_MOMENT: Final = """
select pg_current_snapshot()::text, pg_postmaster_start_time()::text, pg_relation_filenode(%(leaf)s::oid)::int8,
       coalesce(t.rowfilter, ''),
       array(
           select a.attname::text || ' ' || a.atttypid::int8::text || ' ' || a.atttypmod::text
           from pg_attribute a
           where a.attrelid = %(root)s::oid and a.attnum > 0 and not a.attisdropped and a.attname = any(t.attnames)
             and (a.attgenerated = '' or current_setting('server_version_num')::int4 >= 180000)
           order by a.attnum
       )
from pg_publication_tables t
where t.pubname = %(publication)s and t.schemaname = %(namespace)s and t.tablename = %(name)s
"""


class ReadLater(Exception):
    """A lock is in the way, or something changed just now: the work can be tried again.

    Attributes:
        halve: in smaller pieces.
        gone: the table or partition does not exist under its name any more: its table must be planned again first.
    """

    def __init__(self, why: str, *, halve: bool = False, gone: bool = False) -> None:
        super().__init__(why)
        self.halve = halve
        self.gone = gone


@dataclass(frozen=True, slots=True)
class ServerState:
    """A moment of the server. `started` tells one run of it from the next."""

    snapshot: PgSnapshot
    inserted: Lsn
    started: str


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A table as it is now."""

    form: Form
    leaves: tuple[Leaf, ...]


class SnapshotTaken(Protocol):
    """Told what a chunk's transaction saw first; False gives it up."""

    def __call__(self, snapshot: PgSnapshot, l_hi: Lsn, filenode: int | None, form: Form) -> bool:
        """See `snapshot.merger.Merger.taken`."""


def now(connection: Connection) -> ServerState:
    """Snapshot and end of the WAL. Raises SourceUnreachable."""
    with _asking(connection):
        row = connection.execute(_NOW).fetchone()
    assert row is not None
    return ServerState(PgSnapshot.parse(row[0]), Lsn.parse(row[1]), row[2])


def flushed(connection: Connection) -> Lsn:
    """Up to where a crash of the server loses nothing. Raises SourceUnreachable."""
    with _asking(connection):
        row = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def open_transaction_ids(connection: Connection) -> list[int]:
    """Ids of all transactions that may still write to this database. Raises SourceUnreachable."""
    with _asking(connection):
        return [xid for (xid,) in connection.execute(_OPEN).fetchall()]


def table_layouts(connection: Connection, publication: str, tables: Sequence[SourceTable]) -> dict[str, TableLayout]:
    """Tables and where their rows lie, those that are published. A constant number of queries.

    Raises SourceRefused when the role may not read all rows of one, SourceUnreachable, and NotNow when somebody has
    locked one: to know its size takes a lock.
    """
    with _asking(connection):
        connection.execute(f"set lock_timeout = '{LOCK_TIMEOUT}'".encode())
        published = {
            name: (frozenset(columns), row_filter)
            for name, columns, row_filter in connection.execute(_PUBLISHED, {"publication": publication}).fetchall()
        }
        rows = connection.execute(_LEAVES, {"oids": [table.oid for table in tables]}).fetchall()
    leaves: dict[int, list[Leaf]] = {}
    for root, oid, namespace, name, filenode, blocks, size, readable, filtered, role in rows:
        if not readable or filtered:
            raise _unreadable(namespace, name, role, filtered=filtered)
        leaves.setdefault(root, []).append(Leaf(oid, namespace, name, filenode, blocks, size))
    found = {}
    for table in tables:
        if table.table in published:
            columns, row_filter = published[table.table]
            form = Form(table.relation(columns), row_filter, table.partitioned)
            found[table.table] = TableLayout(form, tuple(sorted(leaves.get(table.oid, ()), key=lambda leaf: leaf.oid)))
    return found


def unreadable(connection: Connection, tables: Sequence[SourceTable]) -> dict[str, SourceRefused]:
    """Tables of which the role may not read all rows, with the error that their snapshot would end in.

    Takes no lock on them. Raises SourceError.
    """
    with reading("read rights on tables"):
        rows = connection.execute(_READABLE, {"oids": [table.oid for table in tables]}).fetchall()
    names = {table.oid: table.table for table in tables}
    found: dict[str, SourceRefused] = {}
    for root, namespace, name, readable, filtered, role in rows:
        if not readable or filtered:
            found.setdefault(names[root], _unreadable(namespace, name, role, filtered=filtered))
    return found


def condition_problem(connection: Connection, form: Form, condition: Condition) -> str:
    """Why rows of a table cannot be chosen so; empty when they can. PostgreSQL is asked, and reads no row.

    Raises NotNow, SourceUnreachable, and SourceRefused when it is not the condition that is wrong.
    """
    unknown = columns_of(condition) - {column.name for column in form.relation.columns}
    if unknown:
        return f"the condition names {min(unknown)}, which is no captured column"
    try:
        with deadline(connection, _ANSWER_S):
            try:
                connection.execute(_begin(ChunkSpec(form.relation.table, form)).as_bytes(connection))
                query = sql.SQL("select from {} where {} limit 0")
                place = _place(ChunkSpec(form.relation.table, form))
                connection.execute(query.format(place, as_sql(condition)).as_bytes(connection))
            finally:
                with contextlib.suppress(psycopg.Error):
                    connection.execute("rollback")
    except psycopg.Error as error:
        state = error.sqlstate or ""
        if state[:2] == "22" or state in _UNFIT:
            return f"a literal or comparison of the condition does not fit the type of its column (SQLSTATE {state})"
        if state in AGAIN or state == _TIMEOUT:
            raise ReadLater(said(error)) from error
        raise translate(error, _DOING) from error
    return ""


def read_chunk(
    connection: Connection,
    chunk: Chunk,
    publication: str,
    started: str,
    taken: SnapshotTaken,
    wanted: Callable[[bytes], bool] | None = None,
) -> tuple[Lines, int] | None:
    """Lines of COPY of a registered chunk, and their bytes; None when `taken` gave it up.

    `wanted` chooses lines. `started` is the run of the server that the stream comes from.

    Raises:
        NotNow: read it later.
        SourceRefused: the role may not.
        SourceUnreachable: no answer, or from another run of the server.
    """
    try:
        with deadline(connection, _CHUNK_S):
            try:
                connection.execute(_begin(chunk.spec).as_bytes(connection))
                if not _take(connection, chunk.spec, publication, started, taken):
                    return None
                return _copy(connection, chunk.spec, wanted)
            finally:
                with contextlib.suppress(psycopg.Error):
                    connection.execute("rollback")
    except psycopg.Error as error:
        if error.sqlstate == _TIMEOUT:
            raise ReadLater(said(error), halve=True) from error
        if error.sqlstate in AGAIN:
            raise ReadLater(said(error), gone=error.sqlstate in _GONE) from error
        if error.sqlstate == _DENIED:
            raise ReadLater(said(error), gone=True) from error  # `table_layouts` says which right is missing
        raise translate(error, _DOING) from error


def said(error: psycopg.Error) -> str:
    """What PostgreSQL says; of these errors it names objects and limits, never values."""
    return f"{error.diag.message_primary} (SQLSTATE {error.sqlstate})"


def _begin(spec: ChunkSpec) -> sql.Composed:
    return sql.SQL(_BEGIN + "; lock table {} in access share mode").format(_place(spec))


def _take(connection: Connection, spec: ChunkSpec, publication: str, started: str, taken: SnapshotTaken) -> bool:
    relation = spec.form.relation
    names = {"publication": publication, "namespace": relation.namespace, "name": relation.name}
    oids = {"leaf": spec.leaf.oid if spec.leaf else None, "root": relation.oid}
    row = connection.execute(_MOMENT, {**names, **oids}).fetchone()
    if row is None:
        raise ReadLater(f"{relation.table} is not published", gone=True)
    snapshot, running, filenode, row_filter, columns = row
    check_same_run(running, started)
    # The end of the WAL in a later statement than the snapshot, or commits that it sees might lie behind.
    inserted = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert inserted is not None
    same = row_filter == spec.form.row_filter and columns == _shape(relation)
    form = spec.form if same else Form(relation, "changed")
    return taken(PgSnapshot.parse(snapshot), Lsn.parse(inserted[0]).before_header(), filenode, form)


def _copy(connection: Connection, spec: ChunkSpec, wanted: Callable[[bytes], bool] | None) -> tuple[Lines, int]:
    conditions: list[sql.Composable] = []
    if spec.condition is not None:
        conditions.append(as_sql(spec.condition))
    if spec.leaf is None:
        conditions.append(key_condition(spec.form.relation, spec.keys, spec.named))
    else:
        first, end = spec.blocks
        conditions.append(sql.SQL("ctid >= {}").format(sql.Literal(f"({first},0)")))
        if end is not None:
            conditions.append(sql.SQL("ctid < {}").format(sql.Literal(f"({end},0)")))
    query = copying(connection, spec.form, _place(spec), conditions)
    size_max = None if _indivisible(spec) else _BYTES_MAX
    lines, size = _drain(connection, query.as_bytes(connection), size_max, wanted)
    if size_max is not None and size > size_max:
        raise ReadLater(f"a chunk of {spec.table} has more than {size_max} bytes", halve=True)
    return lines, size


def _drain(
    connection: Connection, query: bytes, size_max: int | None, wanted: Callable[[bytes], bool] | None
) -> tuple[Lines, int]:
    """Lines of COPY TO STDOUT and their bytes; it ends early when they have more than `size_max`.

    By libpq: the loop is half the price of psycopg's (1.0 and 2.2 us a line, 2026-11-22), and it lets other threads
    run whenever it waits.
    """
    pg = connection.pgconn
    pg.send_query(query)
    _result(pg, pq.ExecStatus.COPY_OUT)
    pieces: list[bytes] = []
    piece = bytearray()
    count = size = 0
    get = pg.get_copy_data
    while True:
        length, data = get(1)
        if length > 0:
            if wanted is None or wanted(bytes(data)):
                piece += data
                size += length
                count += 1
                if not count % PIECE:
                    pieces.append(bytes(piece))
                    piece.clear()
            if size_max is not None and size > size_max:
                connection.cancel_safe()
                while get(0)[0] > 0:
                    pass
                _finish(pg)
                return Lines(pieces, count), size
        elif length == 0:
            select.select([pg.socket], [], [], _POLL_S)
            pg.consume_input()
        else:
            _result(pg, pq.ExecStatus.COMMAND_OK)
            _finish(pg)
            return Lines([*pieces, bytes(piece)] if piece else pieces, count), size


def _result(pg: pq.abc.PGconn, wanted: pq.ExecStatus) -> None:
    """Wait for a result of that status. Raises psycopg.Error."""
    while pg.flush() or pg.is_busy():
        select.select([pg.socket], [], [], _POLL_S)
        pg.consume_input()
    result = pg.get_result()
    if result is None or result.status != wanted:
        _finish(pg)
        raise psycopg.OperationalError("the server ended a COPY") if result is None else error_from_result(result)


def _finish(pg: pq.abc.PGconn) -> None:
    while pg.get_result() is not None:
        pass


def _indivisible(spec: ChunkSpec) -> bool:
    if spec.leaf is None:
        return len(spec.keys) == 1
    first, end = spec.blocks
    return (spec.leaf.block_count if end is None else end) - first <= 1


def _place(spec: ChunkSpec) -> sql.Composed:
    """A leaf alone; for rows by key the table."""
    if spec.leaf is not None:
        return sql.SQL("only {}").format(sql.Identifier(spec.leaf.namespace, spec.leaf.name))
    relation = spec.form.relation
    return place(relation.namespace, relation.name, partitioned=spec.form.partitioned)


def place(namespace: str, name: str, *, partitioned: bool) -> sql.Composed:
    """A table with its partitions, which belong to it, and without what inherits from it."""
    return sql.SQL("{}{}").format(sql.SQL("" if partitioned else "only "), sql.Identifier(namespace, name))


def copying(
    connection: Connection,
    form: Form,
    place: sql.Composable,
    conditions: Sequence[sql.Composable] = (),
    order: Sequence[str] = (),
) -> sql.Composed:
    """The COPY of those rows there that are published and fit `conditions`, by the columns of `order`."""
    published = sql.SQL("({})").format(sql.SQL(form.row_filter or "true"))
    ordered = sql.SQL(" order by {}").format(sql.SQL(", ").join(map(sql.Identifier, order))) if order else sql.SQL("")
    return sql.SQL("copy (select {} from {} where {}{}) to stdout (encoding {})").format(
        sql.SQL(", ").join(sql.Identifier(column.name) for column in form.relation.columns),
        place,
        sql.SQL(" and ").join([published, *conditions]),
        ordered,
        sql.Literal(text_encoding(connection.pgconn)),
    )


def _shape(relation: Relation) -> list[str]:
    return [f"{column.name} {column.type_oid} {column.type_modifier}" for column in relation.columns]


def check_same_run(running: str, started: str) -> None:
    """Raise SourceUnreachable when the server is not the one that the stream comes from."""
    if running != started:
        raise SourceUnreachable("PostgreSQL was started again: what it showed before may not be so any more")


def _unreadable(namespace: str, name: str, role: str, *, filtered: bool) -> SourceRefused:
    table = sql.Identifier(namespace, name)
    grant = sql.SQL("grant usage on schema {0} to {2}; grant select on {1} to {2};")
    if filtered:
        grant = sql.SQL("alter role {2} bypassrls;")
    return SourceRefused(
        f"role {role!r} may not read all rows of {namespace}.{name}, so it cannot be snapshotted",
        hint='grant it, or take no snapshots with [snapshot] mode = "never"',
        command=grant.format(sql.Identifier(namespace), table, sql.Identifier(role)).as_string(None),
        table=f"{namespace}.{name}",
    )


@contextlib.contextmanager
def _asking(connection: Connection) -> Iterator[None]:
    try:
        with deadline(connection, _ANSWER_S):
            yield
    except psycopg.Error as error:
        if error.sqlstate in AGAIN:
            raise ReadLater(said(error)) from error
        raise translate(error, _DOING) from error
