"""Finds the generated columns that PostgreSQL leaves out of the stream, and the statement that publishes them.

Up to PostgreSQL 17 generated columns are never published. From 18 on a publication can include the stored ones
(`publish_generated_columns = stored`, or in a column list). Virtual ones are never published: they are computed when
they are read. https://www.postgresql.org/docs/18/logical-replication-gencols.html
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import psycopg
from psycopg import sql

from cdc.model.table_facts import ColumnsLeftOut
from cdc.replication.connect import Connection
from cdc.replication.error_mapping import translate
from cdc.replication.publication import GENERATED_SINCE, Ensured, PublicationFacts, publication_facts
from cdc.replication.table_shape import SourceTable


def publish_generated(connection: Connection, ensured: Ensured, tables: Sequence[SourceTable], create: bool) -> Ensured:  # noqa: FBT001
    """Publish stored generated columns, if this role owns the publication; otherwise leave it unchanged.

    `create` is `source.create`. Rows that were published before lack the columns; `cdc.model.ddl_finding` finds that.
    """
    facts = ensured.facts
    statement = publishing(facts, tables, connection.info.server_version)
    if not statement or not create or not facts.owned:
        return ensured
    try:
        connection.execute(statement.encode())
    except psycopg.Error as error:
        doing = f"publish generated columns in publication {facts.name!r}"
        raise translate(error, doing, publication=facts.name) from error
    return replace(ensured, facts=publication_facts(connection, facts.name) or facts, altered=statement)


def publishing(facts: PublicationFacts | None, tables: Sequence[SourceTable], version_num: int) -> str:
    """Return the statement that publishes stored generated columns of `tables`; empty if none is needed."""
    if facts is None or facts.generated or version_num < GENERATED_SINCE:
        return ""
    if not any(_by_option(table, facts) for table in tables):
        return ""
    name = sql.Identifier(facts.name).as_string(None)
    return f"alter publication {name} set (publish_generated_columns = stored);"


def left_out(tables: Iterable[SourceTable], facts: PublicationFacts | None, version_num: int) -> list[ColumnsLeftOut]:
    """Return the columns that the publication, or a new one if there is none, leaves out, by table."""
    found = []
    for table in tables:
        virtual = tuple(column.name for column in table.columns if column.virtual)
        stored = _stored_left_out(table, facts, version_num)
        if stored:
            found.append(_stored(table, stored, facts, version_num))
        if virtual:
            why = "PostgreSQL never publishes virtual generated columns"
            found.append(ColumnsLeftOut(table.table, virtual, why, stored=False))
    return found


def _stored(
    table: SourceTable, columns: tuple[str, ...], facts: PublicationFacts | None, version_num: int
) -> ColumnsLeftOut:
    if version_num < GENERATED_SINCE:
        why = f"PostgreSQL {version_num // 10000} cannot publish generated columns; this requires 18 or later"
        return ColumnsLeftOut(table.table, columns, why)
    assert facts is not None
    if table.oid in facts.listed:
        return ColumnsLeftOut(table.table, columns, f"the column list of publication {facts.name!r} does not name them")
    why = f"publication {facts.name!r} does not publish generated columns"
    return ColumnsLeftOut(table.table, columns, why, sql=publishing(facts, [table], version_num))


def _stored_left_out(table: SourceTable, facts: PublicationFacts | None, version_num: int) -> tuple[str, ...]:
    stored = tuple(column.name for column in table.columns if column.generated and not column.virtual)
    if facts is None or table.oid not in facts.columns:  # Tailrace will publish it, with every column it can
        return stored if version_num < GENERATED_SINCE else ()
    return tuple(name for name in stored if name not in facts.columns[table.oid])


def _by_option(table: SourceTable, facts: PublicationFacts) -> bool:
    """Return whether the option, and not a column list, decides about stored generated columns of a table."""
    return table.oid not in facts.listed and any(column.generated and not column.virtual for column in table.columns)
