"""Compares a migrated schema with the models: columns, types, defaults, keys, checks, indexes, partitioning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import CheckConstraint, Table, inspect
from sqlalchemy.dialects import postgresql

from outbox.models import JsonText, tables

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine.reflection import Inspector

    from outbox.table_names import Names


def differences(connection: Connection, names: Names, *, partitioned: bool) -> list[str]:
    """Return one sentence for each difference; empty if there are none."""
    models = tables(names, partitioned=partitioned)

    def ours(name: str | None, kind: str, parents: Any) -> bool:
        if kind == "schema":
            return name == names.schema
        return kind != "table" or (parents.get("schema_name") == names.schema and name in names.tables)

    context = MigrationContext.configure(
        connection,
        opts={
            "include_schemas": True,
            "include_name": ours,
            "compare_type": _types_differ,
            "compare_server_default": True,
            "version_table_schema": names.schema,
        },
    )
    found = [sentence for one in compare_metadata(context, models.metadata) for sentence in _sentences(one)]
    inspector = inspect(connection)
    for table in models.metadata.sorted_tables:
        if inspector.has_table(table.name, schema=names.schema):
            found += _constraints(inspector, table)
    return found


def _types_differ(_: object, __: object, ___: object, there: object, wanted: object) -> bool | None:
    """Compare json columns, which are read back as the dialect's own type; leave the rest to Alembic."""
    if isinstance(wanted, JsonText):
        return not isinstance(there, postgresql.JSON) or isinstance(there, postgresql.JSONB)
    return None


def _sentences(one: Any) -> Iterator[str]:
    """Convert an operation of Alembic: a tuple, or a list of tuples for a column."""
    if isinstance(one, list):
        for inner in one:
            yield from _sentences(inner)
        return
    action, *about = one
    words = [str(getattr(part, "name", part)) for part in about if part is not None and not isinstance(part, dict)]
    yield f"{action.replace('_', ' ')}: {' '.join(words)}"


def _constraints(inspector: Inspector, table: Table) -> Iterator[str]:
    """Compare primary keys and check constraints, which Alembic does not."""
    wanted = [column.name for column in table.primary_key.columns]
    there = inspector.get_pk_constraint(table.name, schema=table.schema)["constrained_columns"]
    if wanted != there:
        yield f"primary key of {table.name}: ({', '.join(there)}), expected ({', '.join(wanted)})"
    checks = {str(one.name) for one in table.constraints if isinstance(one, CheckConstraint)}
    found = {str(one["name"]) for one in inspector.get_check_constraints(table.name, schema=table.schema)}
    if checks != found:
        yield f"check constraints of {table.name}: {sorted(found)}, expected {sorted(checks)}"
