"""Reads the cut index and the schemas from Kafka for a lake (`sinks.warehouse.log`)."""

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
from sinks.warehouse.log.span import CutPosition

_CHUNK: Final = 4_096
"""Offsets asked for at once: a record and its marker each, so twice as many as capture writes between full maps."""


class TopicReader(Protocol):
    """What is needed of a Kafka reader; `cdc.kafka.log_reader.LogReader` is one."""

    def end_offsets(self, topics: Iterable[str]) -> Mapping[TopicPartition, tuple[int, int]]:
        """First offset there is, and the one after the last committed record."""

    def read(
        self, assignments: Mapping[TopicPartition, int], until: Mapping[TopicPartition, int] | None = None
    ) -> Iterator[list[LogRecord]]:
        """Committed records between two offsets of each partition."""


def read_cut_index(reader: TopicReader, name: str, start: CutPosition, limit: int) -> list[tuple[int, Cut]]:
    """Offset and value of the records of the cut index behind `start`, in order.

    At least `limit` of them, and one boundary, if there are so many. When records behind `start` are gone, or the
    index's beginning, it begins with the first full map that is left: counts are cumulative, so nothing is missed,
    but the cut up to there is one. Empty until capture has written that map. A new lake begins where the newest epoch
    does: its first map has everything before.

    Raises:
        SinkStale: the index ends before `start`: the topic was made again.
        ProgressDamaged: a record is not readable.
    """
    topic = cuts_topic(name)
    partition = (topic, 0)
    low, high = reader.end_offsets([topic])[partition]
    if high < start.cuts_offset:
        raise SinkStale(
            f"{topic} ends at offset {high}, and the lake has read it up to {start.cuts_offset}",
            hint="the topic was made again; build the lake anew in another folder",
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
    """The offset from which on every record is of the newest epoch; found by halving, since epochs only grow."""
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
    """Of the first record there; without one, of what is to come."""
    for batch in reader.read({partition: begin}, {partition: high}):
        for record in batch:
            if record.value is not None:
                return decode(record.value, Cut, record.topic).epoch
    return math.inf


def read_schemas(reader: TopicReader, name: str) -> dict[tuple[str, str], SchemaRecord]:
    """Every schema a row of the log was encoded with, by (table, schema_id), in the order they first appeared.

    A schema that came back (a column dropped and added again has another id, a changed option has the old one)
    keeps its first place; compaction may move it to a later one. Raises ProgressDamaged.
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
