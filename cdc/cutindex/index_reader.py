"""Reads the cut index: decodes its records, and finds its newest full map and its epochs.

The index (``<name>.__cuts``, or that of a lake's views) has one record per Kafka transaction, in order. Its offsets and
counts are cumulative: a full map, updated by every later cut, gives those of all partitions. Epochs only grow. Readers
pass in a Kafka reader and decide themselves what a cut means to them. The audit alone decodes the maps by itself,
because it must not share code with what it checks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cdc.model.log_record import LogRecord
from cdc.model.progress_record import CUTS_WINDOW, Cut
from cdc.model.topic_names import parse_partition
from cdc.progress.record_format import decode
from cdc.progress.restore import Partition, RecordReader


class IndexedCut(NamedTuple):
    """A cut with its offset in the index and the time when it was written (ms since 1970)."""

    offset: int
    written_ms: int
    cut: Cut


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """Running count and hash of a partition at a cut; see `cdc.model.progress_record.Cut`."""

    next_offset: int
    count: int
    rolling: int


def counts_of(cut: Cut) -> dict[Partition, PartitionCount]:
    """Return the counts of the partitions that a cut names: all with a full map, else those that it changed."""
    return {
        parse_partition(text): PartitionCount(next_offset, count, int(rolling, 16))
        for text, (next_offset, count, rolling) in cut.changed.items()
    }


def decoded(batch: Iterable[LogRecord]) -> Iterator[IndexedCut]:
    """Decode records of the index. Raises ProgressDamaged for one that is not readable."""
    for topic, _, offset, written_ms, _, value, _ in batch:
        if value is not None:
            yield IndexedCut(offset, written_ms, decode(value, Cut, topic))


def bounds(reader: RecordReader, topic: str) -> tuple[int, int]:
    """Return the first available offset of an index, and the one after its last record."""
    return reader.end_offsets([topic])[topic, 0]


def cuts_between(reader: RecordReader, topic: str, start: int, end: int) -> Iterator[IndexedCut]:
    """Yield the cuts between two offsets. Markers and aborted records take up offsets as well."""
    if start < end:
        for batch in reader.read({(topic, 0): start}, {(topic, 0): end}):
            yield from decoded(batch)


def first_cut(reader: RecordReader, topic: str, start: int, end: int) -> IndexedCut | None:
    """Return the first cut at or behind `start`."""
    return next(cuts_between(reader, topic, start, end), None)


def newest_cut(reader: RecordReader, topic: str, low: int, high: int) -> IndexedCut | None:
    """Return the last cut below `high`; None if there is none."""
    for start in _starts(low, high):
        last = deque(cuts_between(reader, topic, start, high), maxlen=1)
        if last:
            return last[0]
    return None


def from_full_map(reader: RecordReader, topic: str, low: int, high: int) -> list[IndexedCut]:
    """Return the last full map below `high` and the cuts behind it; empty without a full map."""
    for start in _starts(low, high):
        found: list[IndexedCut] = []
        for one in cuts_between(reader, topic, start, high):
            if one.cut.full:
                found = [one]
            elif found:
                found.append(one)
        if found:
            return found
    return []


def last_before(reader: RecordReader, topic: str, low: int, high: int, wanted: tuple[int, int]) -> int | None:
    """Return the offset of the last cut without an event at or behind `wanted` = (epoch, LSN), found by halving."""
    found = None
    while low < high:
        middle = (low + high) // 2
        first = first_cut(reader, topic, middle, high)
        if first is None:
            high = middle
        elif (first.cut.epoch, first.cut.commit_lsn) < wanted:
            found = first.offset
            low = found + 1
        else:
            high = middle
    return found


def epoch_start(reader: RecordReader, topic: str, low: int, high: int) -> int:
    """Return the offset from which on every cut is of the newest epoch; `low` if there is no other epoch."""
    newest = newest_cut(reader, topic, low, high)
    before = None if newest is None else last_before(reader, topic, low, high, (newest.cut.epoch, 0))
    return low if before is None else before + 1


def _starts(low: int, high: int) -> Iterable[int]:
    """Where to begin looking backwards from `high`: one window suffices, unless the index has no full map there."""
    return dict.fromkeys((max(low, high - CUTS_WINDOW), low))
