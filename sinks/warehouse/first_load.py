"""Loads tables that have no rows yet: all of the log at once, and no merge.

A cut would be as large as memory allows, and each merge would rewrite files of the cuts before it. So the first cut of
a lake takes all of the log, in pieces:

1. Each piece appends its events to the archives. A piece that is finished is never read again, also after a crash.
2. Each mirror and history is derived from its archive (`sinks.warehouse.log.table_load`), several tables at once, and
   committed once.

The cut is published when everything is there, as any other cut. Any later cut that is in pieces loads the tables that
have no rows yet in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from cdc.telemetry import log
from sinks.warehouse.log.span import Span, joined, next_span
from sinks.warehouse.log.table_load import ArchivedEvents, can_load
from sinks.warehouse.tables_at_once import TablesAtOnce, at_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.model.progress_record import Cut
    from sinks.warehouse.lake.committer import Txn
    from sinks.warehouse.lake.cut_commit import CutCommit
    from sinks.warehouse.lake.cut_position import CutPosition
    from sinks.warehouse.lake.manifest import Manifest, Repair
    from sinks.warehouse.log.cut_pieces import Piece
    from sinks.warehouse.log.lake_columns import LakeTable
    from sinks.warehouse.log.table_choice import Choice
    from sinks.warehouse.log.table_commit import Names
    from sinks.warehouse.parts import LakeParts

_READS_MAX: Final = 16  # of the cut index; a crash reads all of these records at once
_ANY: Final = 1 << 62  # records


def whole_log(
    read: Callable[[CutPosition], Sequence[tuple[int, Cut]]], first: Span, keeps: Callable[[str], bool]
) -> Span:
    """Return a span that begins as `first` does, with as much of the log behind it as one cut may take.

    Args:
        read: returns the records of the cut index behind a position; none at its end.
        first: the first span of the lake.
        keeps: as for `next_span`.
    """
    found = first
    for _ in range(_READS_MAX):
        cuts = read(found.end)
        more = next_span(found.end, cuts, events_max=_ANY, keeps=keeps) if cuts else None
        if more is None or more.end.epoch != found.end.epoch:
            break  # a repair of the log has a cut of its own
        found = joined(found, more)
    return found


def loads_in(choice: Choice, manifest: Manifest | None, pieces: Sequence[Piece]) -> tuple[str, ...]:
    """Return the topics whose tables a cut loads: those that have no rows yet. Only a cut in pieces loads tables."""
    held = {} if manifest is None else manifest.tables
    if not pieces:
        return ()
    empty = {
        topic: all(name not in held or held[name].rows == 0 for name in names.all)
        for topic, names in choice.names.items()
    }
    return tuple(sorted(topic for topic in empty if empty[topic] and can_load(choice.tables[topic])))


@dataclass(frozen=True, slots=True)
class TableLoader:
    """Loads the tables of one cut.

    Attributes:
        parts: of the driver.
        commit: of the cut.
        names: topic -> its lake tables.
        repairs: as for `sinks.warehouse.log.changes.sequenced`.
    """

    parts: LakeParts
    commit: CutCommit
    names: Mapping[str, Names]
    repairs: Sequence[Repair] = ()

    def load(self, forms: Mapping[str, LakeTable]) -> None:
        """Load mirrors and histories from archives that have the given forms."""
        began_s = self.parts.clock.monotonic_s()
        with TablesAtOnce(at_once(self.parts.spark)) as tables:
            for topic, table in forms.items():
                tables.do(partial(self._table, topic, table))
        took_s = self.parts.clock.monotonic_s() - began_s
        log.get().info("tables_loaded", cut=self.commit.pending.cut, tables=len(forms), seconds=round(took_s, 3))

    def _table(self, topic: str, table: LakeTable) -> None:
        names, commit, loads = self.names[topic], self.commit, self.parts.loads
        state = commit.tables.get(names.archive)
        if state is None:
            return  # only tombstones, or records of another table
        version = state.version
        events = ArchivedEvents(self.parts.spark, self.parts.location, names.archive, version, table, self.repairs)
        ranges = loads.ranges(names.archive, version, finer=commit.pending.failures)

        def write(name: str, rows: Callable[[int], DataFrame], *, is_history: bool) -> None:
            def once(base: int | None, txn: Txn) -> int:
                found = partial(rows, ranges)
                return loads.load(name, found, table.key, is_history=is_history, base=base, txn=txn)

            commit.load(name, once, schema_id=table.schema_id)

        if names.history:
            write(names.history, events.history, is_history=True)
        write(names.mirror, events.mirror, is_history=False)
