"""What the cut index says must be in the log, as checks of one partition and one cut each. Pure (DESIGN section 4).

Counts and hashes of the index are cumulative, so a check is the step from one account to the next: between two
offsets so many records, which carry one hash over into the other. Where an account begins nothing is known before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from cdc.lsn import Lsn
from cdc.model.progress_record import Cut

Partition: TypeAlias = tuple[str, int]


class PartitionCount(NamedTuple):
    """What a cut says of a partition, see `cdc.model.progress_record.Cut`."""

    next_offset: int
    records: int
    rolling: int


class CutPosition(NamedTuple):
    """Which cut: its offset in ``<name>.__cuts``, and the position it stands for."""

    offset: int
    epoch: int
    end_lsn: Lsn


class Check(NamedTuple):
    """Between two accounts of a partition lie exactly the records that lead from the one to the other.

    `otherwise` is what the account may have been before as well. Earlier versions left accounts out of its full maps
    while their tables were not captured; such a table is counted on, or anew when capture was started meanwhile, and
    the index does not say which.
    """

    partition: Partition
    before: PartitionCount
    after: PartitionCount
    cut: CutPosition
    otherwise: PartitionCount | None = None

    @property
    def expected(self) -> int:
        """How many records that are, tombstones included."""
        return self.after.records - self.before.records


class Contradiction(NamedTuple):
    """The index contradicts itself: an account goes backwards, or changes without a record."""

    partition: Partition
    before: PartitionCount
    after: PartitionCount
    cut: CutPosition


@dataclass(slots=True)
class ExpectedCounts:
    """Reads the cut index in order, every record of it from some place on.

    Attributes:
        from_beginning: nothing of the index is missing before the first record that is taken.
        accounts: every partition that is counted now.
        place: the last cut that was taken.
        began: the first cut from which on everything is checked; None before a full map.
        given: the accounts of `began` were taken as they are, so what lies before it was not checked.
    """

    from_beginning: bool
    accounts: dict[Partition, PartitionCount] = field(default_factory=dict)
    place: CutPosition | None = None
    began: CutPosition | None = None
    given: bool = False
    _since_lsn: int = 0
    _dormant: dict[Partition, PartitionCount] = field(default_factory=dict)

    def take(self, offset: int, cut: Cut) -> list[Check | Contradiction]:
        """The checks of the next cut; none before the first full map, whose accounts are taken as they are."""
        place = self.place = CutPosition(offset, cut.epoch, Lsn(cut.end_lsn))
        changed = {_partition(text): _account(account) for text, account in cut.changed.items()}
        if self.began is None:
            if not cut.full:
                return []
            self.began, self._since_lsn = place, cut.since_lsn
            if not self.from_beginning or cut.since_lsn:
                self.accounts, self.given = changed, True
                return []
        if cut.full:
            self._settle(changed, cut.since_lsn)
        found = (self._step(partition, account, place) for partition, account in changed.items())
        return [one for one in found if one is not None]

    def _settle(self, changed: dict[Partition, PartitionCount], since_lsn: int) -> None:
        """A full map has every partition whose topic is there.

        Those of earlier versions have only what is captured; the rest may begin anew later.
        """
        if since_lsn != self._since_lsn:
            self._since_lsn = since_lsn
            self.accounts.clear()
            self._dormant.clear()
        for partition in self.accounts.keys() - changed.keys():
            self._dormant[partition] = self.accounts.pop(partition)

    def _step(self, partition: Partition, after: PartitionCount, place: CutPosition) -> Check | Contradiction | None:
        before = self.accounts.get(partition)
        self.accounts[partition] = after
        if before == after:
            return None
        if before is None:
            return self._first(partition, after, place)
        if after.next_offset <= before.next_offset or after.records < before.records:
            return Contradiction(partition, before, after, place)
        return Check(partition, before, after, place)

    def _first(self, partition: Partition, after: PartitionCount, place: CutPosition) -> Check | Contradiction | None:
        """An account begins with its first transaction, whose records lie one behind the other.

        Behind the end of one that had been forgotten nobody may have written meanwhile.
        """
        begin = PartitionCount(after.next_offset - after.records, 0, 0)
        former = self._dormant.pop(partition, None)
        if former is None:
            if self.given:  # it may go on from before the index began
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


def _account(told: tuple[int, int, str]) -> PartitionCount:
    next_offset, count, rolling = told
    return PartitionCount(next_offset, count, int(rolling, 16))
