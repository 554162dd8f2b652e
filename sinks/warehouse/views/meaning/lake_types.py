"""PostgreSQL's types of the lake's columns, for views in PostgreSQL's SQL. Pure.

A manifest keeps them for the tables that such views read: `stored` writes them, `types_of` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from sinks.warehouse.lake.table_naming import sql_name
from sinks.warehouse.views.meaning.inputs_of import Source
from sinks.warehouse.views.meaning.pg_types import (
    INT4,
    INT8,
    TEXT,
    TIMESTAMPTZ,
    Columns,
    PgType,
    column_type,
    read,
    written,
)

if TYPE_CHECKING:
    from sinks.warehouse.lake.manifest import TableState

__all__ = ["Source", "Types", "sources_of", "stored", "types_of"]

Types = Mapping[str, Columns]
"""Lake table -> its columns, without those that the lake adds."""

_POSITION: Final = {"_epoch": INT4, "_commit_lsn": INT8, "_ordinal": INT4, "_committed_at": TIMESTAMPTZ}
_ADDED: Final[Mapping[str, Mapping[str, PgType]]] = {
    "archive": {**_POSITION, "_op": TEXT, "_partition": INT4, "_offset": INT8},
    "history": {
        "_valid_from_lsn": INT8,
        "_valid_from_ordinal": INT4,
        "_valid_from": TIMESTAMPTZ,
        "_valid_to_lsn": INT8,
        "_valid_to": TIMESTAMPTZ,
        "_epoch": INT4,
        "_op": TEXT,
    },
}


def stored(columns: Iterable[tuple[str, str, int, str]]) -> dict[str, str]:
    """Return the form in a manifest of columns: name, PostgreSQL's type, its modifier, Spark's type in the lake."""
    return {name: written(column_type(kind, modifier, lake), lake) for name, kind, modifier, lake in columns}


def types_of(tables: Mapping[str, TableState]) -> dict[str, dict[str, PgType]]:
    """Return the types in a manifest; tables without types are left out."""
    return {
        table: {name: read(text)[0] for name, text in state.columns.items()}
        for table, state in tables.items()
        if state.columns
    }


def sources_of(tables: Mapping[str, str], types: Types) -> dict[str, Source]:
    """Return temporary view -> its columns, for those with known types."""
    return {name: _source(table, types[table]) for name, table in tables.items() if table in types}


def _source(table: str, columns: Columns) -> Source:
    """Return a table. ``*`` of a mirror is that of the table in PostgreSQL; other kinds have no table there."""
    kind = table.partition("/")[0]
    if kind == "mirror":
        return Source(columns, _POSITION, sql_name(table))
    return Source({**columns, **_ADDED.get(kind, {})}, name=sql_name(table))
