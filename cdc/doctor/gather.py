"""Reads the facts that the doctor checks: a dozen queries, for any number of tables, and one replication connection.

https://www.postgresql.org/docs/18/functions-info.html#FUNCTIONS-INFO-ACCESS
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cdc.config.outbox_check import literal_pattern
from cdc.config.settings import Config
from cdc.doctor.source_facts import OutboxFacts, RoleFacts, SourceFacts, TableRights
from cdc.replication.blockers import blockers
from cdc.replication.catalog_queries import reading, source_identity, tables_matching, wal_settings
from cdc.replication.connect import Connection, connect
from cdc.replication.publication import publication_facts
from cdc.replication.slot import slot_facts
from cdc.replication.table_shape import SourceTable
from cdc.replication.wal_pressure import failover_facts
from cdc.startup.start_facts import replication_error

APPLICATION_NAME: Final = "cdc doctor"

# On managed servers, members of a special role may replicate without the attribute.
_ROLE: Final = """
select r.rolname::text, r.rolsuper,
       r.rolreplication or exists (select from pg_roles m where m.rolname in ('rds_replication', 'azure_pg_admin')
                                   and pg_has_role(r.oid, m.oid, 'member')),
       has_database_privilege(current_database(), 'create'), pg_backend_pid()
from pg_roles r
where r.rolname = current_user
"""

_USED: Final = "select (select count(*) from pg_replication_slots), (select count(*) from pg_stat_replication)"

_RIGHTS: Final = """
select c.oid::int8, pg_get_userbyid(c.relowner)::text, pg_has_role(c.relowner, 'usage'),
       has_table_privilege(c.oid, 'select'), has_schema_privilege(c.relnamespace, 'usage'),
       row_security_active(c.oid),
       coalesce((select array_agg(i.relname::text order by i.relname)
                 from pg_index x join pg_class i on i.oid = x.indexrelid
                 where x.indrelid = c.oid and x.indisunique and x.indimmediate and x.indisvalid
                   and x.indpred is null and x.indexprs is null
                   and not exists (select from unnest(x.indkey::int2[]) with ordinality as k (attnum, place)
                                   join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
                                   where k.place <= x.indnkeyatts and not (a.attnotnull and a.attgenerated = ''))),
                '{}')
from pg_class c
where c.oid = any(%(oids)s::oid[])
"""

_OUTBOX_RIGHTS: Final = """
select pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'usage'),
       has_schema_privilege(c.relnamespace, 'usage') and has_table_privilege(c.oid, 'select'),
       has_table_privilege(c.oid, 'delete') and has_table_privilege(c.oid, 'select')
from pg_class c where c.oid = %(oid)s::oid
"""

# A partitioned table stores no values itself; pg_partition_tree returns a plain table unchanged.
_TOAST: Final = """
select t.oid::int8, sum(pg_relation_size(c.reltoastrelid))::int8
from unnest(%(oids)s::oid[]) as t (oid), pg_partition_tree(t.oid::regclass) as p
join pg_class c on c.oid = p.relid and c.reltoastrelid <> 0
group by t.oid
"""


def gather(config: Config) -> SourceFacts:
    """Read the source of `config`. Raises a TailraceError when it cannot be reached or read."""
    connection = connect(config.source.dsn, application_name=APPLICATION_NAME)
    try:
        identity = source_identity(connection)
        role, pooled = _role(connection)
        tables = tables_matching(connection, config.source.tables, config.source.keyless, config.source.keys)
        with reading("count slots and senders"):
            used = connection.execute(_USED).fetchone()
        assert used is not None
        slot = slot_facts(connection, config.slot)
        return SourceFacts(
            version_num=identity.server_version_num,
            database=identity.database,
            in_recovery=identity.in_recovery,
            settings=wal_settings(connection),
            slots_used=used[0],
            senders_used=used[1],
            role=role,
            pooled=pooled,
            replication_error=replication_error(config),
            slot=slot,
            publication=publication_facts(connection, config.publication),
            tables=tuple(tables),
            rights=table_rights(connection, tables),
            blockers=tuple(blockers(connection)),
            outbox=_outbox(config, connection),
            failover=failover_facts(connection, slot, wanted=config.source.failover and not identity.in_recovery),
        )
    finally:
        connection.close()


def _outbox(config: Config, connection: Connection) -> OutboxFacts | None:
    if config.outbox is None:
        return None
    found = tables_matching(connection, [literal_pattern(config.outbox.table)])
    if not found:
        return None
    with reading("read rights on the outbox"):
        row = connection.execute(_OUTBOX_RIGHTS, {"oid": found[0].oid}).fetchone()
    assert row is not None
    owner, owned, can_select, can_delete = row
    return OutboxFacts(table=found[0], owner=owner, owned=owned, can_select=can_select, can_delete=can_delete)


def table_rights(connection: Connection, tables: Sequence[SourceTable]) -> dict[int, TableRights]:
    """Return the role's rights on each table, by oid; a table dropped meanwhile is omitted."""
    oids = [table.oid for table in tables]
    with reading("read rights on tables"):
        toast: dict[int, int] = dict(connection.execute(_TOAST, {"oids": oids}).fetchall())
        rows = connection.execute(_RIGHTS, {"oids": oids}).fetchall()
    return {
        oid: TableRights(
            owner=owner,
            owned=owned,
            can_select=can_select,
            can_use_schema=can_use_schema,
            filtered=filtered,
            candidate_indexes=tuple(candidates),
            toast_bytes=toast.get(oid, 0),
        )
        for oid, owner, owned, can_select, can_use_schema, filtered, candidates in rows
    }


def _role(connection: Connection) -> tuple[RoleFacts, bool]:
    """Return the role, and whether a pooler is in between: a pooler reports process ids of its own."""
    with reading("read the role"):
        row = connection.execute(_ROLE).fetchone()
    assert row is not None
    name, superuser, replication, can_create, pid = row
    role = RoleFacts(name=name, superuser=superuser, replication=replication or superuser, can_create=can_create)
    return role, connection.info.backend_pid != pid
