"""Derives the mirror and the history of a new table from its archive, for a first load. Spark, lazy.

The archive has every event of the load, so nothing is merged. The events are divided by ranges of the key, and each
range is sorted, on disk if it is large. The result has the order of the files: no second sort is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake.committer import DELETED
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.log import changes, span_batch
from sinks.warehouse.log.lake_columns import ARCHIVE_COLUMNS, LakeTable
from sinks.warehouse.log.row_outputs import FrameRows
from sinks.warehouse.log.table_commit import widened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import Repair

_INEXACT: Final = frozenset({"float", "double"})


@dataclass(frozen=True, slots=True)
class ArchivedEvents:
    """The archive of a table, of which every event belongs to the load.

    Attributes:
        spark: the session.
        location: of the lake.
        archive: the lake table.
        version: of its Delta log.
        table: the newest form of its rows.
        repairs: as for `changes.sequenced`.
    """

    spark: SparkSession
    location: Location
    archive: str
    version: int
    table: LakeTable
    repairs: Sequence[Repair] = ()

    def mirror(self, ranges: int) -> DataFrame:
        """Return the newest row of each key, in order of the key within each of that many ranges."""
        return self._rows(ranges).mirror(self.table).rows.where(~fn.col(DELETED)).drop(DELETED)

    def history(self, ranges: int) -> DataFrame:
        """Return every version, in the same order. No version was open before."""
        return self._rows(ranges).history(self.table)[1].rows

    def _rows(self, ranges: int) -> FrameRows:
        stored = widened(frame_of(self.spark, self.location, self.archive, self.version), self.table)
        names = [quoted(column.name) for column in self.table.columns]
        flat = stored.select(*names, *ARCHIVE_COLUMNS, fn.lit(0).alias(span_batch.UNFIT))
        columns = span_batch.check(changes.unflat(flat, self.table), self.table)
        spread = flat.repartitionByRange(ranges, *map(quoted, self.table.key))
        events = changes.fill(changes.unflat(spread, self.table), None, self.table, columns)
        return FrameRows.lazy(changes.sequenced(events, self.table, self.repairs))


def can_load(table: LakeTable) -> bool:
    """Whether a table can be loaded from its archive: it has a key, of which Spark and Arrow agree what is equal."""
    return bool(table.key) and not any(column.key and column.type in _INEXACT for column in table.columns)
