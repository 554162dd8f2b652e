"""Merges the records of all partitions into the total order of the source, one group of cuts at a time. Pure.

A group is what lies between two boundaries of the cut index. Every transaction of the source is in exactly one group,
and a partition that has nothing in a group is not waited for. Inside a group the order is that of positions (epoch,
commit LSN, ordinal). In one partition positions never decrease, so a merge of the first records of the partitions is
enough. Rows of snapshots have a position of their own in their group: (boundary, 0), before the next transaction.

Records of one position are ordered by delete before create (the two records of a changed key), topic, partition and
offset. A tombstone directly behind its delete belongs to that event. Another tombstone is what compaction left of a
delete: it becomes an event of its own, at the position of the record before it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from cdc.errors import TopicMismatch
from cdc.inspect.log_reading import Event, Position, parse_event
from cdc.model.event_envelope import EventEnvelope, EventSource
from cdc.model.log_record import LogRecord
from cdc.model.topic_names import table_of
from cdc.progress.restore import Partition

HELD_RECORDS_MAX: Final = 20_000  # then only partitions that are waited for are read; 100,000 were not faster
HELD_BYTES_MAX: Final = 32 << 20
RECORD_BYTES: Final = 500  # what Python needs for a record besides key and value

Rank: TypeAlias = tuple[Position, bool, Partition, int]
"""Position, whether the event is not a delete, partition, offset: the order of the events of a group."""

_START: Final[tuple[Position, bool]] = ((0, 0, 0), False)
_NULL: Final = msgspec.Raw(b"null")


class OrderedMerge:
    """Takes records in the order of each partition, and returns events in the order of the source.

    Call `begin` for each group, then `ready` and `add` in turns until `complete`. Holds at most `records_max` records
    and `bytes_max` bytes, besides the last batch of each partition that is waited for: `surplus` names the partitions
    that must not be read for now.
    """

    def __init__(
        self,
        starts: Mapping[Partition, int],
        reached: Mapping[Partition, int],
        *,
        records_max: int = HELD_RECORDS_MAX,
        bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        """Create a merge.

        Args:
            starts: the offset of the first record of every partition that will ever be in a group.
            reached: up to which offset each partition was read, with or without records; the caller updates it before
                it calls `add`.
            records_max: how many records are held.
            bytes_max: how many bytes are held.
        """
        self._next = dict(starts)
        self._reached = reached
        self._read = dict(starts)
        self._queues: dict[Partition, deque[LogRecord]] = {at: deque() for at in starts}
        self._ends: Mapping[Partition, int] = {}
        self._floor: Position = (0, 0, 0)
        self._heads: list[tuple[Rank, Event]] = []
        self._waiting: set[Partition] = set()
        self._last: dict[Partition, tuple[Position, bool]] = {}
        self._deleted: dict[Partition, LogRecord] = {}
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._over = False
        self.held_count = 0
        self.held_bytes = 0

    @property
    def complete(self) -> bool:
        """Whether every event of the group was returned."""
        return not self._heads and not self._waiting

    @property
    def waiting(self) -> Collection[Partition]:
        """The partitions whose next record must be known before the next event is."""
        return self._waiting

    def next_offset(self, partition: Partition) -> int:
        """Return the offset behind the last event of a partition that `ready` returned, and its tombstone."""
        return self._next[partition]

    def begin(self, floor: Position, ends: Mapping[Partition, int]) -> None:
        """Start a group, which has the records of these partitions below these offsets.

        `floor` is a position that no record of the group is before, for tombstones without a record before them.
        """
        assert self.complete, "the group before is not finished"
        self._floor, self._ends = floor, ends
        for partition, end in ends.items():
            if end > self._next[partition]:
                self._advance(partition)

    def add(self, records: Iterable[LogRecord]) -> None:
        """Take the next records, in the order of each partition."""
        queues, read = self._queues, self._read
        for record in records:
            partition = record[:2]
            if record.offset >= read[partition]:  # a partition that was held back is fetched again
                queues[partition].append(record)
                read[partition] = record.offset + 1
                self.held_count += 1
                self.held_bytes += _size(record)
        for partition in tuple(self._waiting):
            self._advance(partition)

    def surplus(self) -> set[Partition]:
        """Return the partitions that must not be read for now: all that are not waited for, while too much is held."""
        part = 2 if self._over else 1  # begin to read again at half of the limits, not right below them
        self._over = self.held_count > self._records_max // part or self.held_bytes > self._bytes_max // part
        return set(self._queues).difference(self._waiting) if self._over else set()

    def ready(self) -> Iterator[Event]:
        """Yield the events whose turn has come. `next_offset` includes an event when it is yielded."""
        heads, waiting = self._heads, self._waiting
        while heads and not waiting:
            (_, _, partition, offset), event = heapq.heappop(heads)
            record = event.record
            self.held_count -= 1
            self.held_bytes -= _size(record)
            has_tombstone = record.value is not None and record.key is not None and _is_delete(event)
            if has_tombstone and not _is_flat(record):
                self._deleted[partition] = record
                offset += 1
            self._next[partition] = offset + 1
            self._advance(partition)
            yield event

    def _advance(self, partition: Partition) -> None:
        """Put the next event of a partition into the heap, if it is known; else wait for it, if there may be one."""
        queue, end = self._queues[partition], self._ends[partition]
        while queue and queue[0].offset < end:
            record = queue.popleft()
            if self._follows_its_delete(partition, record):
                self.held_count -= 1
                self.held_bytes -= _size(record)
                continue
            rank, event = self._ranked(partition, record)
            heapq.heappush(self._heads, (rank, event))
            self._waiting.discard(partition)
            return
        if queue or max(self._read[partition], self._reached.get(partition, 0)) >= end:
            self._next[partition] = max(self._next[partition], end)
            self._waiting.discard(partition)
        else:
            self._waiting.add(partition)

    def _ranked(self, partition: Partition, record: LogRecord) -> tuple[Rank, Event]:
        before = self._last.get(partition, _START)
        event = parse_event(record, before[0])
        if event.envelope is None:
            event = _delete_without_event(record, max(before[0], self._floor))
        own = (event.position, not _is_delete(event))
        self._last[partition] = own = max(own, before)  # the order of a partition takes precedence
        return (*own, partition, record.offset), event

    def _follows_its_delete(self, partition: Partition, record: LogRecord) -> bool:
        delete = self._deleted.pop(partition, None)
        if delete is None or record.offset != delete.offset + 1:
            return False
        if record.value is None and record.key == delete.key and not _is_flat(record):
            return True
        raise TopicMismatch(
            f"record {record.offset} of {record.topic}-{record.partition} is not the tombstone of the delete before it",
            hint="another program writes to the topic; Tailrace must be its only writer",
            command="cdc audit",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )


def _size(record: LogRecord) -> int:
    return RECORD_BYTES + len(record.value or b"") + len(record.key or b"")


def _is_flat(record: LogRecord) -> bool:
    return bool(record.headers) and record.headers is not None and record.headers[0][0] == "__op"


def _is_delete(event: Event) -> bool:
    return event.envelope is not None and event.envelope.op == "d"


def _delete_without_event(record: LogRecord, position: Position) -> Event:
    """Return the event of a tombstone whose delete was compacted away; its time is unknown."""
    schema, table = table_of(record.topic)
    epoch, commit_lsn, ordinal = position
    source = EventSource(schema=schema, table=table, epoch=epoch, commit_lsn=commit_lsn, ordinal=ordinal)
    return Event(record, EventEnvelope(after=_NULL, source=source, op="d", ts_ms=record.timestamp_ms), position)
