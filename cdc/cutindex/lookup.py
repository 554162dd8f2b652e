"""Looks up LSNs in the cut index: from an LSN to an offset for each partition.

Each cut says how far the log reaches. So the cut before an LSN is found by halving, and the offsets of all partitions
by applying the changes since the full map before it. Does not access PostgreSQL.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.cutindex.index_reader import (
    bounds,
    counts_of,
    epoch_start,
    first_cut,
    from_full_map,
    last_before,
    newest_cut,
)
from cdc.lsn import Lsn
from cdc.model.topic_names import cuts_topic
from cdc.progress.restore import Partition, RecordReader


@dataclass(frozen=True, slots=True)
class CutOffsets:
    """The offsets of a cut, that is, of a point between two Kafka transactions.

    Attributes:
        epoch: the epoch that the LSN was looked up in; in another epoch the LSN has another meaning.
        offsets: the offset at which to resume each partition. A partition that is missing is read from its beginning.
    """

    epoch: int
    offsets: dict[Partition, int]


def cut_before(reader: RecordReader, name: str, lsn: Lsn) -> CutOffsets | None:
    """Return the latest cut before every event with `commit_lsn` >= `lsn`, in the newest epoch.

    It has no offsets if the index does not reach back so far. None if the index is empty.
    """
    topic = cuts_topic(name)
    low, high = bounds(reader, topic)
    newest = newest_cut(reader, topic, low, high)
    if newest is None:
        return None
    offsets: dict[Partition, int] = {}
    found = last_before(reader, topic, low, high, (newest.cut.epoch, lsn))
    for one in from_full_map(reader, topic, low, found + 1) if found is not None else ():
        offsets.update((partition, count.next_offset) for partition, count in counts_of(one.cut).items())
    return CutOffsets(newest.cut.epoch, offsets)


def index_offset_before(reader: RecordReader, name: str, lsn: Lsn) -> int:
    """Return where to begin reading the cut index to see every cut with a commit at or behind `lsn`.

    Of the newest epoch; 0 if the index does not reach back so far.
    """
    topic = cuts_topic(name)
    low, high = bounds(reader, topic)
    newest = newest_cut(reader, topic, low, high)
    found = None if newest is None else last_before(reader, topic, low, high, (newest.cut.epoch, lsn))
    return 0 if found is None else found + 1


def end_of_log(reader: RecordReader, name: str) -> Lsn | None:
    """Return the LSN that the newest cut reaches; None if the index is empty."""
    topic = cuts_topic(name)
    newest = newest_cut(reader, topic, *bounds(reader, topic))
    return None if newest is None else Lsn(newest.cut.end_lsn)


def newest_epoch(reader: RecordReader, name: str) -> tuple[int, int]:
    """Return the newest epoch in the index and the offset of its first cut; (0, 0) if the index is empty."""
    topic = cuts_topic(name)
    low, high = bounds(reader, topic)
    first = first_cut(reader, topic, epoch_start(reader, topic, low, high), high)
    return (0, 0) if first is None else (first.cut.epoch, first.offset)
