"""Replaces an outbox with a partitioned one while applications write.

Rows are not copied, because the WAL has every committed row. A new table is created beside the old one. Then one
transaction swaps their names and replaces the old table with the new one in publications; it must be one transaction,
so that no insert falls in between. It holds the lock of the table for a few catalog statements. Writers that wait for
the lock then write to the new table, because PostgreSQL resolves the name again. In the stream, rows of the old table
come before those of the new one.

An outbox with triggers, policies, foreign keys or views is refused before anything is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

from sqlalchemy import Connection, text

from outbox.errors import MigrationRefused
from outbox.table_names import Names, quoted
from outbox.table_partitions import create_day, create_default

_NEW: Final = "_new"
_BEFORE: Final = "_before"

_OID: Final = """
select c.oid from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = :schema and c.relname = :name
"""
_ATTACHED: Final = """
select 'a trigger' from pg_catalog.pg_trigger where tgrelid = :oid and not tgisinternal
union all select 'a foreign key' from pg_catalog.pg_constraint
    where confrelid = :oid or (conrelid = :oid and contype = 'f')
union all select 'row security' from pg_catalog.pg_class where oid = :oid and relrowsecurity
union all select 'a view' from pg_catalog.pg_depend d join pg_catalog.pg_rewrite r on r.oid = d.objid
    where d.refobjid = :oid and d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and r.ev_class <> :oid
union all select 'a publication with a column list or a row filter' from pg_catalog.pg_publication_rel
    where prrelid = :oid and (prattrs is not null or prqual is not null)
"""
_PUBLICATIONS: Final = """
select p.pubname from pg_catalog.pg_publication_rel r join pg_catalog.pg_publication p on p.oid = r.prpubid
where r.prrelid = :oid order by 1
"""
_GRANTS: Final = """
select a.privilege_type, case when a.grantee = 0 then null else pg_catalog.pg_get_userbyid(a.grantee) end,
    a.is_grantable
from pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a where c.oid = :oid and a.grantee <> c.relowner
"""


def prepare(connection: Connection, names: Names, days: Sequence[date]) -> None:
    """Create the new table with partitions for `days`, in one transaction. Raises MigrationRefused."""
    oid = _oid(connection, names.schema, names.outbox)
    attached = sorted(set(connection.execute(text(_sql(_ATTACHED)), {"oid": oid}).scalars()))
    if attached:
        raise MigrationRefused(
            f"cannot replace {names.schema}.{names.outbox}: it has {', '.join(attached)}",
            hint="remove it first, or create a partitioned outbox under another name and switch the writers to it",
        )
    new = names.outbox + _NEW
    statements = [
        f"drop table if exists {names.qualified(new)}",
        (
            f"create table {names.qualified(new)} (like {names.qualified(names.outbox)} including defaults "
            "including constraints including comments) partition by range (created_at)"
        ),
        f"alter table {names.qualified(new)} add constraint {quoted(new + '_pkey')} primary key (id, created_at)",
        create_default(names.schema, names.outbox, of=new),
        *(create_day(names.schema, names.outbox, day, of=new) for day in days),
        *_grants(connection, oid, names.qualified(new)),
    ]
    for statement in statements:
        connection.execute(text(_sql(statement)))
    connection.commit()


def swap(connection: Connection, names: Names) -> str:
    """Swap the tables in one transaction; return the new name of the old one."""
    old, new = names.outbox + _BEFORE, names.outbox + _NEW
    oid = _oid(connection, names.schema, names.outbox)
    publications = list(connection.execute(text(_sql(_PUBLICATIONS)), {"oid": oid}).scalars())
    here = names.qualified(names.outbox)
    statements = [
        f"lock table {here} in access exclusive mode",
        f"alter table {here} rename constraint {quoted(names.outbox + '_pkey')} to {quoted(old + '_pkey')}",
        f"alter table {here} rename to {quoted(old)}",
        (
            f"alter table {names.qualified(new)} rename constraint {quoted(new + '_pkey')} to "
            f"{quoted(names.outbox + '_pkey')}"
        ),
        f"alter table {names.qualified(new)} rename to {quoted(names.outbox)}",
    ]
    for publication in publications:
        statements += [
            f"alter publication {quoted(publication)} drop table {names.qualified(old)}",
            f"alter publication {quoted(publication)} add table {here}",
        ]
    for statement in statements:
        connection.execute(text(_sql(statement)))
    connection.commit()
    return old


def _grants(connection: Connection, oid: int, table: str) -> list[str]:
    rows = connection.execute(text(_sql(_GRANTS)), {"oid": oid}).all()
    return [
        f"grant {privilege} on {table} to {'public' if role is None else quoted(role)}"
        + (" with grant option" if grantable else "")
        for privilege, role, grantable in rows
    ]


def _oid(connection: Connection, schema: str, name: str) -> int:
    found = connection.execute(text(_OID), {"schema": schema, "name": name}).scalar()
    if found is None:
        raise MigrationRefused(f"table {schema}.{name} not found")
    return int(found)


def _sql(statement: str) -> str:
    """Escape a statement for SQLAlchemy's `text`, in which only ``:oid`` is a parameter."""
    return statement.replace(":", "\\:").replace("\\:oid", ":oid")
