"""Reads all tables of a pipeline as one sequence: in the total order of the source, up to a cut, in bounded memory.

`cdc.inspect.ordered_range` decides where to begin and end. From there the cut index is read boundary by boundary, and
`cdc.inspect.ordered_merge` orders the records between two boundaries. The reader yields what the log has: where
compaction has removed an older event of a key, the later ones come in order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from cdc.cutindex.index_reader import counts_of, cuts_between
from cdc.errors import InvariantError, TopicMismatch
from cdc.inspect.log_reading import Event
from cdc.inspect.ordered_merge import HELD_BYTES_MAX, HELD_RECORDS_MAX, OrderedMerge
from cdc.inspect.ordered_range import OrderedRange
from cdc.inspect.resume_token import Boundary, LogIdentity, Place, ReadPlaces
from cdc.lsn import Lsn
from cdc.model.event_envelope import EventEnvelope
from cdc.model.log_record import LogRecord
from cdc.model.read_pace import ReadPace
from cdc.model.topic_names import cuts_topic
from cdc.progress.restore import Partition, RecordReader


class PacedReader(Protocol):
    """The part of `cdc.kafka.log_reader.LogReader` that reads the topics."""

    def read(
        self,
        assignments: Mapping[Partition, int],
        until: Mapping[Partition, int] | None = None,
        *,
        pace: ReadPace | None = None,
    ) -> Generator[list[LogRecord], None, None]:
        """Yield the committed records between two offsets of each partition, except those held back."""


@dataclass(frozen=True, slots=True)
class OrderedEvent:
    """An event of the total order.

    Attributes:
        event: the record and its envelope.
        place: where the read stands after this event.
    """

    event: Event
    place: Place

    @property
    def token(self) -> str:
        """A text that resumes the read at exactly the next event."""
        return self.place.token()

    @property
    def record(self) -> LogRecord:
        """The record as in Kafka: topic, partition, offset, key, value and headers."""
        return self.event.record

    @property
    def table(self) -> str:
        """``schema.table``."""
        source = self._envelope.source
        return f"{source.schema}.{source.table}"

    @property
    def op(self) -> str:
        """``c`` insert, ``u`` update, ``d`` delete, ``r`` a row that a snapshot read."""
        return self._envelope.op

    @property
    def epoch(self) -> int:
        """The epoch of the log; it grows with each repair."""
        return self._envelope.source.epoch

    @property
    def commit_lsn(self) -> Lsn:
        """Where the commit of the transaction starts; for a row of a snapshot, the LSN that it joined at."""
        return Lsn(self._envelope.source.commit_lsn)

    @property
    def ordinal(self) -> int:
        """The number of the event in its transaction; 0 for a row of a snapshot."""
        return self._envelope.source.ordinal

    @property
    def key(self) -> Any:
        """The key as decoded JSON; None for a table without a key."""
        return None if self.event.record.key is None else msgspec.json.decode(self.event.record.key)

    @property
    def before(self) -> Any:
        """The old row as decoded JSON, if the record has it; else None."""
        return msgspec.json.decode(self._envelope.before)

    @property
    def after(self) -> Any:
        """The new row as decoded JSON; None for a delete."""
        return msgspec.json.decode(self._envelope.after)

    @property
    def _envelope(self) -> EventEnvelope:
        envelope = self.event.envelope
        assert envelope is not None, "the merge gives every event one"
        return envelope


@dataclass(frozen=True, slots=True)
class _Group:
    """What lies between two boundaries: the later one, and where the partitions that changed end there."""

    boundary: Boundary
    ends: Mapping[Partition, int]


class OrderedReader:
    """One read of a range. An iterator of `OrderedEvent`; used by one thread.

    Attributes:
        place: where the read stands: after the last event that it returned, or at the end of the range.
    """

    def __init__(
        self,
        index: RecordReader,
        data: PacedReader,
        log: LogIdentity,
        reading: OrderedRange,
        *,
        records_max: int = HELD_RECORDS_MAX,
        bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        """`index` and `data` are two readers, since both read at the same time."""
        self._index = index
        self._data = data
        self._name = log.name
        self._range = reading
        self._places = ReadPlaces(log, reading.state)
        self._pace = ReadPace()
        self._merge = OrderedMerge(reading.starts, self._pace.reached, records_max=records_max, bytes_max=bytes_max)
        self.place = self._places.here()
        self._events = self._read()

    def __iter__(self) -> Iterator[OrderedEvent]:
        return self

    def __next__(self) -> OrderedEvent:
        return next(self._events)

    @property
    def token(self) -> str:
        """The token of `place`."""
        return self.place.token()

    @property
    def held_count(self) -> int:
        """How many records are held now."""
        return self._merge.held_count

    def close(self) -> None:
        """End the read. May be called twice."""
        self._events.close()

    def _read(self) -> Generator[OrderedEvent, None, None]:
        """Yield the events of the range. Raises TopicMismatch, BrokerUnreachable and ProgressDamaged."""
        with closing(self._data.read(self._range.starts, self._range.ends, pace=self._pace)) as batches:
            yield from self._ordered(batches)

    def _ordered(self, batches: Iterator[list[LogRecord]]) -> Iterator[OrderedEvent]:
        reading, merge, places = self._range, self._merge, self._places
        floor = reading.state.boundary or Boundary(0, 0, 0)
        for group in self._groups():
            merge.begin((floor.epoch, floor.end_lsn, 0), group.ends)
            while not merge.complete:
                for event in merge.ready():
                    position = event.position[:2]
                    if reading.stop_at is not None and position >= reading.stop_at:
                        return
                    partition = event.record.topic_partition
                    place = places.passed(partition, merge.next_offset(partition))
                    if reading.skip_before is None or position >= reading.skip_before:
                        self.place = place
                        yield OrderedEvent(event, place)
                if not merge.complete:
                    self._fill(batches)
            floor = group.boundary
            places.at(floor)
            self.place = places.here()

    def _fill(self, batches: Iterator[list[LogRecord]]) -> None:
        self._pace.held = self._merge.surplus()
        batch = next(batches, None)
        if batch is None:
            raise InvariantError(f"the partitions end before the cut: {sorted(self._merge.waiting)[:3]}")
        self._merge.add(batch)

    def _groups(self) -> Iterator[_Group]:
        """Yield the groups of the range, from the cut index."""
        reading = self._range
        first = reading.index_from if reading.state.boundary is None else reading.state.boundary.offset + 1
        needs_map = reading.state.boundary is None  # what lies before the index is in a map only
        known: dict[Partition, int] = {}
        ends: dict[Partition, int] = {}
        for one in cuts_between(self._index, cuts_topic(self._name), first, reading.target.offset + 1):
            for partition, count in counts_of(one.cut).items():
                if partition in reading.ends:
                    _check_growth(partition, known.get(partition, 0), count.next_offset)
                    known[partition] = ends[partition] = count.next_offset
            needs_map = needs_map and not one.cut.full
            if one.cut.next_ordinal == 0 and not needs_map:
                yield _Group(Boundary(one.offset, one.cut.epoch, one.cut.end_lsn), ends)
                ends = {}


def _check_growth(partition: Partition, before: int, now: int) -> None:
    if now < before:
        topic, index = partition
        raise TopicMismatch(
            f"the cut index says that {topic}-{index} ended at offset {before}, and later at {now}",
            hint="the topic was recreated; its older events are gone. Start from an LSN behind that, or read the other "
            "tables by naming them",
            topic=topic,
            partition=index,
        )
