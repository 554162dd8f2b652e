"""Reads the columns of a table that the stream has, as the catalog of PostgreSQL describes them."""

from __future__ import annotations

from typing import Any, Final

from cdc.config.settings import Config
from cdc.replication import catalog_queries
from cdc.replication.connect import Connection
from cdc.replication.table_shape import SourceTable

# The view of PostgreSQL 15 lists generated columns, which are not published before 18.
PUBLISHED: Final = """published as (
    select a.attname::text as name, a.attnum, a.atttypid, p.rowfilter
    from pg_catalog.pg_publication_tables p
    join pg_catalog.pg_attribute a on a.attrelid = %(oid)s::oid and a.attname = any (p.attnames)
      and (a.attgenerated = '' or current_setting('server_version_num')::int4 >= 180000)
    where p.pubname = %(publication)s and p.schemaname = %(namespace)s and p.tablename = %(table)s
)"""
"""A WITH query: name, attnum, atttypid and rowfilter of the published columns."""

EXTENSION: Final = """(select x.extname from pg_catalog.pg_depend d join pg_catalog.pg_extension x on x.oid = d.refobjid
        where d.classid = 'pg_catalog.pg_type'::regclass and d.objid = t.oid and d.deptype = 'e'
          and d.refclassid = 'pg_catalog.pg_extension'::regclass)"""
"""The extension that the type `t` belongs to."""


def published_columns(connection: Connection, config: Config, table: SourceTable, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query over `PUBLISHED` about a table; none if it is not published."""
    about = {
        "publication": config.publication,
        "namespace": table.namespace,
        "table": table.name,
        "oid": table.oid,
    }
    with catalog_queries.reading("read the published columns"):
        return connection.execute(query.encode(), about).fetchall()
