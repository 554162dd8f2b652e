"""The SQL of snapshots: open transactions, the leaves of tables, and the rows of a chunk.

Nothing is written to the source. The order of the steps in a chunk's transaction matters (`snapshot.window`):

1. Lock the leaf before taking the snapshot, and compare its file node with the plan's. After a rewrite that commits in
   between, the table would be empty in the older snapshot.
2. Take the snapshot; read the end of the WAL in a later statement.
3. Read the rows. The transaction ends with them, so it does not delay vacuum.

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
_ANSWER_S: Final = 30.0  # a catalog query takes milliseconds
_CHUNK_S: Final = 150.0  # longer than the statement_timeout of a chunk; after that the connection is dead
_BEGIN: Final = (
    "begin isolation level repeatable read, read only; set local row_security = off;"
    " set local standard_conforming_strings = on;"
    f" set local lock_timeout = '{LOCK_TIMEOUT}'; set local statement_timeout = '120s'"
)
_BYTES_MAX: Final = 64 << 20  # of one chunk; its heap is about 8 MB, its decompressed TOAST values may be more
AGAIN: Final = frozenset({"55P03", "40001", "40P01", "42P01", "42703", "3F000"})
_GONE: Final = frozenset({"42P01", "3F000"})  # undefined_table, invalid_schema_name
_DENIED: Final = "42501"
_TIMEOUT: Final = "57014"
_POLL_S: Final = 1.0
_UNFIT: Final = frozenset({"42883", "42804", "42P22", "42846", "42725", "0A000"})  # no such operator, collation, cast

# Open transactions, from pg_locks: a snapshot lists only those below the newest that has ended. Sessions of other
# databases cannot write here. A prepared transaction has no pid.
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
# Without pg_partition_tree, which locks every partition: a start and `cdc status` run this query.
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
# In PostgreSQL 15 the view includes generated columns, which are not published before 18.
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
# One statement, so that the snapshot and the table's state belong together. The rows are read by name: the table must
# still be the one that had the name when the chunk was planned.
_MOMENT: Final = """
select pg_current_snapshot()::text, pg_postmaster_start_time()::text,
       (select pg_relation_filenode(l.oid) from pg_class l join pg_namespace m on m.oid = l.relnamespace
        where l.oid = %(leaf)s::oid and l.relname = %(leaf_name)s and m.nspname = %(leaf_namespace)s)::int8,
       coalesce(t.rowfilter, ''),
       array(
           select a.attname::text || ' ' || a.atttypid::int8::text || ' ' || a.atttypmod::text
           from pg_attribute a
           where a.attrelid = %(root)s::oid and a.attnum > 0 and not a.attisdropped and a.attname = any(t.attnames)
             and (a.attgenerated = '' or current_setting('server_version_num')::int4 >= 180000)
           order by a.attnum
       )
from pg_publication_tables t
join pg_class c on c.oid = %(root)s::oid and c.relname = t.tablename
join pg_namespace n on n.oid = c.relnamespace and n.nspname = t.schemaname
where t.pubname = %(publication)s and t.schemaname = %(namespace)s and t.tablename = %(name)s
"""


class ReadLater(Exception):
    """A lock or a concurrent change prevents the read; try it again later.

    Attributes:
        halve: try again with a smaller chunk.
        gone: the table or partition no longer exists under its name; plan its table again first.
    """

    def __init__(self, why: str, *, halve: bool = False, gone: bool = False) -> None:
        super().__init__(why)
        self.halve = halve
        self.gone = gone


@dataclass(frozen=True, slots=True)
class ServerState:
    """A snapshot and the end of the WAL; `started` identifies the run of the server, which a restart changes."""

    snapshot: PgSnapshot
    inserted: Lsn
    started: str


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What is read of a table, and its leaves."""

    form: Form
    leaves: tuple[Leaf, ...]


class SnapshotTaken(Protocol):
    """Receives the snapshot of a chunk's transaction; returns False to give the chunk up."""

    def __call__(self, snapshot: PgSnapshot, l_hi: Lsn, filenode: int | None, form: Form) -> bool:
        """See `snapshot.chunks.Chunks.taken`."""


def now(connection: Connection) -> ServerState:
    """Return a snapshot and the end of the WAL. Raises SourceUnreachable."""
    with _asking(connection):
        row = connection.execute(_NOW).fetchone()
    assert row is not None
    return ServerState(PgSnapshot.parse(row[0]), Lsn.parse(row[1]), row[2])


def flushed(connection: Connection) -> Lsn:
    """Return the flush LSN of the server: a crash loses nothing below it. Raises SourceUnreachable."""
    with _asking(connection):
        row = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def open_transaction_ids(connection: Connection) -> list[int]:
    """Return the ids of all transactions that may still write to this database. Raises SourceUnreachable."""
    with _asking(connection):
        return [xid for (xid,) in connection.execute(_OPEN).fetchall()]


def table_layouts(connection: Connection, publication: str, tables: Sequence[SourceTable]) -> dict[str, TableLayout]:
    """Return the published ones of `tables` with their leaves, with a constant number of queries.

    Raises:
        SourceRefused: the role may not read every row of a table.
        ReadLater: a table is locked; reading its size needs a lock.
        SourceUnreachable: no answer.
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
    """Return the tables whose rows the role may not all read, with the error that their snapshot would raise.

    Takes no lock on the tables. Raises SourceError.
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
    """Return why a condition does not fit a table; empty if it does. PostgreSQL checks it without reading a row.

    Raises ReadLater, SourceUnreachable, or SourceRefused if the cause is not the condition.
    """
    unknown = columns_of(condition) - {column.name for column in form.relation.columns}
    if unknown:
        return f"the condition uses {min(unknown)}, but the table has no captured column of that name"
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
            raise ReadLater(server_message(error)) from error
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
    """Return the COPY lines of a registered chunk and their bytes; None if `taken` gave the chunk up.

    Args:
        connection: a connection without an open transaction.
        chunk: registered with the merger before this call.
        publication: selects columns and rows.
        started: the run of the server that the stream comes from.
        taken: receives the snapshot.
        wanted: selects lines; None for all.

    Raises:
        ReadLater: try again later.
        SourceRefused: the role may not read the table.
        SourceUnreachable: no answer, or the server was restarted.
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
            raise ReadLater(server_message(error), halve=True) from error
        if error.sqlstate in AGAIN:
            raise ReadLater(server_message(error), gone=error.sqlstate in _GONE) from error
        if error.sqlstate == _DENIED:
            raise ReadLater(server_message(error), gone=True) from error  # `table_layouts` reports the missing right
        raise translate(error, _DOING) from error


def server_message(error: psycopg.Error) -> str:
    """Return PostgreSQL's message; for these errors it contains names and limits, never values."""
    return f"{error.diag.message_primary} (SQLSTATE {error.sqlstate})"


def _begin(spec: ChunkSpec) -> sql.Composed:
    return sql.SQL(_BEGIN + "; lock table {} in access share mode").format(_place(spec))


def _take(connection: Connection, spec: ChunkSpec, publication: str, started: str, taken: SnapshotTaken) -> bool:
    relation = spec.form.relation
    names = {"publication": publication, "namespace": relation.namespace, "name": relation.name}
    leaf = (None, None, None) if spec.leaf is None else (spec.leaf.oid, spec.leaf.namespace, spec.leaf.name)
    of_leaf = dict(zip(("leaf", "leaf_namespace", "leaf_name"), leaf, strict=True))
    row = connection.execute(_MOMENT, {**names, **of_leaf, "root": relation.oid}).fetchone()
    if row is None:
        raise ReadLater(f"{relation.table} is not published, or another table has its name", gone=True)
    snapshot, running, filenode, row_filter, columns = row
    check_same_run(running, started)
    # Read the end of the WAL after the snapshot. Otherwise commits that the snapshot sees could lie behind it.
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
    """Read the lines of COPY TO STDOUT; return them and their bytes. Stops early above `size_max` bytes.

    Uses libpq directly, at half the cost of psycopg's loop (1.0 and 2.2 us per line, 2026-11-22). Other threads run
    while it waits.
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
    """Wait for a result with this status. Raises psycopg.Error."""
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
    """Return the leaf, or for rows by key the whole table."""
    if spec.leaf is not None:
        return sql.SQL("only {}").format(sql.Identifier(spec.leaf.namespace, spec.leaf.name))
    relation = spec.form.relation
    return place(relation.namespace, relation.name, partitioned=spec.form.partitioned)


def place(namespace: str, name: str, *, partitioned: bool) -> sql.Composed:
    """Return a table for FROM: with its partitions, but without tables that inherit from it."""
    return sql.SQL("{}{}").format(sql.SQL("" if partitioned else "only "), sql.Identifier(namespace, name))


def copying(
    connection: Connection,
    form: Form,
    place: sql.Composable,
    conditions: Sequence[sql.Composable] = (),
    order: Sequence[str] = (),
) -> sql.Composed:
    """Return the COPY statement for the published rows that fulfil `conditions`, ordered by `order`."""
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
    """Raise SourceUnreachable if the server was restarted since the stream began: a crash may undo what it showed."""
    if running != started:
        raise SourceUnreachable("PostgreSQL was restarted: rows read before may have been lost in a crash")


def _unreadable(namespace: str, name: str, role: str, *, filtered: bool) -> SourceRefused:
    table = sql.Identifier(namespace, name)
    grant = sql.SQL("grant usage on schema {0} to {2}; grant select on {1} to {2};")
    if filtered:
        grant = sql.SQL("alter role {2} bypassrls;")
    return SourceRefused(
        f"cannot snapshot {namespace}.{name}: role {role!r} may not read all rows",
        hint='grant the right, or turn snapshots off with [snapshot] mode = "never"',
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
            raise ReadLater(server_message(error)) from error
        raise translate(error, _DOING) from error
