"""Reads properties of an open Delta table, and configures new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc.errors import SinkUnfit
from sinks.warehouse.delta.stored_types import stored_schema
from sinks.warehouse.lake.committer import OPEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable

TARGET_FILE_BYTES: Final = 16 << 20  # a merge rewrites whole files: 0.26 s with 8 MiB, 0.45 s with 32 (2026-11-21)
STATISTICS_COLUMNS: Final = 32  # deltalake collects statistics for that many columns by default

_INDEXED: Final = "delta.dataSkippingNumIndexedCols"

_CONFIGURATION: Final = {
    "delta.targetFileSize": str(TARGET_FILE_BYTES),
    # Opening a table reads the log back to the last checkpoint: 8 ms at 100 entries, 3 ms at 20 (2026-11-21).
    "delta.checkpointInterval": "20",
    # Each checkpoint lists removed files for this long. The default is a week: 100,000s of files with a cut every 5 s.
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    # Only `vacuum` cleans the log, because it knows the versions that are needed. Without the first setting, an
    # optimize commit with a checkpoint deletes the log before it, whatever its hook properties say.
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": "interval 0 days",
}


def configuration(columns: Sequence[str], key: Sequence[str]) -> dict[str, str]:
    """Return the configuration of a new table. Its statistics include the last column of the key."""
    if all(columns.index(name) < STATISTICS_COLUMNS for name in key):
        return _CONFIGURATION
    return {**_CONFIGURATION, _INDEXED: str(1 + max(map(columns.index, key)))}


def indexed_columns(opened: DeltaTable) -> int:
    """Return how many of its columns have statistics."""
    return int(opened.metadata().configuration.get(_INDEXED, STATISTICS_COLUMNS))


def columns_of(opened: DeltaTable) -> pa.Schema:
    """Return its columns, in the types that rows are converted to before they are written."""
    return stored_schema(pa.schema(opened.schema().to_arrow()))


def without_open(schema: pa.Schema) -> pa.Schema:
    """Return the columns that files have: a history's partition is not in them."""
    return pa.schema([field for field in schema if field.name != OPEN])


def adds_columns(table: str, opened: DeltaTable, rows: pa.Table) -> bool:
    """Whether `rows` has columns that the table lacks. A changed type is refused: deltalake would cast it silently."""
    known = {field.name: field.type for field in columns_of(opened)}
    for field in rows.schema:
        if field.name in known and known[field.name] != field.type:
            raise SinkUnfit(
                f"column {field.name} of {table} is {known[field.name]}, but the rows have {field.type}",
                hint="the table must be rewritten with the new type first",
                table=table,
                column=field.name,
            )
    return any(field.name not in known for field in rows.schema)


def row_count(opened: DeltaTable) -> int | None:
    """Return its rows as the log counts them; None if the log has no count for some file."""
    actions = pa.table(opened.get_add_actions(flatten=True))
    if "num_records" not in actions.column_names:
        return 0 if actions.num_rows == 0 else None
    counts = actions.column("num_records")
    return None if counts.null_count else int(pc.sum(counts).as_py() or 0)
