"""Opens a version of a Delta table and reads its log: columns, files, partition values, rows. Reads no data.

Readers take the version from the manifest, never the newest one. They take files from the log, never from the folder,
which also has files of other versions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from cdc.errors import LakeDamaged
from sinks.warehouse.lake.location import Location, Where

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FEATURES_READ: Final = frozenset({"timestampNtz"})
"""Delta's reader features that are supported. With deletion vectors or column mapping, files differ from rows."""


@dataclass(frozen=True, slots=True)
class Part:
    """Files with the same partition values.

    Attributes:
        values: partition column -> value as a Python object; empty if the table has no partitions.
        files: absolute paths, or URLs in Spark's form.
    """

    values: Mapping[str, Any]
    files: tuple[str, ...]


def pinned(lake: Where, table: str, version: int) -> DeltaTable:
    """Open a table (``mirror/public.orders``) at a version. Raises LakeDamaged, LakeUnready."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    from sinks.warehouse.lake.store_errors import store_unreachable

    location = Location.of(lake)
    place = location.uri(table)
    try:
        found = DeltaTable(place, version=version, storage_options=dict(location.options) or None)
    except OSError as error:
        raise store_unreachable(place, error) from error
    except (TableNotFoundError, DeltaError) as error:
        raise LakeDamaged(
            f"{table} has no version {version}, which a cut of the lake names",
            hint="it was deleted manually, or the cut is no longer kept; use a newer cut",
            table=table,
            version=version,
        ) from error
    strange = sorted(set(found.protocol().reader_features or ()) - _FEATURES_READ)
    if strange:
        raise LakeDamaged(
            f"{table} uses {', '.join(strange)}, which tables of a lake never have",
            hint="another program changed it; restore the version the manifest names",
            table=table,
        )
    return found


def schema_json(table: DeltaTable) -> dict[str, Any]:
    """Return its columns in Delta's JSON, which is Spark's JSON."""
    found: dict[str, Any] = json.loads(table.schema().to_json())
    return found


def row_count(table: DeltaTable) -> int:
    """Return the number of rows, from the log."""
    return table.count()


def parts(lake: Where, name: str, table: DeltaTable, only: Collection[str] | None = None) -> tuple[Part, ...]:
    """Return its files by partition, or `only` those at these paths below the table; empty for an empty table."""
    import pyarrow as pa

    location = Location.of(lake)
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = table.metadata().partition_columns
    values = [actions.column(f"partition.{column}").to_pylist() for column in columns]
    grouped: dict[tuple[Any, ...], list[str]] = {}
    for index, path in enumerate(map(unquote, actions.column("path").to_pylist())):
        # The log has paths as URIs, below the table.
        if only is None or path in only:
            group = grouped.setdefault(tuple(column[index] for column in values), [])
            group.append(location.spark_uri(name, path))
    return tuple(
        Part(dict(zip(columns, key, strict=True)), tuple(sorted(files)))
        for key, files in sorted(grouped.items(), key=repr)
    )
