"""Selects the part of the log that the next cut of the lake takes, from the cut index. Pure.

The index has one record per Kafka transaction; its counts and offsets are cumulative. So every run of records between
two boundaries (`next_ordinal` 0) is a cut: exactly the source transactions between two LSNs, of all tables. Many small
records are merged into one span. A lost stretch of the index does no harm if a full map follows it.

A repair of the log (`cdc.startup.repair`) begins a new epoch, whose snapshots make every topic right again. Until they
are complete, the log does not show one state of the source. So the span that crosses it ends behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from cdc.errors import SinkError, SinkGap, SinkStale
from cdc.lsn import Lsn
from cdc.model.progress_record import Cut
from cdc.model.topic_names import parse_partition
from sinks.warehouse.lake.cut_position import CutPosition, Partition, PartitionCount

_FRESH: Final[PartitionCount] = (0, 0)


class EpochEnd(NamedTuple):
    """Where the log of an epoch ends, and where that of the next one begins. What is between them is not in the log."""

    known_to: int
    resumes_at: int


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the log between two positions.

    Attributes:
        merged: number of index records that were merged.
        opened: partitions that appeared in this span with earlier records -> where their counts begin.
        ended: epochs that end in this span.
        only: ranges of a part of the span; None for all of it.
    """

    start: CutPosition
    end: CutPosition
    merged: int
    opened: Mapping[Partition, PartitionCount] = field(default_factory=dict)
    ended: Mapping[int, EpochEnd] = field(default_factory=dict)
    only: Mapping[Partition, tuple[int, int, int]] | None = None

    @property
    def counted(self) -> bool:
        """Whether the counts cover everything in the ranges. They do not if the log is older than the counts.

        That happens in the first span of a lake if the log has lost the beginning of its counts.
        """
        return self.start.epoch != 0 or self.end.since_lsn == 0

    @property
    def records(self) -> int:
        """Number of records of data topics, tombstones included."""
        return sum(records for _, _, records in self.ranges.values())

    @property
    def ranges(self) -> dict[Partition, tuple[int, int, int]]:
        """Partition -> (from offset, to offset, records), for data topics with new records.

        A range also holds transaction markers and aborted records; they are not counted.
        """
        if self.only is not None:
            return {at: found for at, found in sorted(self.only.items()) if at in self.end.accounts}
        found: dict[Partition, tuple[int, int, int]] = {}
        for partition, (end, count) in sorted(self.end.accounts.items()):
            if not is_data(partition[0]):
                continue
            begin, before = self.start.accounts.get(partition) or self.opened.get(partition) or _FRESH
            if not self.counted and end > 0:
                found[partition] = (0, end, count)
            elif count > before:
                found[partition] = (begin, end, count - before)
        return found


def is_data(topic: str) -> bool:
    """Whether a topic holds events: ``<name>.<schema>.<table>`` has two dots, control topics have one."""
    return topic.count(".") > 1


def is_any(_table: str) -> bool:
    """Whether a lake that keeps all tables keeps this one."""
    return True


def next_span(
    start: CutPosition, cuts: Sequence[tuple[int, Cut]], *, events_max: int, keeps: Callable[[str], bool] = is_any
) -> Span | None:
    """Return the span after `start`: as long as `events_max` allows, but at least up to the first boundary.

    A span ends where its epoch ends. The next one crosses the repair. If `cuts` ends before the snapshots do, its end
    has `awaited` tables: no cut can end there, and the caller joins the span that follows.

    Args:
        start: where the last span ended, or START.
        cuts: (offset in the index, record) from `start.cuts_offset` on, in order; they may extend beyond the span.
        events_max: records of data topics in a span.
        keeps: whether the lake keeps a table, ``schema.table``.

    Returns:
        None if `cuts` contains no boundary.

    Raises:
        SinkGap: the counts began again or decreased, or the index lost a stretch and no full map follows.
        SinkStale: the source has another history.
    """
    building = _Building(start, keeps)
    found: Span | None = None
    for offset, cut in cuts:
        try:
            building.take(offset, cut)
        except SinkError:
            if found is None:
                raise
            break  # everything before the fault is complete; the next call finds it first
        if cut.next_ordinal != 0:
            continue
        longer = building.span(cut)
        is_usable = found is not None and not found.end.awaited
        if found is not None and is_usable and (longer.records > events_max or cut.epoch != found.end.epoch):
            break
        found = longer
    return found


def same_span(start: CutPosition, cuts: Sequence[tuple[int, Cut]]) -> Span | None:
    """Return the span of an interrupted cut, which ends with `cuts`; None if they contain no boundary.

    Raises as `next_span` does.
    """
    building, found = _Building(start, is_any), None
    for offset, cut in cuts:
        building.take(offset, cut)
        if cut.next_ordinal == 0:
            found = building.span(cut)
    # Which tables the cut waited for depended on settings that may have changed since.
    return found and replace(found, end=replace(found.end, awaited=frozenset()))


def joined(passed: Span, span: Span) -> Span:
    """Join two spans, of which the second begins where the first ends."""
    merged = passed.merged + span.merged
    return Span(passed.start, span.end, merged, {**span.opened, **passed.opened}, {**passed.ended, **span.ended})


class _Building:
    """The counts from a position on, record by record."""

    def __init__(self, start: CutPosition, keeps: Callable[[str], bool]) -> None:
        self._start = start
        self._keeps = keeps
        self._epoch = start.epoch
        self._end_lsn = start.end_lsn
        self._awaited = start.awaited
        self._ended: dict[int, EpochEnd] = {}
        self._since_lsn = start.since_lsn
        self._accounts = dict(start.accounts)
        self._complete = dict(start.complete)
        self._opened: dict[Partition, PartitionCount] = {}
        self._merged = 0
        self._cuts_offset = start.cuts_offset

    def take(self, offset: int, cut: Cut) -> None:
        """Add a record. Raises SinkGap, SinkStale; then nothing of the record may be used."""
        self._check_history(cut)
        self._complete = dict(cut.tables) if cut.full else self._complete | cut.tables
        if cut.epoch != self._epoch:
            self._ended[self._epoch] = EpochEnd(self._end_lsn, cut.end_lsn)
            self._epoch = cut.epoch
            self._awaited = frozenset(table for table in cut.tables if self._keeps(table))
        # A table that is no longer captured is never read again.
        self._awaited = frozenset(one for one in self._awaited if self._complete.get(one, "complete") != "complete")
        self._end_lsn = cut.end_lsn
        for text, (end, count, _) in cut.changed.items():
            self._account(parse_partition(text), (end, count))
        self._merged += 1
        self._cuts_offset = offset + 1

    def span(self, cut: Cut) -> Span:
        """Return the span up to `cut`, which must be the record added last and a boundary."""
        end = CutPosition(
            cut.epoch,
            cut.end_lsn,
            cut.commit_lsn,
            self._cuts_offset,
            dict(self._accounts),
            dict(self._complete),
            self._since_lsn,
            self._awaited,
        )
        return Span(self._start, end, self._merged, dict(self._opened), dict(self._ended))

    def _check_history(self, cut: Cut) -> None:
        if self._epoch == 0:
            if not cut.full:
                raise SinkGap(
                    "the cut index has lost its beginning, and its first record has no map of all partitions",
                    hint="capture writes such a map within 1,000 transactions; try again later",
                    end_lsn=Lsn(cut.end_lsn),
                )
            self._epoch, self._since_lsn = cut.epoch, cut.since_lsn
        if cut.epoch < self._epoch or (cut.epoch > self._epoch and not cut.full):
            raise SinkStale(
                f"the log continues with epoch {cut.epoch} of the source, but the lake has epoch {self._epoch}",
                hint="the log is not the one that the lake was made from; rebuild the lake in another folder",
                epoch=cut.epoch,
            )
        if cut.full and cut.since_lsn != self._since_lsn:
            reason = "capture was stopped for longer than the index is kept, so earlier records may be missing"
            if cut.epoch > self._epoch:
                reason = "a repair of the log found a topic deleted, so its earlier records are missing"
            raise SinkGap(
                f"the counts of the cut index began again at {Lsn(cut.since_lsn)}",
                hint=f"{reason}; rebuild the lake in another folder",
                since_lsn=Lsn(cut.since_lsn),
            )

    def _account(self, partition: Partition, account: PartitionCount) -> None:
        before = self._accounts.get(partition)
        if before is None and account[1] == 0:
            self._opened[partition] = account
        if before is not None and (account[0] < before[0] or account[1] < before[1]):
            raise SinkGap(
                f"the count of {partition[0]}-{partition[1]} in the cut index decreased",
                hint="the topic was recreated or index records were written twice; rebuild the lake",
                topic=partition[0],
                partition=partition[1],
            )
        self._accounts[partition] = account
