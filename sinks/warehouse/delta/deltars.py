"""Writes Delta tables with `deltalake`: commits and merges without a JVM.

`commit_once` makes each commit happen once. deltalake does not fsync. So for a lake in a local folder, `settle` syncs
every file of a commit before the commit counts: after a power failure an empty log file would read as a commit
without rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    write_deltalake,
)
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from cdc.errors import InvariantError
from sinks.warehouse.delta.commit_once import commit_properties, foreign, held_version, note_columns
from sinks.warehouse.delta.delta_table import (
    TARGET_FILE_BYTES,
    adds_columns,
    columns_of,
    configuration,
    indexed_columns,
    row_count,
    without_open,
)
from sinks.warehouse.delta.durable_files import settle
from sinks.warehouse.delta.key_ranges import ranges_of
from sinks.warehouse.delta.merge import rewrite, rewrite_history
from sinks.warehouse.delta.object_files import files_to_write
from sinks.warehouse.delta.packing import HOOKS, WRITER, packed
from sinks.warehouse.delta.patch import check_once
from sinks.warehouse.delta.read_ahead import read_ahead
from sinks.warehouse.delta.replace import replace as replace_rows
from sinks.warehouse.delta.stored_types import plain
from sinks.warehouse.delta.table_files import SMALL_BYTES, Action, Target, partition_folder
from sinks.warehouse.lake.committer import DELETED, OPEN, VALID_TO_LSN, Changes, Rows, Txn
from sinks.warehouse.lake.location import Location, Where
from sinks.warehouse.lake.object_disk import ObjectDisk
from sinks.warehouse.lake.store_errors import translating_store_errors

if TYPE_CHECKING:
    from sinks.warehouse.lake.committer import Frame

_COLUMNS: Final = ".columns"  # end of the app id of a commit that adds columns; permanent, as all app ids are
_PART_ROWS: Final = 65_536  # of a table that is rewritten; 10 MB of rows of 150 bytes


class DeltaRs:
    """Implements `sinks.warehouse.lake.committer.Committer` with deltalake.

    Args:
        where: location of the lake.
        storage: options of the object store, passed to deltalake unchanged.
    """

    def __init__(self, where: Where, storage: Mapping[str, str] | None = None) -> None:
        self._location = Location.of(where, storage)
        self._options = dict(self._location.options)
        # Opening a table reads its log. A table opened to count its rows is often written next, so it is reused once.
        self._counted: tuple[str, DeltaTable] | None = None

    def version(self, table: str) -> int | None:
        """See `Committer`."""
        with translating_store_errors(table):
            opened = self._find(table)
            return None if opened is None else opened.version()

    def applied(self, table: str, app: str) -> int | None:
        """See `Committer`."""
        with translating_store_errors(table):
            opened = self._find(table)
            return None if opened is None else opened.transaction_version(app)

    def held(self, table: str, *, base: int | None, txn: Txn) -> int | None:
        """See `Committer`."""
        with translating_store_errors(table):
            return held_version(table, self._find(table), base, txn)

    def rows(self, table: str, version: int) -> int | None:
        """See `Committer`."""
        with translating_store_errors(table):
            opened = self._find(table)
            if opened is None or opened.version() != version:
                return row_count(self._at(table, version))
            self._counted = table, opened
            return row_count(opened)

    def append(self, table: str, rows: Changes, *, base: int | None, txn: Txn, partition_by: Sequence[str] = ()) -> int:
        """See `Committer`."""
        return self._once(table, base, txn, partial(self._append, table, here(rows), tuple(partition_by)))

    def overwrite(
        self, table: str, rows: Rows | Frame, *, base: int | None, txn: Txn, sort_by: Sequence[str] = ()
    ) -> int:
        """See `Committer`."""
        found = rows if isinstance(rows, pa.RecordBatchReader) else here(rows)
        return self._once(table, base, txn, partial(self._overwrite, table, found, tuple(sort_by)))

    def merge(self, table: str, rows: Changes, key: Sequence[str], *, base: int | None, txn: Txn) -> int:
        """See `Committer`."""
        found = here(rows)
        base = self._widened(table, plain(found.slice(0, 0).drop_columns([DELETED])).schema, base, txn)
        return self._once(table, base, txn, partial(self._merge, table, found, tuple(key)))

    def replace_keys(self, table: str, keys: Changes, rows: Changes, *, base: int | None, txn: Txn) -> int:
        """See `Committer`."""
        return self._once(table, base, txn, partial(self._replace, table, here(keys), here(rows)))

    def close_and_append(
        self, table: str, closes: Changes, rows: Changes, key: Sequence[str], *, base: int | None, txn: Txn
    ) -> int:
        """See `Committer`."""
        added, ended = here(rows), here(closes)
        base = self._widened(table, _with_open(plain(added.slice(0, 0))).schema, base, txn)
        return self._once(table, base, txn, partial(self._close, table, ended, added, tuple(key)))

    def compact(self, table: str, *, base: int, txn: Txn, sort_by: Sequence[str] = ()) -> int:
        """See `Committer`."""
        return self._once(table, base, txn, partial(packed, tuple(sort_by)))

    def read(
        self,
        table: str,
        version: int,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - as Arrow calls it
    ) -> pa.Table:
        """See `Committer`."""
        with translating_store_errors(table):
            wanted = None if columns is None else list(columns)
            return self._at(table, version).to_pyarrow_table(columns=wanted, filters=filter)

    def parts(self, table: str, version: int) -> Iterator[pa.Table]:
        """See `Committer`."""

        def read() -> Iterator[pa.Table]:
            with translating_store_errors(table):
                stored = self._at(table, version).to_pyarrow_dataset()
                scanner = stored.scanner(batch_size=_PART_ROWS, batch_readahead=2, fragment_readahead=1)
                for batch in scanner.to_batches():
                    yield plain(pa.Table.from_batches([batch]))

        return read_ahead(read)

    def files(self, table: str, version: int) -> list[str]:
        """See `Committer`."""
        with translating_store_errors(table):
            return list(self._at(table, version).file_uris())

    def schema(self, table: str, version: int) -> pa.Schema:
        """See `Committer`."""
        with translating_store_errors(table):
            return columns_of(self._at(table, version))

    def vacuum(self, table: str, keep_versions: Collection[int]) -> int:
        """See `Committer`. deltalake lists and this deletes: deltalake's own vacuum makes two useless commits."""
        with translating_store_errors(table):
            opened = self._find(table)
            if opened is None:
                return 0
            useless = opened.vacuum(
                0, dry_run=True, enforce_retention_duration=False, full=True, keep_versions=sorted(keep_versions)
            )
            storage = self._storage(table)
            deleted = sum(_delete(storage, name) for name in useless)
            # Cleaning up from an old version keeps the checkpoint that this version is read from.
            self._at(table, min(keep_versions, default=opened.version())).cleanup_metadata()
            return deleted

    def drop(self, table: str) -> None:
        """See `Committer`."""
        with translating_store_errors(table):
            if self._location.folder is None:
                ObjectDisk(self._location, table).clear()
                return
            with suppress(FileNotFoundError):
                shutil.rmtree(self._location.folder / table)

    def _uri(self, table: str) -> str:
        return self._location.uri(table)

    def _opened(self, table: str) -> DeltaTable | None:
        counted, self._counted = self._counted, None
        return counted[1] if counted is not None and counted[0] == table else self._find(table)

    def _find(self, table: str) -> DeltaTable | None:
        try:
            return DeltaTable(self._uri(table), storage_options=self._options or None)
        except TableNotFoundError:
            return None

    def _at(self, table: str, version: int) -> DeltaTable:
        return DeltaTable(self._uri(table), version=version, storage_options=self._options or None)

    def _once(
        self,
        table: str,
        base: int | None,
        txn: Txn,
        write: Callable[[DeltaTable | None, CommitProperties], None],
    ) -> int:
        with translating_store_errors(table):
            opened = self._opened(table)
            held = held_version(table, opened, base, txn)
            if held is not None:
                self._settle(table, base, held)
                return held
            write(opened, commit_properties(txn))
            if opened is None:
                opened = self._find(table)
            else:
                opened.update_incremental()
            if opened is None:
                raise InvariantError(f"{table} was written but does not exist")
            newest = opened.version()
            floor = -1 if base is None else base
            if newest not in (floor, floor + 1):
                foreign(table, base, range(floor + 1, newest + 1))
            self._settle(table, base, newest)
            return newest

    def _widened(self, table: str, schema: pa.Schema, base: int | None, txn: Txn) -> int | None:
        """Return the version with all columns of the rows, after a commit that adds those which `base` lacks.

        A commit of files cannot add columns. This one is part of the cut and is made once, too.
        """
        rows = schema.empty_table()
        with translating_store_errors(table):
            opened = None if base is None else self._opened(table)
            if opened is None or base is None or opened.version() < base:
                return base  # the statement itself finds out what is wrong
            known = opened if opened.version() == base else self._at(table, base)
            if not adds_columns(table, known, rows):
                self._counted = table, opened
                return base
        own = replace(txn, app=f"{txn.app}{_COLUMNS}")
        return self._once(table, base, own, partial(self._append, table, rows, ()))

    def _settle(self, table: str, base: int | None, newest: int) -> None:
        if self._location.folder is not None:
            settle(self._location.folder, table, range(0 if base is None else base + 1, newest + 1))

    def _append(
        self,
        table: str,
        rows: pa.Table,
        partition_by: tuple[str, ...],
        opened: DeltaTable | None,
        properties: CommitProperties,
    ) -> None:
        rows = plain(rows)
        if opened is None:
            self._create(table, rows, properties, partition_by=partition_by)
            return
        added = adds_columns(table, opened, rows)
        if rows.num_rows or added:
            _write(opened, rows, properties)

    def _create(
        self,
        table: str,
        rows: pa.Table,
        properties: CommitProperties,
        *,
        key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
    ) -> None:
        write_deltalake(
            self._uri(table),
            rows,
            mode="error",
            partition_by=list(partition_by) or None,
            configuration=configuration(rows.column_names, key),
            storage_options=self._options or None,
            writer_properties=WRITER,
            target_file_size=TARGET_FILE_BYTES,
            commit_properties=properties,
            post_commithook_properties=HOOKS,
        )

    def _overwrite(
        self,
        table: str,
        rows: Rows,
        sort_by: tuple[str, ...],
        opened: DeltaTable | None,
        properties: CommitProperties,
    ) -> None:
        if opened is None:
            whole = rows if isinstance(rows, pa.Table) else rows.read_all()
            self._create(table, _sorted(plain(whole), sort_by), properties, key=sort_by)
            return
        partitions = opened.metadata().partition_columns
        finished = _each(rows, lambda part: _with_open(plain(part)) if OPEN in partitions else plain(part))
        write_deltalake(
            opened,
            _sorted(finished, sort_by) if isinstance(finished, pa.Table) else finished,
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=partitions or None,
            writer_properties=WRITER,
            target_file_size=TARGET_FILE_BYTES,
            commit_properties=properties,
            post_commithook_properties=HOOKS,
        )

    def _merge(
        self,
        table: str,
        rows: pa.Table,
        key: tuple[str, ...],
        opened: DeltaTable | None,
        properties: CommitProperties,
    ) -> None:
        rows = plain(rows)
        live = _sorted(rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED]), key)
        if opened is None:
            self._create(table, live, properties, key=key)
            return
        if not rows.num_rows:
            return
        if row_count(opened) == 0:
            if live.num_rows:
                _write(opened, live, properties)
            return
        check_once(table, rows, key)
        merged = rewrite(self._target(table, opened, key), rows)
        note_columns(properties, merged.columns)
        commit_actions(opened, merged.actions, properties)

    def _replace(
        self, table: str, keys: pa.Table, rows: pa.Table, opened: DeltaTable | None, properties: CommitProperties
    ) -> None:
        if opened is None:
            raise InvariantError(f"rows of {table} are replaced, but it does not exist")
        keys, rows = plain(keys), plain(rows)
        adds_columns(table, opened, rows)
        if not keys.num_rows:
            return
        target = self._target(table, opened, tuple(keys.column_names))
        rows = rows.select(target.schema.names).cast(target.schema)
        commit_actions(opened, replace_rows(target, keys, rows), properties)

    def _target(
        self, table: str, opened: DeltaTable, key: tuple[str, ...], *, partition: Mapping[str, str] | None = None
    ) -> Target:
        folder = partition_folder(partition or {})
        return Target(
            storage=files_to_write(self._location, table, folder),
            schema=without_open(columns_of(opened)),
            files=[file for file in ranges_of(opened, key[0]) if file.path.startswith(folder)],
            key=key,
            file_bytes=TARGET_FILE_BYTES,
            indexed=indexed_columns(opened),
            small_bytes=SMALL_BYTES,
            partition=partition or {},
        )

    def _storage(self, table: str) -> fs.FileSystem:
        return fs.PyFileSystem(DeltaStorageHandler(self._uri(table), self._options))

    def _close(
        self,
        table: str,
        closes: pa.Table,
        rows: pa.Table,
        key: tuple[str, ...],
        opened: DeltaTable | None,
        properties: CommitProperties,
    ) -> None:
        closes, rows = plain(closes), plain(rows)
        if opened is None:
            self._create(table, _sorted(_with_open(rows), key), properties, key=key, partition_by=[OPEN])
            return
        adds_columns(table, opened, closes)
        check_once(table, closes, key)
        opens, ends = (self._target(table, opened, key, partition={OPEN: value}) for value in ("true", "false"))
        commit_actions(opened, rewrite_history(opens, ends, closes, rows), properties)


def here(rows: Changes) -> pa.Table:
    """Return rows in this process."""
    return rows if isinstance(rows, pa.Table) else rows.rows.toArrow()


def commit_actions(opened: DeltaTable, actions: list[Action], properties: CommitProperties) -> None:
    """Commit added and removed files; makes no commit without any."""
    if actions:
        opened.create_write_transaction(
            actions,
            mode="append",
            schema=opened.schema(),
            commit_properties=properties,
            post_commithook_properties=HOOKS,
        )


def _delete(storage: fs.FileSystem, name: str) -> bool:
    try:
        storage.delete_file(name)
    except FileNotFoundError:
        return False  # the list has every file that the log ever removed, including files deleted long ago
    return True


def _write(opened: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    write_deltalake(
        opened,
        rows,
        mode="append",
        schema_mode="merge",  # also for missing columns: without it, the number of columns must be equal
        writer_properties=WRITER,
        target_file_size=TARGET_FILE_BYTES,
        commit_properties=properties,
        post_commithook_properties=HOOKS,
    )


def _sorted(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in by]) if by else rows


def _each(rows: Rows, change: Callable[[pa.Table], pa.Table]) -> Rows:
    """Apply `change` to all rows at once, or to each batch."""
    if isinstance(rows, pa.Table):
        return change(rows)
    changed = (batch for part in rows for batch in change(pa.Table.from_batches([part])).to_batches())
    return pa.RecordBatchReader.from_batches(change(rows.schema.empty_table()).schema, changed)


def _with_open(rows: pa.Table) -> pa.Table:
    opens = pc.is_null(rows.column(VALID_TO_LSN))
    kept = rows.drop_columns([OPEN]) if OPEN in rows.column_names else rows
    return kept.append_column(OPEN, opens)
