"""Names and texts as PostgreSQL reads them in a statement: quoted, whatever they hold."""

from __future__ import annotations

from psycopg import sql

from cdc.replication.table_shape import SourceTable


def ident(*parts: str) -> str:
    """A quoted, perhaps qualified name."""
    return sql.Identifier(*parts).as_string(None)


def literal(text: str) -> str:
    """A quoted text. psycopg puts a blank before an escape string; here it may start a line."""
    return sql.Literal(text).as_string(None).strip()


def name_of(table: SourceTable) -> str:
    """The qualified name of a table."""
    return ident(table.namespace, table.name)
