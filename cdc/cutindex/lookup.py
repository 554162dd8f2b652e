"""Finds a place in the cut index: from an LSN to an offset for each partition (DESIGN section 4).

`<name>.__cuts` has one record per Kafka transaction, in order. Each says how far the log reaches, and every so often
one has the offsets of all partitions. So a place is found by halving, and its offsets by reading on from the full
map before it. Reads Kafka through a reader that is handed in; knows nothing of PostgreSQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdc.lsn import Lsn
from cdc.model.log_record import LogRecord
from cdc.model.progress_record import Cut
from cdc.model.topic_names import cuts_topic
from cdc.progress.record_format import decode
from cdc.progress.restore import Partition, TopicReader

_NEAR: Final = 4096
"""Offsets read before a place at first: a full map comes every 1,000 records, each with a marker behind it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two Kafka transactions.

    Attributes:
        offsets: for each partition the offset to read on from; one that is not in it is read from its beginning.
        epoch: of the source's history that the LSN was looked up in; in another one it means something else.
    """

    epoch: int
    offsets: dict[Partition, int]


def cut_before(reader: TopicReader, name: str, lsn: Lsn) -> Place | None:
    """The latest place behind which every event with `commit_lsn` >= `lsn` lies.

    Of the newest epoch. Without offsets when the index does not reach back so far; None when the index is empty.
    """
    partition = (cuts_topic(name), 0)
    low, high = reader.end_offsets([partition[0]])[partition]
    newest = _last(reader, partition, low, high)
    if newest is None:
        return None
    found = _halve(reader, partition, (low, high), (newest.epoch, lsn))
    return Place(newest.epoch, {} if found is None else _offsets(reader, partition, low, found))


def index_offset_before(reader: TopicReader, name: str, lsn: Lsn) -> int:
    """Where to read the cut index from, so that everything committed at `lsn` or later comes in the cuts read.

    Of the newest epoch; 0 when the index does not reach back so far.
    """
    partition = (cuts_topic(name), 0)
    low, high = reader.end_offsets([partition[0]])[partition]
    newest = _last(reader, partition, low, high)
    found = None if newest is None else _halve(reader, partition, (low, high), (newest.epoch, lsn))
    return 0 if found is None else found + 1


def end_of_log(reader: TopicReader, name: str) -> Lsn | None:
    """The LSN that the newest cut reaches to; None when the index is empty."""
    partition = (cuts_topic(name), 0)
    low, high = reader.end_offsets([partition[0]])[partition]
    newest = _last(reader, partition, low, high)
    return None if newest is None else Lsn(newest.end_lsn)


def newest_epoch(reader: TopicReader, name: str) -> tuple[int, int]:
    """The newest epoch in the index and the offset of its first cut; (0, 0) when the index is empty."""
    partition = (cuts_topic(name), 0)
    low, high = reader.end_offsets([partition[0]])[partition]
    newest = _last(reader, partition, low, high)
    if newest is None:
        return 0, 0
    before = _halve(reader, partition, (low, high), (newest.epoch, 0))
    first = _first(reader, partition, low if before is None else before + 1, high)
    return newest.epoch, low if first is None else first[0]


def _halve(reader: TopicReader, partition: Partition, between: tuple[int, int], wanted: tuple[int, int]) -> int | None:
    """Offset of the last cut in `between` that has no event of `wanted` = (epoch, LSN) or behind it."""
    low, high = between
    found = None
    while low < high:
        middle = (low + high) // 2
        first = _first(reader, partition, middle, high)
        if first is None:
            high = middle
        elif (first[1].epoch, first[1].commit_lsn) < wanted:
            found = first[0]
            low = found + 1
        else:
            high = middle
    return found


def _offsets(reader: TopicReader, partition: Partition, low: int, at: int) -> dict[Partition, int]:
    """The next offset of every partition as of the cut at offset `at`; empty without a full map before it."""
    for start in (max(low, at - _NEAR), low):
        cuts = [cut for _, cut in _cuts(reader, partition, start, at + 1)]
        full = max((index for index, cut in enumerate(cuts) if cut.full), default=None)
        if full is None:
            continue
        offsets: dict[Partition, int] = {}
        for cut in cuts[full:]:
            offsets.update((_partition(text), account[0]) for text, account in cut.changed.items())
        return offsets
    return {}


def _partition(text: str) -> Partition:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def _last(reader: TopicReader, partition: Partition, low: int, high: int) -> Cut | None:
    """The newest cut. Markers and aborted records take up offsets too, so a few may be looked at."""
    near = [cut for _, cut in _cuts(reader, partition, max(low, high - _NEAR), high)]
    return near[-1] if near else None


def _first(reader: TopicReader, partition: Partition, start: int, end: int) -> tuple[int, Cut] | None:
    """The first cut at or after offset `start`, and where it is."""
    for batch in reader.read({partition: start}, {partition: end}):
        for record in batch:
            if record.value is not None:
                return _decoded(record)
    return None


def _cuts(reader: TopicReader, partition: Partition, start: int, end: int) -> list[tuple[int, Cut]]:
    batches = reader.read({partition: start}, {partition: end})
    return [_decoded(record) for batch in batches for record in batch if record.value is not None]


def _decoded(record: LogRecord) -> tuple[int, Cut]:
    assert record.value is not None
    return record.offset, decode(record.value, Cut, record.topic)
