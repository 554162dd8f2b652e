"""Which part of the log the next cut of the lake takes, told from the cut index (DESIGN sections 4 and 9). Pure.

The index has one record per Kafka transaction, and counts and offsets in it are cumulative. So any run of records
that begins behind a boundary and ends at one (`next_ordinal` 0) is a cut: exactly the source transactions between
two LSNs, of all tables. Many small records are merged into one span, and a lost stretch of the index does no harm
as long as a full map follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cdc.errors import SinkError, SinkGap, SinkStale
from cdc.lsn import Lsn
from cdc.model.progress_record import Cut
from cdc.model.topic_names import parse_partition

Partition: TypeAlias = tuple[str, int]
PartitionCount: TypeAlias = tuple[int, int]
"""(next offset, records so far), see `cdc.model.progress_record.Cut`."""

_FRESH: Final[PartitionCount] = (0, 0)


@dataclass(frozen=True, slots=True)
class CutPosition:
    """A place in the log where a cut of the lake ends; always a boundary of source transactions.

    Attributes:
        epoch: of the source's history; 0 before the first cut.
        cuts_offset: the offset to read on from in ``<name>.__cuts``.
        accounts: every partition the index has named so far, control topics too.
        tables: ``schema.table`` -> complete or snapshotting.
        since_lsn: where the counts began; 0: with the log.
    """

    epoch: int
    end_lsn: int
    commit_lsn: int
    cuts_offset: int
    accounts: Mapping[Partition, PartitionCount]
    tables: Mapping[str, str]
    since_lsn: int


START: Final = CutPosition(0, 0, 0, 0, {}, {}, 0)
"""Before the first cut."""


@dataclass(frozen=True, slots=True)
class Span:
    """What lies between two marks.

    Attributes:
        merged: how many records of the index were merged.
        opened: partitions that came in between with records from before their account: where the account begins.
        only: the ranges of a part of what lies between the marks; None: all of it.
    """

    start: CutPosition
    end: CutPosition
    merged: int
    opened: Mapping[Partition, PartitionCount] = field(default_factory=dict)
    only: Mapping[Partition, tuple[int, int, int]] | None = None

    @property
    def counted(self) -> bool:
        """Whether the counts say what is in the ranges; they do not when the log is older than they are.

        That is so in the first span of a lake whose log has lost the beginning of its counts.
        """
        return self.start.epoch != 0 or self.end.since_lsn == 0

    @property
    def records(self) -> int:
        """Records of data topics, tombstones included."""
        return sum(records for _, _, records in self.ranges.values())

    @property
    def ranges(self) -> dict[Partition, tuple[int, int, int]]:
        """Partition -> (from offset, to offset, records), of data topics that have something new.

        A range holds transaction markers and aborted records as well; they are not among the records.
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
    """Whether a topic holds events: ``<name>.<schema>.<table>`` has two dots, control topics one, names none."""
    return topic.count(".") > 1


def next_span(start: CutPosition, cuts: Sequence[tuple[int, Cut]], *, events_max: int) -> Span | None:
    """The span behind `start`, as long as `events_max` allows but at least up to the first boundary.

    Args:
        start: where the last span ended, or START.
        cuts: (offset in the index, record) from `start.cuts_offset` on, in order; they may go on beyond any span.
        events_max: records of data topics in a span.

    Returns:
        None when `cuts` holds no boundary.

    Raises:
        SinkGap: the counts began anew or go backwards, or the index has lost a stretch and no full map follows.
        SinkStale: the source's history is another one.
    """
    building = _Building(start)
    found: Span | None = None
    for offset, cut in cuts:
        try:
            building.take(offset, cut)
        except SinkError:
            if found is None:
                raise
            break  # what comes before the fault is whole; the next call meets it first
        if cut.next_ordinal != 0:
            continue
        longer = building.span(cut)
        if found is not None and longer.records > events_max:
            break
        found = longer
    return found


def joined(passed: Span, span: Span) -> Span:
    """One span of two, of which the second begins where the first ends."""
    return Span(passed.start, span.end, passed.merged + span.merged, {**span.opened, **passed.opened})


class _Building:
    """The accounts from a mark on, record by record."""

    def __init__(self, start: CutPosition) -> None:
        self._start = start
        self._epoch = start.epoch
        self._since_lsn = start.since_lsn
        self._accounts = dict(start.accounts)
        self._tables = dict(start.tables)
        self._opened: dict[Partition, PartitionCount] = {}
        self._merged = 0
        self._cuts_offset = start.cuts_offset

    def take(self, offset: int, cut: Cut) -> None:
        """Count a record in. Raises SinkGap, SinkStale; then nothing of the record may be used."""
        self._check_history(cut)
        if cut.full:
            self._tables = dict(cut.tables)
        else:
            self._tables.update(cut.tables)
        for text, (end, count, _) in cut.changed.items():
            self._account(parse_partition(text), (end, count))
        self._merged += 1
        self._cuts_offset = offset + 1

    def span(self, cut: Cut) -> Span:
        """The span up to `cut`, which was taken last and is a boundary."""
        end = CutPosition(
            cut.epoch,
            cut.end_lsn,
            cut.commit_lsn,
            self._cuts_offset,
            dict(self._accounts),
            dict(self._tables),
            self._since_lsn,
        )
        return Span(self._start, end, self._merged, dict(self._opened))

    def _check_history(self, cut: Cut) -> None:
        if self._epoch == 0:
            if not cut.full:
                raise SinkGap(
                    "the cut index has lost its beginning, and its first record has no map of all partitions",
                    hint="capture writes one within 1,000 transactions; try again later",
                    end_lsn=Lsn(cut.end_lsn),
                )
            self._epoch, self._since_lsn = cut.epoch, cut.since_lsn
        if cut.epoch != self._epoch:
            raise SinkStale(
                f"the log goes on with epoch {cut.epoch} of the source, the lake is of epoch {self._epoch}",
                hint="the database was restored or replaced; build the lake anew in another folder",
                epoch=cut.epoch,
            )
        if cut.full and cut.since_lsn != self._since_lsn:
            raise SinkGap(
                f"the counts of the cut index began anew at {Lsn(cut.since_lsn)}",
                hint="capture was stopped for longer than the index is kept, so nothing says whether all records "
                "before are there; build the lake anew in another folder",
                since_lsn=Lsn(cut.since_lsn),
            )

    def _account(self, partition: Partition, account: PartitionCount) -> None:
        before = self._accounts.get(partition)
        if before is None and account[1] == 0:
            self._opened[partition] = account
        if before is not None and (account[0] < before[0] or account[1] < before[1]):
            raise SinkGap(
                f"the account of {partition[0]}-{partition[1]} in the cut index goes backwards",
                hint="the topic was made again or records of the index were written twice; build the lake anew",
                topic=partition[0],
                partition=partition[1],
            )
        self._accounts[partition] = account
