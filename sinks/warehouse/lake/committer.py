"""The contract between a cut and the tables it writes.

`sinks.warehouse.delta.deltars` implements it for one machine, `sinks.warehouse.distributed.spark_delta` for a cluster.
Both write the same tables, so a lake can change from one to the other.

Nothing here depends on Kafka, Spark or a file format. Tables are named by their path below the lake (`layout`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows: TypeAlias = "pa.Table | pa.RecordBatchReader"
"""All rows at once, or batch by batch."""
Changes: TypeAlias = "pa.Table | Frame"
"""Rows in the driver, or in the executors."""
DELETED: Final = "_deleted"
"""Column of `merge`'s rows: true if the key is deleted. It is not stored."""
VALID_TO_LSN: Final = "_valid_to_lsn"
VALID_TO: Final = "_valid_to"
OPEN: Final = "_open"
"""Partition column of a history, true where `_valid_to_lsn` is null. The committer adds it.

Without it each cut would rewrite files of closed versions, which never change again."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows that a distributed committer leaves in the executors.

    Attributes:
        rows: read more than once, so the caller persists them.
        at_most: a number of rows that it does not exceed; None if unknown.
    """

    rows: DataFrame
    at_most: int | None = None

    @property
    def limit(self) -> int:
        """`at_most`; counts the rows if it is unknown."""
        return self.rows.count() if self.at_most is None else self.at_most


@dataclass(frozen=True, slots=True)
class Txn:
    """Identifies a statement so that it is committed once.

    Attributes:
        app: name of the statement. Every statement on a table needs its own: a second one with the same app and cut
            would count as a repetition of the first and be left out.
        cut: the cut that the statement belongs to.
        end_lsn: where the cut ends. A table that holds the cut must hold it with this end.
        step: the statement's position among those of the cut on the table. A statement that is missing below a later
            one changed nothing and made no commit; 0 if unknown.
    """

    app: str
    cut: int
    end_lsn: int = 0
    step: int = 0


class TableReads(Protocol):
    """Reads of tables with numbered versions.

    All raise LakeDamaged if files are lost or corrupt, LakeUnready if storage is not available.
    """

    def version(self, table: str) -> int | None:
        """Return the newest version; None if there is no such table."""

    def applied(self, table: str, app: str) -> int | None:
        """Return the newest cut that `app` committed; None if it never did."""

    def held(self, table: str, *, base: int | None, txn: Txn) -> int | None:
        """Return the version whose commit carried `txn`; None if none did."""

    def rows(self, table: str, version: int) -> int | None:
        """Return the rows of a version as its log counts them, without reading data; None if unknown."""

    def read(
        self,
        table: str,
        version: int,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - as Arrow calls it
    ) -> pa.Table:
        """Return rows of a version, in no order."""

    def parts(self, table: str, version: int) -> Iterator[pa.Table]:
        """Yield rows of a version, batch by batch in the order of its files, for tables larger than memory."""

    def files(self, table: str, version: int) -> list[str]:
        """Return the Parquet files of a version as absolute paths. Partition columns are not in them."""

    def schema(self, table: str, version: int) -> pa.Schema:
        """Return the columns of a version, partition columns included."""


class TableWrites(Protocol):
    """Commits to tables. One writer per lake; several threads may write, each another table.

    Each method makes at most one commit, which carries `txn`, and returns the version that holds it. If a merge adds
    columns, a commit that only does this precedes it. `base` is the version that the manifest names, None for a table
    it does not have. A table that already holds `txn` is left
    unchanged. Then the version of the commit that carried it is returned; later commits of the same cut may follow it.
    A statement that changes nothing may make no commit and return `base`.

    All raise LakeDamaged if the newest version is neither `base` nor of this cut, or if files are lost or corrupt;
    LakeUnready if storage is full or not available; SinkUnfit if a column has another type than in the table.
    """

    def append(self, table: str, rows: Changes, *, base: int | None, txn: Txn, partition_by: Sequence[str] = ()) -> int:
        """Add rows. Creates the table if it does not exist. New columns are added; missing columns are null."""

    def overwrite(
        self, table: str, rows: Rows | Frame, *, base: int | None, txn: Txn, sort_by: Sequence[str] = ()
    ) -> int:
        """Replace rows and columns. The partition columns stay. Rows that come batch by batch are not sorted."""

    def merge(self, table: str, rows: Changes, key: Sequence[str], *, base: int | None, txn: Txn) -> int:
        """Upsert and delete by key. `rows` has each key once, never null, and `_deleted`; new columns are added."""

    def replace_keys(self, table: str, keys: Changes, rows: Changes, *, base: int | None, txn: Txn) -> int:
        """Remove every row with one of `keys` and add `rows`.

        The columns of `keys` are columns of the table. Each key appears once, and a null equals another null. `rows`
        has all columns of the table, and any number of rows per key.
        """

    def close_and_append(
        self, table: str, closes: Changes, rows: Changes, key: Sequence[str], *, base: int | None, txn: Txn
    ) -> int:
        """Write a history: open rows of the keys in `closes` get its `_valid_to…`, and `rows` are added unchanged.

        `closes` has each key once, with the key columns, `_valid_to_lsn` and `_valid_to`. A key without an open row is
        ignored. Closed rows never change again. `rows` may contain closed rows, and at most one open row per key.
        """


class TableLoads(Protocol):
    """Writes all rows of a table that has none, from Spark's executors, for every committer. Thread-safe."""

    def ranges(self, table: str, version: int, *, finer: int = 0) -> int:
        """Return into how many ranges the rows of a table must be divided to make files of the usual size.

        Each step of `finer` doubles them.
        """

    def load(
        self,
        table: str,
        rows: Callable[[], DataFrame],
        key: Sequence[str],
        *,
        is_history: bool,
        base: int | None,
        txn: Txn,
    ) -> int:
        """Write rows that are sorted by `key` within each partition; a mirror has each key once.

        `rows` is called unless the table holds `txn`. Commits and raises as `TableWrites` does. `base` is a version
        without rows, or None: then the table is created. A history gets its partition column.
        """


class TableUpkeep(Protocol):
    """Maintenance of tables, which changes no row. `compact` commits as `TableWrites` does."""

    def compact(self, table: str, *, base: int, txn: Txn, sort_by: Sequence[str] = ()) -> int:
        """Rewrite many files as few, without changing a row; with `sort_by` all rows are put into that order.

        Of a history only the open rows are sorted: a merge looks only for them.
        """

    def vacuum(self, table: str, keep_versions: Collection[int]) -> int:
        """Delete files that neither these versions nor the newest one need; returns their number. Makes no commit."""

    def drop(self, table: str) -> None:
        """Delete a table with its log; does nothing if the table does not exist. No reader may need it any more."""


class Committer(TableReads, TableWrites, TableUpkeep, Protocol):
    """All of it, for a driver."""
