"""Queries the system catalog: the database's identity, matching tables, their keys and types.

The stream describes tables as they were, the catalog as they are now. So nothing here may decide how an older row is
read. The number of queries is constant, however many tables there are. Every function raises a TailraceError by cause.

https://www.postgresql.org/docs/18/catalogs.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg.pq import TransactionStatus

from cdc.lsn import Lsn
from cdc.model.relation import ReplicaIdentity
from cdc.model.type_facts import TypeFacts
from cdc.patterns import matches
from cdc.replication.connect import Connection
from cdc.replication.error_mapping import translate
from cdc.replication.table_shape import Index, Leaf, SourceColumn, SourceTable, choose_key

_IDENTITY: Final = """
select (select system_identifier::text from pg_control_system()),
       case when pg_is_in_recovery() then (select timeline_id::text from pg_control_checkpoint())
            else substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) end,
       pg_is_in_recovery(), d.datname, d.oid::int8, current_setting('server_version_num')::int4
from pg_database d
where d.datname = current_database()
"""

# Partitions are included: problems of a partition are problems of its root.
_TABLES: Final = """
select c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text,
       (select i.inhparent::int8 from pg_inherits i where c.relispartition and i.inhrelid = c.oid),
       pg_get_userbyid(c.relowner)::text, pg_has_role(c.relowner, 'usage')
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'f')
  and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
order by n.nspname collate "C", c.relname collate "C"
"""

_COLUMNS: Final = """
select a.attrelid::int8, a.attname, a.atttypid::int8, a.atttypmod, format_type(a.atttypid, a.atttypmod),
       a.attnotnull, a.attgenerated <> '', a.attlen = -1 and a.attstorage <> 'p', a.attgenerated = 'v'
from pg_attribute a
where a.attrelid = any(%(oids)s::oid[]) and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum
"""

_INDEXES: Final = """
select x.indrelid::int8, c.relname, x.indisprimary, x.indisreplident, x.indimmediate, x.indisvalid, k.names,
       k.not_null, k.generated
from pg_index x
join pg_class c on c.oid = x.indexrelid
cross join lateral (
    select array_agg(a.attname::text order by k.place) as names, bool_and(a.attnotnull) as not_null,
           bool_or(a.attgenerated <> '') as generated
    from unnest(x.indkey::int2[]) with ordinality as k (attnum, place)
    join pg_attribute a on a.attrelid = x.indrelid and a.attnum = k.attnum
    where k.place <= x.indnkeyatts
) as k
where x.indrelid = any(%(oids)s::oid[]) and x.indisunique
  and x.indpred is null and x.indexprs is null and k.names is not null
"""

_REPLICA_IDENTITY: Final = "select relreplident::text from pg_class where oid = %(oid)s"

_ANCESTORS: Final = """
select n.nspname || '.' || c.relname
from pg_partition_ancestors(%(oid)s::oid::regclass) a
join pg_class c on c.oid = a.relid
join pg_namespace n on n.oid = c.relnamespace
where a.relid <> %(oid)s::oid
"""

_GENERATED: Final = """
select a.attname::text from pg_attribute a
where a.attrelid = %(oid)s::oid and a.attnum > 0 and not a.attisdropped and a.attgenerated <> ''
order by a.attnum
"""

_TYPES: Final = """
select t.oid::int8, format_type(t.oid, null), t.typtype::text,
       case when e.typarray = t.oid then e.oid::int8 else 0 end, t.typbasetype::int8, t.typdelim::text,
       coalesce((select x.extname::text from pg_depend d join pg_extension x on x.oid = d.refobjid
                 where d.classid = 'pg_type'::regclass and d.objid = t.oid
                   and d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'), ''),
       t.typtypmod
from pg_type t left join pg_type e on e.oid = t.typelem
where t.oid = any(%(oids)s::oid[])
"""

_SETTINGS: Final = """
select name, case unit when 'ms' then (setting::float8 / 1000)::text when 's' then setting
                       when 'min' then (setting::int8 * 60)::text else setting end
from pg_settings
where name = any(%(names)s)
"""

VISIBLE_TRANSACTIONS: Final = "select pg_catalog.pg_current_snapshot()::text"

WAL_SETTINGS: Final = (
    "wal_level",
    "max_replication_slots",
    "max_wal_senders",
    "max_slot_wal_keep_size",
    "wal_sender_timeout",
    "idle_replication_slot_timeout",
    "logical_decoding_work_mem",
    "max_prepared_transactions",
    "track_commit_timestamp",
    "server_version",
    "server_encoding",
)


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """The identity of the database and its history. `timeline` of a primary is the one that it writes."""

    system_identifier: str
    timeline: int
    in_recovery: bool
    database: str
    database_oid: int
    server_version_num: int


@contextmanager
def reading(doing: str) -> Iterator[None]:
    """Translate psycopg errors raised in the block."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, doing) from error


@contextmanager
def one_snapshot(connection: Connection, doing: str) -> Iterator[None]:
    """Run the queries of the block on one snapshot: DDL that commits between two of them is in none of their answers.

    A nested block uses the snapshot of the outer one. In a transaction of the caller, the caller's isolation level
    counts. Translates psycopg errors.
    """
    with reading(doing):
        if connection.info.transaction_status != TransactionStatus.IDLE:
            yield
            return
        with connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            yield


def source_identity(connection: Connection) -> SourceIdentity:
    """Return the server's identity. Cheap enough for every check."""
    with reading("identify the database"):
        row = connection.execute(_IDENTITY).fetchone()
    assert row is not None
    identifier, timeline, in_recovery, database, oid, version = row
    return SourceIdentity(identifier, int(timeline, 10 if in_recovery else 16), in_recovery, database, oid, version)


def pooled(connection: Connection) -> bool:
    """Return whether a pooler is in between: a pooler reports process ids of its own."""
    with reading("check for a pooler"):
        row = connection.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    return bool(connection.info.backend_pid != row[0])


def current_wal(connection: Connection) -> Lsn:
    """Return where the next WAL record goes. Raises SourceRefused on a standby."""
    with reading("read the position of the WAL"):
        row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def visible_transactions(connection: Connection) -> str:
    """Return which transactions the connection sees. While it is the same, the catalog is too, whatever is read of it.

    A change of the catalog needs a transaction with an id, and the snapshot names every id up to the newest ended one.
    """
    with reading("read the snapshot"):
        row = connection.execute(VISIBLE_TRANSACTIONS).fetchone()
    assert row is not None
    return str(row[0])


def wal_settings(connection: Connection) -> dict[str, str]:
    """Return WAL_SETTINGS, times in seconds, sizes in the server's unit. Older servers lack some."""
    with reading("read settings"):
        return dict(connection.execute(_SETTINGS, {"names": list(WAL_SETTINGS)}).fetchall())


def tables_matching(
    connection: Connection,
    patterns: Sequence[str],
    keyless: Sequence[str] = (),
    keys: Mapping[str, Sequence[str]] | None = None,
) -> list[SourceTable]:
    """Return the tables that `patterns` select, by schema and name, with the reason if one cannot be captured.

    A partition is left out if one of its ancestors is selected: its rows are published as rows of that table.
    """
    with one_snapshot(connection, "list tables"):
        rows = {row[0]: row for row in connection.execute(_TABLES).fetchall()}
        parents = {oid: row[6] for oid, row in rows.items() if row[6] is not None}
        selected = {oid for oid, row in rows.items() if matches(f"{row[1]}.{row[2]}", patterns)}
        roots = [oid for oid in rows if oid in selected and selected.isdisjoint(_above(oid, parents))]
        columns = _columns(connection, roots)
        indexes = _indexes(connection, roots)
    leaves: dict[int, list[Leaf]] = {}
    for oid, (_, namespace, name, kind, persistence, identity, *_) in rows.items():
        if kind != "p":
            for above in _above(oid, parents):
                leaf = Leaf(namespace, name, kind, persistence, ReplicaIdentity(identity))
                leaves.setdefault(above, []).append(leaf)
    tables = []
    for oid in roots:
        _, namespace, name, kind, persistence, identity_code, parent, owner, owned = rows[oid]
        identity = ReplicaIdentity(identity_code)
        wanted = tuple((keys or {}).get(f"{namespace}.{name}", ()))
        key = choose_key(identity, indexes.get(oid, ()), wanted)
        tables.append(
            SourceTable(
                oid=oid,
                namespace=namespace,
                name=name,
                kind=kind,
                persistence=persistence,
                replica_identity=identity,
                key=key.columns,
                key_problem=key.problem,
                keyless=not key.columns and matches(f"{namespace}.{name}", keyless),
                columns=tuple(columns.get(oid, ())),
                leaves=tuple(leaves.get(oid, ())),
                is_partition=parent is not None,
                wanted_key=wanted,
                owner=owner,
                owned=owned,
            )
        )
    return tables


def key_columns(connection: Connection, oid: int, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the key columns of a table in key order; empty if it is gone or has no usable key over `wanted`."""
    with one_snapshot(connection, "read the key of a table"):
        row = connection.execute(_REPLICA_IDENTITY, {"oid": oid}).fetchone()
        indexes = _indexes(connection, [oid])
    return () if row is None else choose_key(ReplicaIdentity(row[0]), indexes.get(oid, ()), wanted).columns


def ancestors(connection: Connection, oid: int) -> list[str]:
    """Return ``schema.table`` of every table that this one is a partition of."""
    with reading("read the ancestors of a partition"):
        return [name for (name,) in connection.execute(_ANCESTORS, {"oid": oid}).fetchall()]


def generated_columns(connection: Connection, oid: int) -> list[str]:
    """Return the names of the table's generated columns, stored and virtual, in table order."""
    with reading("read generated columns"):
        return [name for (name,) in connection.execute(_GENERATED, {"oid": oid}).fetchall()]


def types(connection: Connection, oids: Sequence[int]) -> dict[int, TypeFacts]:
    """Return the facts of these types from pg_type. Types that are gone are left out."""
    if not oids:
        return {}
    with reading("read types"):
        return {row[0]: TypeFacts(*row) for row in connection.execute(_TYPES, {"oids": list(oids)}).fetchall()}


def _above(oid: int, parents: dict[int, int]) -> Iterator[int]:
    """Yield the ancestors of a partition, nearest first."""
    while oid in parents:
        oid = parents[oid]
        yield oid


def _columns(connection: Connection, oids: Sequence[int]) -> dict[int, list[SourceColumn]]:
    found: dict[int, list[SourceColumn]] = {}
    for oid, *fields in connection.execute(_COLUMNS, {"oids": list(oids)}).fetchall():
        found.setdefault(oid, []).append(SourceColumn(*fields))
    return found


def _indexes(connection: Connection, oids: Sequence[int]) -> dict[int, list[Index]]:
    found: dict[int, list[Index]] = {}
    for oid, name, primary, identity, immediate, valid, names, not_null, generated in connection.execute(
        _INDEXES, {"oids": list(oids)}
    ).fetchall():
        index = Index(name, primary, identity, immediate, valid, tuple(names), not_null, generated)
        found.setdefault(oid, []).append(index)
    return found
