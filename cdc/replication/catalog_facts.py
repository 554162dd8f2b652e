"""Reads the facts that `cdc.model.ddl_finding` compares: a digest of every captured table, details of changed ones.

The server computes the digest from everything that DDL touches; each change gives a pg_attribute row another xmin. For
2,000 tables of 15 columns this takes the server 60 ms and returns 2,000 short rows (18.6, 2026-11-22).

https://www.postgresql.org/docs/18/catalogs.html
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from cdc.lsn import Lsn
from cdc.model.table_facts import CatalogScope, ColumnFacts, LeafFacts, TableFacts
from cdc.patterns import matches
from cdc.replication.catalog_queries import current_wal, one_snapshot, reading, visible_transactions
from cdc.replication.connect import Connection

_DOING: Final = "read facts of tables"

_SCOPE: Final = """
select pg_catalog.pg_current_wal_insert_lsn()::text,
       pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::int8,
       p.puballtables,
       array(select n.nspname::text
             from pg_catalog.pg_publication_namespace m join pg_catalog.pg_namespace n on n.oid = m.pnnspid
             where m.pnpubid = p.oid order by 1)
from pg_catalog.pg_publication p
where p.pubname = %(publication)s
"""

# A partition is part of the table at its root; a child by inheritance is a table of its own.
_DIGESTS: Final = """
with recursive tree (root, relid, kind) as (
    select c.oid, c.oid, c.relkind
    from pg_catalog.pg_publication p
    cross join lateral pg_catalog.pg_get_publication_tables(p.pubname) g
    join pg_catalog.pg_class c on c.oid = g.relid
    where p.pubname = %(publication)s
    union all
    select tree.root, c.oid, c.relkind
    from tree
    join pg_catalog.pg_inherits i on i.inhparent = tree.relid
    join pg_catalog.pg_class c on c.oid = i.inhrelid
    where tree.kind = 'p'
)
select part.root::int8, n.nspname::text, r.relname::text, pg_catalog.bit_xor(part.hash)
from (
    select tree.root, pg_catalog.hash_record_extended(row(c.oid, c.relfilenode), 0) as hash
    from tree join pg_catalog.pg_class c on c.oid = tree.relid
    union all
    select tree.root, pg_catalog.hash_record_extended(row(a.attrelid, a.attnum, a.xmin), 0)
    from tree join pg_catalog.pg_attribute a on a.attrelid = tree.relid
    where a.attnum > 0
    union all  -- which columns the publication has
    select g.relid, pg_catalog.hash_record_extended(row(g.relid, g.attrs::text), 0)
    from pg_catalog.pg_publication p
    cross join lateral pg_catalog.pg_get_publication_tables(p.pubname) g
    where p.pubname = %(publication)s
) part
join pg_catalog.pg_class r on r.oid = part.root
join pg_catalog.pg_namespace n on n.oid = r.relnamespace
group by part.root, n.nspname, r.relname
"""

# A partition created by CREATE TABLE ... PARTITION OF is linked two commands after its columns (16.14, 18.6). One that
# got rows and was attached in the transaction that created it is linked later.
_LEAVES: Final = """
with recursive tree (root, relid, kind, born) as (
    select c.oid, c.oid, c.relkind, true from pg_catalog.pg_class c where c.oid = any(%(oids)s::oid[])
    union all
    select tree.root, c.oid, c.relkind,
           tree.born and a.xmin = i.xmin and i.cmin::text::int8 - a.cmin::text::int8 <= 2
    from tree
    join pg_catalog.pg_inherits i on i.inhparent = tree.relid
    join pg_catalog.pg_class c on c.oid = i.inhrelid
    join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = -1
    where tree.kind = 'p'
)
select tree.root::int8, c.oid::int8, n.nspname::text, c.relname::text, c.relfilenode::int8, tree.born,
       array(select l.attname::text from pg_catalog.pg_attribute l where l.attrelid = c.oid and l.atthasmissing)
from tree
join pg_catalog.pg_class c on c.oid = tree.relid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where tree.kind <> 'p'
order by c.oid
"""

# pg_get_publication_tables has no attrs in 15 where there is no column list.
_COLUMNS: Final = """
select a.attrelid::int8, a.attnum, a.attname::text, a.atttypid::int8, a.atttypmod, a.xmin::text::int8,
       coalesce(d.oid, 0)::int8, a.attidentity <> 'a' and a.attgenerated = ''
from pg_catalog.pg_publication p
cross join lateral pg_catalog.pg_get_publication_tables(p.pubname) g
join pg_catalog.pg_attribute a on a.attrelid = g.relid
left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where p.pubname = %(publication)s and g.relid = any(%(oids)s::oid[]) and not a.attisdropped and a.attnum > 0
  and case when g.attrs is null then a.attgenerated = '' else a.attnum = any(g.attrs::int2[]) end
order by a.attrelid, a.attnum
"""

# The row of ctid never changes after the table was created, so its xmin is that of CREATE TABLE.
_TABLES: Final = """
select c.oid::int8, n.nspname::text, c.relname::text, coalesce(r.oid, 0)::int8, a.xmin::text::int8
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = -1
left join pg_catalog.pg_publication p on p.pubname = %(publication)s
left join pg_catalog.pg_publication_rel r on r.prpubid = p.oid and r.prrelid = c.oid
where c.oid = any(%(oids)s::oid[])
"""

_NAMES: Final = """
select c.oid::int8, n.nspname || '.' || c.relname
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = any(%(oids)s::oid[])
"""


_TAKEN: Final = """
select n.nspname || '.' || c.relname
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and n.nspname || '.' || c.relname = any(%(names)s)
"""


@dataclass(frozen=True, slots=True)
class Digest:
    """A captured table and a number that changes with any DDL of the table or its partitions."""

    table: str
    value: int


def catalog_scope(connection: Connection, publication: str, selected: Sequence[str]) -> CatalogScope | None:
    """Return what holds for all tables now; None without the publication. Read it before the other facts."""
    with reading(_DOING):
        row = connection.execute(_SCOPE, {"publication": publication}).fetchone()
    if row is None:
        return None
    lsn, xid, all_tables, schemas = row
    return CatalogScope(
        lsn=Lsn.parse(lsn), xid=xid, all_tables=all_tables, schemas=tuple(schemas), selected=tuple(selected)
    )


def digests(connection: Connection, publication: str, selected: Sequence[str]) -> dict[int, Digest]:
    """Return pg_class.oid -> digest of every published table that `selected` matches."""
    with reading(_DOING):
        rows = connection.execute(_DIGESTS, {"publication": publication}).fetchall()
    found = {oid: Digest(f"{namespace}.{name}", value) for oid, namespace, name, value in rows}
    return {oid: digest for oid, digest in found.items() if matches(digest.table, selected)}


def table_facts(connection: Connection, publication: str, oids: Collection[int]) -> dict[int, TableFacts]:
    """Return the facts of these tables, except those dropped meanwhile."""
    names = {"publication": publication, "oids": list(oids)}
    with one_snapshot(connection, _DOING):
        tables = connection.execute(_TABLES, names).fetchall()
        parts = connection.execute(_LEAVES, names).fetchall()
        rows = connection.execute(_COLUMNS, names).fetchall()
    leaves: dict[int, list[LeafFacts]] = {}
    missing: set[tuple[int, str]] = set()
    for root, *leaf, absent in parts:
        leaves.setdefault(root, []).append(LeafFacts(*leaf))
        missing.update((root, name) for name in absent)
    columns: dict[int, list[ColumnFacts]] = {}
    for oid, number, name, type_oid, modifier, xmin, default, settable in rows:
        column = ColumnFacts(number, name, type_oid, modifier, xmin, default, (oid, name) in missing, settable)
        columns.setdefault(oid, []).append(column)
    return {
        oid: TableFacts(
            oid, namespace, name, member, created_xid, tuple(columns.get(oid, ())), tuple(leaves.get(oid, ()))
        )
        for oid, namespace, name, member, created_xid in tables
    }


def names_of(connection: Connection, oids: Collection[int]) -> dict[int, str]:
    """Return ``schema.table`` of those that still exist, published or not."""
    if not oids:
        return {}
    with reading(_DOING):
        return dict(connection.execute(_NAMES, {"oids": list(oids)}).fetchall())


def taken(connection: Connection, names: Collection[str]) -> frozenset[str]:
    """Return those of the names (``schema.table``) that a table has now."""
    if not names:
        return frozenset()
    with reading(_DOING):
        rows = connection.execute(_TAKEN, {"names": list(names)}).fetchall()
    return frozenset(name for (name,) in rows)


class CatalogReader:
    """Implements `cdc.capture.ddl_watch.Catalog` on an open connection."""

    def __init__(self, connection: Connection, publication: str, selected: Sequence[str]) -> None:
        self._connection = connection
        self._publication = publication
        self._selected = selected

    def one_snapshot(self) -> AbstractContextManager[None]:
        """Let the queries of a block see the same catalog."""
        return one_snapshot(self._connection, _DOING)

    def version(self) -> str:
        """See `visible_transactions`."""
        return visible_transactions(self._connection)

    def scope(self) -> CatalogScope | None:
        """See `catalog_scope`."""
        return catalog_scope(self._connection, self._publication, self._selected)

    def digests(self) -> dict[int, Digest]:
        """See `digests`."""
        return digests(self._connection, self._publication, self._selected)

    def facts(self, oids: Collection[int]) -> dict[int, TableFacts]:
        """See `table_facts`."""
        return table_facts(self._connection, self._publication, oids)

    def names(self, oids: Collection[int]) -> dict[int, str]:
        """See `names_of`."""
        return names_of(self._connection, oids)

    def taken(self, names: Collection[str]) -> frozenset[str]:
        """See `taken`."""
        return taken(self._connection, names)

    def end_of_wal(self) -> Lsn:
        """Return the current WAL position, which lies behind all DDL that was seen before."""
        return current_wal(self._connection)
