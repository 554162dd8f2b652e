"""Reads and writes files of a table for handmade commits: rows in, actions of a Delta log out.

A written file belongs to the table only after the commit that names it. Columns without changes are not processed, and
texts that do not shrink are not compressed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from sinks.warehouse.delta.file_statistics import leaves, stats_json
from sinks.warehouse.delta.key_ranges import FileRange
from sinks.warehouse.delta.patch import Match, match

ROW_GROUP_ROWS_MAX: Final = 131_072  # readers skip row groups by their statistics; the default is a million rows
SMALL_BYTES: Final = 2 << 20
AT_ONCE: Final = 2  # files; each is about ten MB of rows
_FULL: Final = 1.5  # times the target size: a larger file is split
_SHRINKS: Final = 0.8  # bytes in the file per byte of values: above it, compression costs time and saves nothing
FILE_ROWS_MAX: Final = 262_144  # files of narrow rows are smaller: a few changed rows rewrite a whole one
_ROW_BYTES: Final = 100.0  # assumed for a table without files
_PLAIN: Final = "NONE"
_COMPRESSED: Final = "SNAPPY"  # every reader has it

Action = AddAction | RemoveAction


class Files(Protocol):
    """A table's folder: a local `pyarrow.fs.FileSystem`, or `sinks.warehouse.delta.object_files.ObjectFiles`."""

    def open_input_file(self, path: str) -> pa.NativeFile:
        """A file to read. Raises OSError."""

    def open_output_stream(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """Create a file. It exists once the block has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The version to change.

    Attributes:
        storage: the table's folder.
        schema: its columns in their stored types; the table has no partitions.
        files: from `sinks.warehouse.delta.key_ranges.ranges_of` for the first column of `key`.
        key: names of the key's columns.
        file_bytes: target size of files.
        indexed: number of columns with statistics.
        small_bytes: a smaller file takes new rows even if none of its own changed.
        partition: partition column -> value of the files; their rows do not have these columns.
    """

    storage: Files
    schema: pa.Schema
    files: Sequence[FileRange]
    key: tuple[str, ...]
    file_bytes: int
    indexed: int
    small_bytes: int
    partition: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Writing:
    """How rows are written: rows per file, and compression by column; columns that are not named are compressed."""

    file_rows: int
    compressions: Mapping[str, str] = field(default_factory=dict)


def partition_folder(partition: Mapping[str, str]) -> str:
    """Return where the files of a partition are, below the table; empty for a table without partitions."""
    return "".join(f"{column}={value}/" for column, value in partition.items())


def open_file(storage: Files, file: FileRange) -> pq.ParquetFile:
    """Open a file for reading."""
    return pq.ParquetFile(storage.open_input_file(file.path))


def rows_in(opened: pq.ParquetFile, schema: pa.Schema) -> pa.Table:
    """Return the columns of `schema`; columns that the file lacks are null."""
    there = set(opened.schema_arrow.names)
    stored = opened.read(columns=[name for name in schema.names if name in there], use_threads=False)
    columns = [
        stored[one.name].cast(one.type) if one.name in there else pa.nulls(stored.num_rows, one.type) for one in schema
    ]
    return pa.table(columns, schema=schema)


def matched_in(target: Target, file: FileRange, keys: pa.Table) -> Match:
    """Find the rows of a file with one of the keys. Reads only the key's columns."""
    with open_file(target.storage, file) as opened:
        stored = rows_in(opened, pa.schema([target.schema.field(name) for name in target.key]))
    return match(stored, keys, target.key)


def removed(file: FileRange, partition: Mapping[str, str] | None = None) -> RemoveAction:
    """Return the action that removes a file from the table."""
    values: dict[str, str | None] = dict(partition or {})
    return RemoveAction(
        file.path, data_change=True, deletion_timestamp=_now_ms(), size=file.size, partition_values=values
    )


def written(target: Target, rows: pa.Table, writing: Writing) -> list[Action]:
    """Write rows to files of about the target size; no files for no rows."""
    pieces = 1 if rows.num_rows <= writing.file_rows * _FULL else -(-rows.num_rows // writing.file_rows)
    step = -(-rows.num_rows // pieces)
    return [
        _file(target, rows.slice(start, step), writing.compressions) for start in range(0, rows.num_rows, step or 1)
    ]


def written_again(target: Target, file: FileRange, footer: pq.FileMetaData, rows: pa.Table) -> list[Action]:
    """Write the new rows of a file in its place."""
    return [
        removed(file, target.partition),
        *written(target, rows, Writing(file_rows(target, [file]), _compressions(footer, rows))),
    ]


def file_rows(target: Target, files: Collection[FileRange]) -> int:
    """Return how many rows, as large as in these files, make a file of the target size."""
    rows = sum(file.rows or 0 for file in files)
    row_bytes = sum(file.size for file in files if file.rows) / rows if rows else _ROW_BYTES
    return min(max(int(target.file_bytes / row_bytes), 1), FILE_ROWS_MAX)


def _file(target: Target, rows: pa.Table, compressions: Mapping[str, str]) -> AddAction:
    name = f"{partition_folder(target.partition)}part-00000-{uuid4()}-c000.parquet"
    with target.storage.open_output_stream(name) as stream:
        with pq.ParquetWriter(
            stream,
            rows.schema,
            compression={leaf: compressions.get(leaf, _COMPRESSED) for leaf, _ in leaves(rows.schema)},
            use_dictionary=False,
            store_schema=False,
            store_decimal_as_integer=True,
        ) as writer:
            writer.write_table(rows, row_group_size=ROW_GROUP_ROWS_MAX)
        footer, size = writer.writer.metadata, stream.tell()
    return AddAction(
        path=name,
        size=size,
        partition_values=dict(target.partition),
        modification_time=_now_ms(),
        data_change=True,
        stats=stats_json(footer, rows.schema, target.indexed),
    )


def _compressions(footer: pq.FileMetaData, rows: pa.Table) -> dict[str, str]:
    """Return the columns of a file that compression does not shrink: digests, identifiers, compressed data."""
    bytes_in_file = dict.fromkeys(rows.column_names, 0)
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            column = footer.row_group(group).column(index)
            if column.path_in_schema in bytes_in_file:
                bytes_in_file[column.path_in_schema] += column.total_compressed_size
    return {
        name: _PLAIN
        for name, size in bytes_in_file.items()
        if _is_text(rows.schema.field(name).type) and size >= _SHRINKS * rows[name].nbytes
    }


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
