"""A merge by hand: only files that have a key of the batch are read, patched in place and written again.

A general merge joins the table with the batch and writes what comes out of it: 0.6 s of CPU for a million rows and
three thousand updates (2026-11-23). Here a file keeps its rows in their order and its range of keys, columns that no
update changed are not touched in memory, and texts that do not shrink are not compressed. What comes out are the
actions of one commit, which `sinks.warehouse.deltars` makes; before it, files that were written are nobody's.

A new key goes to the file whose range it falls into, when that is written anyway or is small. The others make files of
their own, so that rows behind the end of a table do not write its last file again in each cut.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from sinks.warehouse.committer import DELETED
from sinks.warehouse.deltatable import columns_of
from sinks.warehouse.filestats import stats_json
from sinks.warehouse.keyranges import FileRange, between, in_order, ranges_of, sorted_keys
from sinks.warehouse.patch import Match, among, inserted, is_keyable, match, patched

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from contextlib import AbstractContextManager

    from deltalake import DeltaTable

ROW_GROUP_ROWS_MAX: Final = 131_072  # readers skip row groups by their statistics; the default is a million rows
_AT_ONCE: Final = 2  # files; each is some ten MB of rows
_SMALL_BYTES: Final = 2 << 20  # a file that takes new rows though none of its own changed
_FULL: Final = 1.5  # times the wanted size: a file that is larger is written as two
_SHRINKS: Final = 0.8  # bytes in the file for a byte of values: above it, compression costs time and saves nothing
_FILE_ROWS_MAX: Final = 262_144  # of narrow rows fewer bytes a file: a few changed rows cost a whole one
_ROW_BYTES: Final = 100.0  # of a table that has no file to tell
_PLAIN: Final = "NONE"
_COMPRESSED: Final = "SNAPPY"  # every reader has it


class Files(Protocol):
    """A table's folder; a local `pyarrow.fs.FileSystem` is one, and `sinks.warehouse.objectfiles.ObjectFiles`."""

    def open_input_file(self, path: str) -> pa.NativeFile:
        """A file to read. Raises OSError."""

    def open_output_stream(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """A new file, there when the block has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The version that is merged into.

    Attributes:
        storage: the table's folder.
        schema: its columns, in the types they are stored in; it has no partitions.
        files: as `sinks.warehouse.keyranges.ranges_of` gives them for the first column of `key`.
        key: names of the key's columns.
        file_bytes: how large files are to be.
        indexed: how many columns have statistics.
    """

    storage: Files
    schema: pa.Schema
    files: Sequence[FileRange]
    key: tuple[str, ...]
    file_bytes: int
    indexed: int


@dataclass(frozen=True, slots=True)
class _Job:
    """A file, the changes that can be in it from `start` on, which of them are, and the new rows it takes."""

    file: FileRange
    changes: pa.Table
    start: int
    matched: Match
    fresh: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class _Writing:
    """How rows are written: how many a file, and compressions by column; those not named are compressed."""

    file_rows: int
    compressions: Mapping[str, str] = field(default_factory=dict)


def can_rewrite(schema: pa.Schema, key: Sequence[str]) -> bool:
    """Whether a merge into a table of these columns can be done here."""
    kinds = [schema.field(name).type for name in key]
    return is_keyable(kinds) and not any(pa.types.is_nested(one.type) for one in schema)


def is_packed(opened: DeltaTable, key: Sequence[str]) -> bool:
    """Whether to write all of it again would change nothing that matters: `rewrite` leaves ranges as they were."""
    if opened.metadata().partition_columns or not can_rewrite(columns_of(opened), key):
        return False
    return in_order(ranges_of(opened, key[0]), small_bytes=_SMALL_BYTES)


def rewrite(target: Target, changes: pa.Table) -> list[AddAction | RemoveAction]:
    """Write what a merge writes; returns the actions that make it count, none when nothing changes.

    Args:
        target: what is merged into.
        changes: each key once and never null, and `_deleted`; columns are the table's, some may be missing.
    """
    changes = changes.sort_by([(name, "ascending") for name in target.key]).combine_chunks()
    keys = sorted_keys(changes[target.key[0]])
    with ThreadPoolExecutor(_AT_ONCE, "lake-rewrite") as pool:
        asked = [(file, range(changes.num_rows) if keys is None else between(file, keys)) for file in target.files]
        looked = list(pool.map(lambda one: _looked(target, changes, *one), [one for one in asked if one[1]]))
        touched = [job for job in looked if len(job.matched)]
        is_new = pc.and_not(pc.invert(changes[DELETED].combine_chunks()), _found(touched, changes.num_rows))
        jobs, rest = _housed(target, touched, changes.filter(is_new))
        actions = [action for some in pool.map(lambda job: _rewritten(target, job), jobs) for action in some]
    rows = inserted(target.schema.empty_table(), rest, target.key)
    return actions + _written(target, rows, _Writing(_file_rows(target, target.files)))


def _looked(target: Target, changes: pa.Table, file: FileRange, places: range) -> _Job:
    """Which of the changes are in a file. Reads the columns of the key only."""
    possible = changes.slice(places.start, len(places))
    with _open(target, file) as opened:
        keys = _rows(opened, pa.schema([target.schema.field(name) for name in target.key]))
    return _Job(file, possible, places.start, match(keys, possible, target.key))


def _found(touched: Sequence[_Job], count: int) -> pa.BooleanArray:
    """For each change whether some file has its key."""
    places = [pc.add(job.matched.changes.cast(pa.int64()), job.start) for job in touched]
    return among(pc.unique(pa.concat_arrays([pa.array([], pa.int64()), *places])), count)


def _housed(target: Target, touched: Sequence[_Job], fresh: pa.Table) -> tuple[list[_Job], pa.Table]:
    """Every file that is written again, with the new rows it takes; and new rows that no such file takes."""
    jobs = {job.file.path: job for job in touched}
    keys = sorted_keys(fresh[target.key[0]])
    ranged = [file for file in target.files if file.low is not None]
    if not fresh.num_rows or keys is None or not ranged:
        return list(jobs.values()), fresh
    # From the beginning of each file to that of the next one; the first takes what comes before it, too.
    begins = [0, *(bisect_left(keys, file.low) for file in ranged[1:]), len(keys)]
    rest = []
    for number, file in enumerate(ranged):
        rows = fresh.slice(begins[number], begins[number + 1] - begins[number])
        job = jobs.get(file.path)
        if rows.num_rows and (job is not None or file.size < _SMALL_BYTES):
            known = job or _Job(file, fresh.slice(0, 0), 0, Match(pa.array([], pa.int64()), pa.array([], pa.int32())))
            jobs[file.path] = _Job(file, known.changes, known.start, known.matched, rows)
        else:
            rest.append(rows)
    return list(jobs.values()), pa.concat_tables([fresh.slice(0, 0), *rest])


def _rewritten(target: Target, job: _Job) -> list[AddAction | RemoveAction]:
    """Write a file again; what it had is removed with the same commit."""
    with _open(target, job.file) as opened:
        rows = _rows(opened, target.schema)
        compressions = _compressions(opened.metadata, rows)
    if len(job.matched):
        rows = patched(rows, job.changes, job.matched)
    if job.fresh is not None:
        rows = inserted(rows, job.fresh, target.key)
    writing = _Writing(_file_rows(target, [job.file]), compressions)
    return [
        RemoveAction(
            job.file.path, data_change=True, deletion_timestamp=_now_ms(), size=job.file.size, partition_values={}
        ),
        *_written(target, rows, writing),
    ]


def _written(target: Target, rows: pa.Table, writing: _Writing) -> list[AddAction | RemoveAction]:
    """Write rows to files of about the wanted size; none for no rows."""
    pieces = 1 if rows.num_rows <= writing.file_rows * _FULL else -(-rows.num_rows // writing.file_rows)
    step = -(-rows.num_rows // pieces)
    return [
        _file(target, rows.slice(start, step), writing.compressions) for start in range(0, rows.num_rows, step or 1)
    ]


def _file(target: Target, rows: pa.Table, compressions: Mapping[str, str]) -> AddAction:
    name = f"part-00000-{uuid4()}-c000.parquet"
    with target.storage.open_output_stream(name) as stream:
        with pq.ParquetWriter(
            stream,
            rows.schema,
            compression={column: compressions.get(column, _COMPRESSED) for column in rows.column_names},
            use_dictionary=False,
            store_schema=False,
            store_decimal_as_integer=True,
        ) as writer:
            writer.write_table(rows, row_group_size=ROW_GROUP_ROWS_MAX)
        footer, size = writer.writer.metadata, stream.tell()
    return AddAction(
        path=name,
        size=size,
        partition_values={},
        modification_time=_now_ms(),
        data_change=True,
        stats=stats_json(footer, target.indexed),
    )


def _open(target: Target, file: FileRange) -> pq.ParquetFile:
    return pq.ParquetFile(target.storage.open_input_file(file.path))


def _rows(opened: pq.ParquetFile, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`; what the file does not have is null."""
    there = set(opened.schema_arrow.names)
    stored = opened.read(columns=[name for name in schema.names if name in there], use_threads=False)
    columns = [
        stored[one.name].cast(one.type) if one.name in there else pa.nulls(stored.num_rows, one.type) for one in schema
    ]
    return pa.table(columns, schema=schema)


def _compressions(footer: pq.FileMetaData, rows: pa.Table) -> dict[str, str]:
    """Which columns of a file are not worth it: digests, identifiers, what is compressed already."""
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


def _file_rows(target: Target, files: Collection[FileRange]) -> int:
    rows = sum(file.rows or 0 for file in files)
    row_bytes = sum(file.size for file in files if file.rows) / rows if rows else _ROW_BYTES
    return min(max(int(target.file_bytes / row_bytes), 1), _FILE_ROWS_MAX)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
