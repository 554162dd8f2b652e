"""Configures how deltalake writes the files of a table, and packs them if they are many or unsorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties

from cdc.errors import InvariantError
from sinks.warehouse.delta.delta_table import TARGET_FILE_BYTES
from sinks.warehouse.delta.key_ranges import in_order, ranges_of
from sinks.warehouse.delta.table_files import ROW_GROUP_ROWS_MAX, SMALL_BYTES, partition_folder
from sinks.warehouse.lake.committer import OPEN

HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
WRITER: Final = WriterProperties(max_row_group_size=ROW_GROUP_ROWS_MAX)


def packed(sort_by: tuple[str, ...], opened: DeltaTable | None, properties: CommitProperties) -> None:
    """Rewrite small files as few, or with `sort_by` the whole table in that order: see `TableUpkeep.compact`."""
    if opened is None:
        raise InvariantError("a table that does not exist is compacted")
    if sort_by and is_packed(opened, sort_by):
        return
    if sort_by:
        # With one column, Z order is plain order.
        opened.optimize.z_order(
            list(sort_by),
            partition_filters=[(OPEN, "=", "true")] if OPEN in opened.metadata().partition_columns else None,
            target_size=TARGET_FILE_BYTES,
            writer_properties=WRITER,
            commit_properties=properties,
            post_commithook_properties=HOOKS,
        )
        return
    opened.optimize.compact(
        target_size=TARGET_FILE_BYTES,
        writer_properties=WRITER,
        commit_properties=properties,
        post_commithook_properties=HOOKS,
    )


def is_packed(opened: DeltaTable, key: Sequence[str]) -> bool:
    """Whether sorting it would gain nothing: merges keep the ranges of files. Of a history, open rows count."""
    partitions = opened.metadata().partition_columns
    if partitions not in ([], [OPEN]):
        return False
    folder = partition_folder({OPEN: "true"} if partitions else {})
    files = [file for file in ranges_of(opened, key[0]) if file.path.startswith(folder)]
    return in_order(files, small_bytes=SMALL_BYTES)
