"""Follows a lake across a repair of the log: what it waits for, and where the versions of the earlier epoch end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from cdc.errors import SinkBehind
from cdc.lsn import Lsn
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.manifest import Repair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import Manifest
    from sinks.warehouse.log.span import Span

_NAMED_MAX: Final = 5


def awaiting(passed: Span) -> SinkBehind:
    """Return what the lake waits for behind a span whose end has `awaited` tables, as an error to show."""
    tables, epoch = sorted(passed.end.awaited), passed.end.epoch
    named = ", ".join(tables[:_NAMED_MAX]) + (f" and {len(tables) - _NAMED_MAX} more" if tables[_NAMED_MAX:] else "")
    return SinkBehind(
        f"the log was repaired and is in epoch {epoch}; the lake stays as of {Lsn(passed.start.end_lsn)} until capture "
        f"has read every table again. Missing: {named}",
        hint="nothing to do while capture runs: the next cut continues in the same folder",
        command="cdc status",
        epoch=epoch,
        tables=tables,
    )


def repairs_in(span: Span, manifest: Manifest | None, spark: SparkSession, location: Location) -> tuple[Repair, ...]:
    """Return all repairs up to the end of `span` if it has one, else nothing. The same in every attempt at the cut."""
    if not span.ended or manifest is None:
        return ()
    known_at_us = max(_event_times(manifest, spark, location), default=0)
    new = (
        Repair(epoch=epoch, known_to=end.known_to, known_at_us=known_at_us, resumes_at=end.resumes_at)
        for epoch, end in sorted(span.ended.items())
    )
    return (*manifest.repairs, *new)


def _event_times(manifest: Manifest, spark: SparkSession, location: Location) -> Iterator[int]:
    """Yield the newest commit time in each archive. Archives have deletes, which mirrors lack.

    The time when the log was written would be too late: capture may have lagged by hours when the slot was lost.
    """
    for table, state in sorted(manifest.tables.items()):
        if not layout.is_archive(table):
            continue
        rows = frame_of(spark, location, table, state.version)
        if "_committed_at" in rows.columns:  # outbox events have no place in the log of the source
            found = rows.agg(fn.max(fn.unix_micros("_committed_at"))).collect()[0][0]
            if found is not None:
                yield int(found)
