"""Reads the cut index and the schema records from Kafka for a lake."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from cdc.errors import ProgressDamaged, SinkStale
from cdc.kafka.cluster_facts import TopicPartition
from cdc.model.log_record import LogRecord
from cdc.model.progress_record import Cut, SchemaRecord
from cdc.model.topic_names import cuts_topic, schema_topic
from cdc.progress.record_format import decode
from sinks.warehouse.lake.cut_position import CutPosition

_CHUNK: Final = 4_096
"""Offsets requested at once: a record and its marker each, so twice as many as capture writes between full maps."""


class TopicReader(Protocol):
    """What this module needs of a Kafka reader; `cdc.kafka.log_reader.LogReader` implements it."""

    def end_offsets(self, topics: Iterable[str]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return, for each partition, the first available offset and the one after the last committed record."""

    def read(
        self, assignments: Mapping[TopicPartition, int], until: Mapping[TopicPartition, int] | None = None
    ) -> Iterator[list[LogRecord]]:
        """Yield the committed records between two offsets of each partition."""


def read_cut_index(reader: TopicReader, name: str, start: CutPosition, limit: int) -> list[tuple[int, Cut]]:
    """Return (offset, record) of the cut index after `start`, in order.

    At least `limit` records and one boundary, if there are that many. If records after `start` or the beginning of the
    index are gone, the result begins with the first full map that is left. Counts are cumulative, so nothing is missed,
    but everything up to that map becomes one cut. Empty until capture has written such a map. A new lake begins at the
    newest epoch, because its first map covers everything before it.

    Raises:
        SinkStale: the index ends before `start`: the topic was recreated.
        ProgressDamaged: a record is not readable.
    """
    topic = cuts_topic(name)
    partition = (topic, 0)
    low, high = reader.end_offsets([topic])[partition]
    if high < start.cuts_offset:
        raise SinkStale(
            f"{topic} ends at offset {high}, but the lake has read it up to {start.cuts_offset}",
            hint="the topic was recreated; rebuild the lake in another folder",
            topic=topic,
        )
    if not start.epoch:
        low = _newest_epoch(reader, partition, low, high)
    lost = low > start.cuts_offset
    found: list[tuple[int, Cut]] = []
    bounded = False
    for begin in range(max(low, start.cuts_offset), high, _CHUNK):
        for batch in reader.read({partition: begin}, {partition: min(begin + _CHUNK, high)}):
            for record in batch:
                if record.value is None:
                    continue
                cut = decode(record.value, Cut, topic)
                lost = lost and not cut.full
                if not lost:
                    found.append((record.offset, cut))
                    bounded = bounded or cut.next_ordinal == 0
        if bounded and len(found) >= limit:
            break
    return found


def _newest_epoch(reader: TopicReader, partition: TopicPartition, low: int, high: int) -> int:
    """Return the offset where the newest epoch begins, by binary search: epochs only grow."""
    newest = 0
    for begin in (max(low, high - _CHUNK), low):
        for batch in reader.read({partition: begin}, {partition: high}):
            newest = max([newest, *(decode(one.value, Cut, one.topic).epoch for one in batch if one.value is not None)])
        if newest:
            break
    end = high
    while low < end:
        middle = (low + end) // 2
        if _first_epoch(reader, partition, middle, high) < newest:
            low = middle + 1
        else:
            end = middle
    return low


def _first_epoch(reader: TopicReader, partition: TopicPartition, begin: int, high: int) -> float:
    """Return the epoch of the first record from `begin` on; infinity if there is none."""
    for batch in reader.read({partition: begin}, {partition: high}):
        for record in batch:
            if record.value is not None:
                return decode(record.value, Cut, record.topic).epoch
    return math.inf


def read_schemas(reader: TopicReader, name: str) -> dict[tuple[str, str], SchemaRecord]:
    """Return every schema that rows of the log were encoded with, by (table, schema_id), in order of first appearance.

    A schema that comes back keeps its first place, unless compaction moves it to a later one. A column that was dropped
    and added again gives a new id; an option that was changed back gives the old one. Raises ProgressDamaged.
    """
    topic = schema_topic(name)
    partition = (topic, 0)
    low, high = reader.end_offsets([topic])[partition]
    found: dict[tuple[str, str], SchemaRecord] = {}
    for batch in reader.read({partition: low}, {partition: high}):
        for record in batch:
            if record.value is not None:
                schema = _schema(record.value, topic)
                found.setdefault((schema.table, schema.schema_id), schema)
    return found


def _schema(value: bytes, topic: str) -> SchemaRecord:
    try:
        return msgspec.json.decode(value, type=SchemaRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ProgressDamaged(f"a schema record in {topic} is not readable", topic=topic) from None
