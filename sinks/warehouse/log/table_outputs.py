"""Divides the events of one table in one cut into the rows of archive, mirror and history. Arrow, pure.

The rows come from `sinks.warehouse.log.changes.sequenced`: Spark has parsed them and found the successor of each.
Python handles no single row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.warehouse.lake.committer import DELETED, VALID_TO, VALID_TO_LSN
from sinks.warehouse.log.changes import CLOSES, CLOSES_AT, CLOSES_LSN
from sinks.warehouse.log.lake_columns import HISTORY_COLUMNS, MIRROR_COLUMNS, LakeTable
from sinks.warehouse.log.span_batch import UNFIT, judge

FOR_OTHERS: Final = frozenset({VALID_TO_LSN, VALID_TO, CLOSES, CLOSES_LSN, CLOSES_AT, UNFIT})
BEGINS: Final = {"_valid_from_lsn": "_commit_lsn", "_valid_from_ordinal": "_ordinal", "_valid_from": "_committed_at"}


def counts(rows: pa.Table) -> dict[int, int]:
    """Return partition -> records, tombstones included."""
    counted = pc.value_counts(rows["_partition"])
    return {pair["values"]: pair["counts"] for pair in counted.to_pylist()}


def has_unknown_schemas(rows: pa.Table, table: LakeTable) -> bool:
    """Whether some record has none of the forms it was parsed with."""
    return bool((pc.max(rows[UNFIT]).as_py() or 0) > len(table.columns))


def checked(rows: pa.Table, table: LakeTable) -> tuple[pa.Table, frozenset[str]]:
    """Return the events without tombstones, and the columns that need earlier values. Raises what `judge` raises."""
    unchanged = pc.unique(pc.list_flatten(rows["_unchanged"])).to_pylist()
    columns = judge(pc.max(rows[UNFIT]).as_py(), unchanged, table)
    is_event = pc.is_valid(rows["_op"])
    return (rows if pc.all(is_event).as_py() else rows.filter(is_event)), columns


def archive(rows: pa.Table) -> pa.Table:
    """Return every event unchanged."""
    return rows.drop_columns([name for name in rows.column_names if name in FOR_OTHERS])


def mirror(rows: pa.Table, table: LakeTable) -> pa.Table:
    """Return the newest event of each key, for `TableWrites.merge`."""
    newest = rows.filter(pc.is_null(rows[VALID_TO_LSN]))
    found = newest.select([*_names(table), *MIRROR_COLUMNS])
    return found.append_column(DELETED, pc.equal(newest["_op"], "d"))


def history(rows: pa.Table, table: LakeTable) -> tuple[pa.Table, pa.Table]:
    """Return the rows that end and the rows that begin, for `TableWrites.close_and_append`.

    A delete is not a version, but it ends one, as every other event does. Validity is half-open.
    """
    first = rows.filter(rows[CLOSES])
    lsn, at = closed_at(rows.column_names)
    closes = pa.table({key: first[key] for key in table.key} | {VALID_TO_LSN: first[lsn], VALID_TO: first[at]})
    versions = rows.filter(pc.not_equal(rows["_op"], "d"))
    own = {name: versions[BEGINS.get(name, name)] for name in HISTORY_COLUMNS}
    return closes, pa.table({name: versions[name] for name in _names(table)} | own)


def closed_at(columns: Collection[str]) -> tuple[str, str]:
    """Return the columns of `rows` with the end of the version that was open before: of the event, or of a repair."""
    return (CLOSES_LSN, CLOSES_AT) if CLOSES_LSN in columns else ("_commit_lsn", "_committed_at")


def _names(table: LakeTable) -> Sequence[str]:
    return [column.name for column in table.columns]
