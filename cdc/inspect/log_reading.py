"""Reads events from the log for people and scripts: where to start, which to keep, in which order to show them.

Order within a partition is always exact. Across partitions events are merged by position: exactly among the events
held at a time (`HELD_RECORDS_MAX`), approximately beyond that.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import msgspec

from cdc.clock import Clock
from cdc.cutindex.log_start import AtLsn, AtOffset, AtTime, Now, Start
from cdc.cutindex.lookup import cut_before
from cdc.errors import TopicMismatch, UsageError
from cdc.model.event_envelope import EventEnvelope, EventSource, decode_envelope
from cdc.model.key_match import key_matches
from cdc.model.log_record import LogRecord
from cdc.model.progress_record import SchemaRecord
from cdc.model.topic_names import schema_topic, table_of, view_schema_topic
from cdc.progress.record_format import decode_schema
from cdc.progress.restore import Partition, TopicReader

HELD_RECORDS_MAX: Final = 20_000  # records sorted at a time; about one fetch from each of 16 partitions
HELD_BYTES_MAX: Final = 32 << 20
HOLD_S: Final = 0.25  # time that an event waits for one with an earlier position when following
CLOCK_SKEW_MS: Final = (
    5_000  # assumed limit of the difference between PostgreSQL's clock (ts_ms) and ours (the record's time)
)

Position: TypeAlias = tuple[int, int, int]
"""(epoch, commit_lsn, ordinal): the total order of events."""


class EventReader(TopicReader, Protocol):
    """The reader of Kafka that this module needs, e.g. `cdc.kafka.log_reader.LogReader`."""

    def offsets_for_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int | None]:
        """Return the first offset whose record is not older; None for partitions without one."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the log, from its schema record."""

    name: str
    topic: str
    key: tuple[str, ...]
    format: str = "json"


@dataclass(frozen=True, slots=True)
class Event:
    """A decoded record. `envelope` is None for a tombstone directly after its delete.

    A tombstone has the position of the event before it.
    """

    record: LogRecord
    envelope: EventEnvelope | None
    position: Position


def tables(reader: TopicReader, name: str, lakes: Sequence[str] = ()) -> list[Table]:
    """Return all tables ever captured under this name, sorted by name, and the views that these lakes publish.

    Raises TopicMismatch when nothing was captured.
    """
    topic = schema_topic(name)
    latest: dict[str, tuple[int, SchemaRecord]] = {}
    for schemas in (topic, *(view_schema_topic(name, lake) for lake in lakes)):
        try:
            newest = reader.last_records(schemas)
        except TopicMismatch:
            newest = {}
        for offset, value in newest.values():
            record = decode_schema(value, schemas)
            if offset >= latest.get(record.table, (-1, record))[0]:
                latest[record.table] = (offset, record)
    if not latest:
        raise TopicMismatch(
            f"nothing was ever captured as {name!r}: topic {topic!r} does not exist or is empty",
            hint="start capture first, or check `name` and kafka.bootstrap",
            command="cdc run",
            topic=topic,
        )
    return [Table(table, record.topic, record.key, record.format) for table, (_, record) in sorted(latest.items())]


class Selection:
    """Selects events from a start on, by operation and key. Use it once, in log order."""

    def __init__(self, start: Start, *, ops: frozenset[str] = frozenset(), key: object = None) -> None:
        self._start = start
        self._ops = ops
        self.key = key
        self._epoch = 0
        self._kept: dict[Partition, bool] = {}

    def offsets(self, reader: EventReader, name: str, topics: Sequence[str]) -> dict[Partition, int]:
        """Return where to read each partition from. Raises UsageError for an unknown partition or offset."""
        ends = reader.end_offsets(topics)
        low = {partition: first for partition, (first, _) in ends.items()}
        high = {partition: end for partition, (_, end) in ends.items()}
        start = self._start
        if isinstance(start, Now):
            return high
        if isinstance(start, AtTime):
            found = reader.offsets_for_time(list(ends), start.ts_ms - CLOCK_SKEW_MS)
            return {partition: high[partition] if at is None else at for partition, at in found.items()}
        if isinstance(start, AtOffset):
            return _checked(start, ends)
        if isinstance(start, AtLsn):
            cut = cut_before(reader, name, start.lsn)
            if cut is not None:
                self._epoch = cut.epoch
                # A topic whose old records were deleted starts later; one that was recreated ends earlier.
                return {at: min(max(cut.offsets.get(at, 0), first), end) for at, (first, end) in ends.items()}
        return low

    def wants(self, event: Event) -> bool:
        """Whether to show it. A tombstone goes with its delete, unless only some operations are wanted."""
        partition = event.record.topic_partition
        envelope = event.envelope
        if envelope is None:
            return not self._ops and self._kept.get(partition, self._unconditional)
        kept = self._wants(event, envelope)
        self._kept[partition] = kept
        return kept

    @property
    def _unconditional(self) -> bool:
        return self.key is None and not isinstance(self._start, AtLsn | AtTime)

    def _wants(self, event: Event, envelope: EventEnvelope) -> bool:
        start, source = self._start, envelope.source
        if self._ops and envelope.op not in self._ops:
            return False
        if isinstance(start, AtTime) and envelope.ts_ms < start.ts_ms:
            return False
        if isinstance(start, AtLsn) and (source.epoch, source.commit_lsn) < (self._epoch or source.epoch, start.lsn):
            return False
        return self.key is None or key_matches(self.key, event.record.key)


def parse_event(record: LogRecord, before: Position) -> Event:
    """Decode a record; `before` is the position of the previous record of its partition.

    Raises TopicMismatch for a value that is not an envelope: another program writes to the topic.
    """
    topic, partition, offset, _, _, value, headers = record
    if headers and headers[0][0] == "__op":
        return _flat_event(record, dict(headers))
    if value is None:
        return Event(record, None, before)
    try:
        envelope = decode_envelope(value)
    except msgspec.MsgspecError as error:
        raise TopicMismatch(
            f"record {offset} of {topic}-{partition} is not a Tailrace event: {error}",
            hint="another program writes to the topic; Tailrace must be its only writer",
            topic=topic,
            partition=partition,
            offset=offset,
        ) from None
    source = envelope.source
    return Event(record, envelope, (source.epoch, source.commit_lsn, source.ordinal))


def _flat_event(record: LogRecord, headers: Mapping[str, bytes]) -> Event:
    """Decode a record of format flat: its headers hold what is not part of the row, and a delete is a tombstone."""
    topic, partition, offset, _, _, value, _ = record
    op, row = headers["__op"].decode(), msgspec.Raw(value or b"null")
    nothing = msgspec.Raw(b"null")
    try:
        epoch, commit_lsn, ordinal = int(headers["__epoch"]), int(headers["__commit_lsn"]), int(headers["__ordinal"])
        unchanged = msgspec.json.decode(headers.get("__unchanged", b"[]"), type=tuple[str, ...])
        schema, table = table_of(topic)
        source = EventSource(
            schema=schema, table=table, epoch=epoch, commit_lsn=commit_lsn, ordinal=ordinal, unchanged=unchanged
        )
        before, after = (row, nothing) if op == "d" else (nothing, row)
        envelope = EventEnvelope(before=before, after=after, source=source, op=op, ts_ms=int(headers["__ts_ms"]))
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise TopicMismatch(
            f"record {offset} of {topic}-{partition} is not a Tailrace row: invalid headers ({error})",
            hint="another program writes to the topic; Tailrace must be its only writer",
            topic=topic,
            partition=partition,
            offset=offset,
        ) from None
    return Event(record, envelope, (epoch, commit_lsn, ordinal))


@dataclass(slots=True)
class EventMerger:
    """Merges the events of several partitions into one order; holds a bounded number of them."""

    _held: list[tuple[Position, str, int, int, Event]] = field(default_factory=list)
    _bytes: int = 0
    _last: dict[Partition, Position] = field(default_factory=dict)

    def add(self, records: Iterable[LogRecord]) -> list[Event]:
        """Add records; return the events that must be released because too many are held."""
        for record in records:
            partition = record.topic_partition
            before = self._last.get(partition, (0, 0, 0))
            event = parse_event(record, before)
            position = max(before, event.position)  # order within the partition takes precedence
            self._last[partition] = position
            heapq.heappush(self._held, (position, *record[:3], event))
            self._bytes += len(record.value or b"")
        ready = []
        while len(self._held) > HELD_RECORDS_MAX or self._bytes > HELD_BYTES_MAX:
            ready.append(self._pop())
        return ready

    def flush(self) -> list[Event]:
        """Return all held events, in order."""
        return [self._pop() for _ in range(len(self._held))]

    def _pop(self) -> Event:
        event = heapq.heappop(self._held)[4]
        self._bytes -= len(event.record.value or b"")
        return event


def history(
    reader: EventReader, offsets: Mapping[Partition, int], until: Mapping[Partition, int]
) -> Iterator[list[Event]]:
    """Yield lists of merged events between the offsets."""
    merger = EventMerger()
    for batch in reader.read(offsets, until):
        yield merger.add(batch)
    yield merger.flush()


def follow(reader: EventReader, offsets: Mapping[Partition, int], clock: Clock) -> Iterator[list[Event]]:
    """Yield lists of merged events from the offsets on, endlessly; a list may be empty, so that the caller can stop."""
    merger, since_s = EventMerger(), clock.monotonic_s()
    for batch in reader.read(offsets):
        ready = merger.add(batch)
        if not batch or clock.monotonic_s() - since_s >= HOLD_S:
            ready += merger.flush()
            since_s = clock.monotonic_s()
        yield ready


def _checked(start: AtOffset, ends: Mapping[Partition, tuple[int, int]]) -> dict[Partition, int]:
    topic, index = start.partition
    if start.partition not in ends:
        count = sum(1 for name, _ in ends if name == topic)
        raise UsageError(f"topic {topic!r} has no partition {index}; it has {count} partitions, numbered from 0")
    low, high = ends[start.partition]
    if not low <= start.offset <= high:
        raise UsageError(f"offset {start.offset} of {topic}-{index} is out of range; expected {low} to {high}")
    return {start.partition: start.offset}
