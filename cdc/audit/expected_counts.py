"""Derives checks from the cut index: what one partition must contain between two cuts. Pure.

Counts and hashes of the index are cumulative. A check is the step from one count to the next: the number of records
between two offsets, which turn the first rolling hash into the second. Nothing is known before the first count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from cdc.lsn import Lsn
from cdc.model.progress_record import Cut

Partition: TypeAlias = tuple[str, int]


class PartitionCount(NamedTuple):
    """Running count and hash of a partition at a cut, see `cdc.model.progress_record.Cut`."""

    next_offset: int
    records: int
    rolling: int


class CutPosition(NamedTuple):
    """Identifies a cut: its offset in ``<name>.__cuts``, its epoch and LSN."""

    offset: int
    epoch: int
    end_lsn: Lsn


class Check(NamedTuple):
    """The records between two counts of a partition must be exactly those that lead from the first to the second.

    `otherwise` is a second possible value of `before`. Earlier versions left counts out of their full maps while the
    table was not captured. When the table returned, its count continued, or started again if capture had restarted
    meanwhile; the index does not say which.
    """

    partition: Partition
    before: PartitionCount
    after: PartitionCount
    cut: CutPosition
    otherwise: PartitionCount | None = None

    @property
    def expected(self) -> int:
        """Number of records, tombstones included."""
        return self.after.records - self.before.records


class Contradiction(NamedTuple):
    """The index contradicts itself: a count decreases, or changes without a record."""

    partition: Partition
    before: PartitionCount
    after: PartitionCount
    cut: CutPosition


@dataclass(slots=True)
class ExpectedCounts:
    """Reads the cut index in order, without gaps, and returns the checks of each cut.

    Attributes:
        from_beginning: the first record read is the first of the index.
        counts: every partition that is counted now.
        place: the last cut read.
        began: the first cut from which on everything is checked; None before a full map.
        given: the counts of `began` were accepted unchecked, so nothing before it was checked.
    """

    from_beginning: bool
    counts: dict[Partition, PartitionCount] = field(default_factory=dict)
    place: CutPosition | None = None
    began: CutPosition | None = None
    given: bool = False
    _since_lsn: int = 0
    _dormant: dict[Partition, PartitionCount] = field(default_factory=dict)

    def take(self, offset: int, cut: Cut) -> list[Check | Contradiction]:
        """Return the checks of the next cut; none up to the first full map, whose counts are accepted unchecked."""
        place = self.place = CutPosition(offset, cut.epoch, Lsn(cut.end_lsn))
        changed = {_partition(text): _count(count) for text, count in cut.changed.items()}
        if self.began is None:
            if not cut.full:
                return []
            self.began, self._since_lsn = place, cut.since_lsn
            if not self.from_beginning or cut.since_lsn:
                self.counts, self.given = changed, True
                return []
        if cut.full:
            self._settle(changed, cut.since_lsn)
        found = (self._step(partition, count, place) for partition, count in changed.items())
        return [one for one in found if one is not None]

    def _settle(self, changed: dict[Partition, PartitionCount], since_lsn: int) -> None:
        """Compare the partitions with a full map, which has every partition whose topic exists.

        Maps of earlier versions have only captured tables; the counts of the others may start again later.
        """
        if since_lsn != self._since_lsn:
            self._since_lsn = since_lsn
            self.counts.clear()
            self._dormant.clear()
        for partition in self.counts.keys() - changed.keys():
            self._dormant[partition] = self.counts.pop(partition)

    def _step(self, partition: Partition, after: PartitionCount, place: CutPosition) -> Check | Contradiction | None:
        before = self.counts.get(partition)
        self.counts[partition] = after
        if before == after:
            return None
        if before is None:
            return self._first(partition, after, place)
        if after.next_offset <= before.next_offset or after.records < before.records:
            return Contradiction(partition, before, after, place)
        return Check(partition, before, after, place)

    def _first(self, partition: Partition, after: PartitionCount, place: CutPosition) -> Check | Contradiction | None:
        """Return the check of the first count of a partition. The records of its first transaction are contiguous.

        For a count that an earlier version had left out, no program may have written behind its end meanwhile.
        """
        begin = PartitionCount(after.next_offset - after.records, 0, 0)
        former = self._dormant.pop(partition, None)
        if former is None:
            if self.given:  # the count may continue one from before the index began
                return None
            if begin.next_offset < 0:
                return Contradiction(partition, begin, after, place)
            return Check(partition, begin, after, place) if after.records else None
        if after == former:
            return None
        if after.next_offset < former.next_offset:
            return Contradiction(partition, former, after, place)
        return Check(partition, PartitionCount(former.next_offset, 0, 0), after, place, former)


def _partition(text: str) -> Partition:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def _count(changed: tuple[int, int, str]) -> PartitionCount:
    next_offset, count, rolling = changed
    return PartitionCount(next_offset, count, int(rolling, 16))
