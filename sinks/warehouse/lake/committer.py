"""The contract between a cut and the tables it writes. `deltars` implements it for one machine.

Nothing here knows Kafka, Spark or a file format. Tables are named by their path below the lake (`layout`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Rows: TypeAlias = "pa.Table | pa.RecordBatchReader"
"""All rows at once, or some at a time."""
DELETED: Final = "_deleted"
"""Column of `merge`'s rows: true when the key is gone. It is not stored."""
VALID_TO_LSN: Final = "_valid_to_lsn"
VALID_TO: Final = "_valid_to"
OPEN: Final = "_open"
"""Partition column of a history, true where `_valid_to_lsn` is null. The committer adds it.

Without it each cut would rewrite files of closed versions, which never change again."""


@dataclass(frozen=True, slots=True)
class Txn:
    """What makes a commit happen once.

    Attributes:
        app: names the statement. One app a statement: a second one on a table with the same app and cut is taken
            for a repetition of the first, and left out.
        cut: that the statement belongs to.
        end_lsn: where the cut ends. A table that holds the cut must hold it with this end.
        step: its place among the statements of the cut on the table. One that is missing below a later one changed
            nothing, and so made no commit; 0: unknown.
    """

    app: str
    cut: int
    end_lsn: int = 0
    step: int = 0


class Committer(Protocol):
    """Tables with numbered versions. One writer per lake; not safe for several threads.

    Each writing method makes at most one commit, which carries `txn`, and returns the version that holds it. `base`
    is the version the manifest names, None for a table it does not have. A table that holds `txn` already is left as
    it is, and the version of the commit that carried it is returned: later commits of the same cut may lie above it.
    A statement that changes nothing may make no commit and return `base`.

    All raise LakeDamaged when the newest version is neither `base` nor of this cut, or files are lost or corrupt;
    LakeUnready when storage is full or away; SinkUnfit when a column has another type than the table.
    """

    def version(self, table: str) -> int | None:
        """The newest version; None when there is no such table."""

    def applied(self, table: str, app: str) -> int | None:
        """The newest cut that `app` committed; None when it never did."""

    def held(self, table: str, *, base: int | None, txn: Txn) -> int | None:
        """The version whose commit carried `txn`; None when no commit has."""

    def rows(self, table: str, version: int) -> int | None:
        """Rows of a version as its log counts them, without reading data; None when unknown."""

    def append(
        self, table: str, rows: pa.Table, *, base: int | None, txn: Txn, partition_by: Sequence[str] = ()
    ) -> int:
        """Add rows. New columns are added to the table; missing ones are null. Makes the table when it is absent."""

    def overwrite(self, table: str, rows: Rows, *, base: int | None, txn: Txn, sort_by: Sequence[str] = ()) -> int:
        """Replace rows and columns. What the table was partitioned by stays. Parts are not sorted."""

    def merge(self, table: str, rows: pa.Table, key: Sequence[str], *, base: int | None, txn: Txn) -> int:
        """Upsert and delete by key. `rows` has each key once, never null, and `_deleted`; new columns are added."""

    def replace_keys(self, table: str, keys: pa.Table, rows: pa.Table, *, base: int | None, txn: Txn) -> int:
        """Take every row with one of `keys` away and add `rows`.

        The columns of `keys` are columns of the table; each key is there once, and a null in it is like another null.
        `rows` has all columns of the table, and any number of rows a key.
        """

    def close_and_append(
        self, table: str, closes: pa.Table, rows: pa.Table, key: Sequence[str], *, base: int | None, txn: Txn
    ) -> int:
        """Write a history: open rows of the keys in `closes` get its `_valid_to…`, and `rows` are added as they are.

        `closes` has each key once: the key columns, `_valid_to_lsn`, `_valid_to`. A key without an open row is passed
        over. Rows that are closed never change again. `rows` may hold closed ones; at most one open row a key.
        """

    def read(
        self,
        table: str,
        version: int,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - as Arrow calls it
    ) -> pa.Table:
        """Rows of a version, in no order."""

    def parts(self, table: str, version: int) -> Iterator[pa.Table]:
        """Rows of a version, some at a time, in the order of its files: for tables larger than memory."""

    def files(self, table: str, version: int) -> list[str]:
        """The Parquet files of a version, absolute. Partition columns are not in them."""

    def schema(self, table: str, version: int) -> pa.Schema:
        """Columns of a version, partition columns included."""

    def compact(self, table: str, *, base: int, txn: Txn, sort_by: Sequence[str] = ()) -> int:
        """Make few files of many without changing a row; with `sort_by` all rows are put in that order.

        Of a history only the open rows are put in order: they are what a merge looks for.
        """

    def vacuum(self, table: str, keep_versions: Collection[int]) -> int:
        """Delete files that none of these versions needs, nor the newest one; returns how many. Makes no commit."""

    def drop(self, table: str) -> None:
        """Delete a table that nobody will read any more, with its log; nothing when it is not there."""
