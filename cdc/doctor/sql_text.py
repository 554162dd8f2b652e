"""Quotes names and texts for SQL statements."""

from __future__ import annotations

from psycopg import sql

from cdc.replication.table_shape import SourceTable


def ident(*parts: str) -> str:
    """Return a quoted, optionally qualified name."""
    return sql.Identifier(*parts).as_string(None)


def literal(text: str) -> str:
    """Return a quoted text. Strips the blank that psycopg puts before an escape string."""
    return sql.Literal(text).as_string(None).strip()


def name_of(table: SourceTable) -> str:
    """Return the qualified name of a table."""
    return ident(table.namespace, table.name)
