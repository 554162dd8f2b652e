"""Names the PostgreSQL types of a lake table's columns, for views in PostgreSQL's SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.model.type_facts import FIRST_USER_OID
from sinks.warehouse.views.meaning.lake_types import stored

if TYPE_CHECKING:
    from cdc.model.progress_record import SchemaColumn, SchemaRecord
    from sinks.warehouse.log.lake_columns import LakeTable


def type_name(column: SchemaColumn) -> str:
    """Return a column's type for views: a user's type has a name that says nothing, unless it is an enum."""
    if column.encoding == "json_value":
        return f"{column.type} as a value"  # Spark wrote its text, whose numbers differ from PostgreSQL's
    if column.type_oid < FIRST_USER_OID:
        return column.type
    if column.encoding == "string" and column.type.rpartition(".")[2] == "citext":
        return "citext"
    return column.kind or f"user type {column.type}"


def types_stored(record: SchemaRecord, form: LakeTable) -> dict[str, str]:
    """Return the types of a table's columns for its state in the manifest."""
    pairs = zip(record.columns, form.columns, strict=True)
    return stored((column.name, type_name(column), column.type_modifier, lake.type) for column, lake in pairs)
