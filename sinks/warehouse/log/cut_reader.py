"""Reads the cut index and the schema records from Kafka for a lake."""

from __future__ import annotations

from cdc.cutindex.index_reader import bounds, cuts_between, epoch_start
from cdc.errors import SinkStale
from cdc.model.progress_record import CUTS_WINDOW, Cut, SchemaRecord
from cdc.model.topic_names import cuts_topic, schema_topic
from cdc.progress.record_format import decode_schema
from cdc.progress.restore import RecordReader
from sinks.warehouse.lake.cut_position import CutPosition


def read_cut_index(reader: RecordReader, name: str, start: CutPosition, limit: int) -> list[tuple[int, Cut]]:
    """Offset and value of the records of the cut index behind `start`, in order.

    At least `limit` records and one boundary, if there are that many. If records after `start` or the beginning of the
    index are gone, the result begins with the first full map that is left. Counts are cumulative, so nothing is missed,
    but everything up to that map becomes one cut. Empty until capture has written such a map. A new lake begins at the
    newest epoch, because its first map covers everything before it.

    Raises:
        SinkStale: the index ends before `start`: the topic was recreated.
        ProgressDamaged: a record is not readable.
    """
    topic = cuts_topic(name)
    low, high = bounds(reader, topic)
    if high < start.cuts_offset:
        raise SinkStale(
            f"{topic} ends at offset {high}, but the lake has read it up to {start.cuts_offset}",
            hint="the topic was recreated; rebuild the lake in another folder",
            topic=topic,
        )
    if not start.epoch:
        low = epoch_start(reader, topic, low, high)
    lost = low > start.cuts_offset
    found: list[tuple[int, Cut]] = []
    bounded = False
    for begin in range(max(low, start.cuts_offset), high, CUTS_WINDOW):
        for offset, _, cut in cuts_between(reader, topic, begin, min(begin + CUTS_WINDOW, high)):
            lost = lost and not cut.full
            if not lost:
                found.append((offset, cut))
                bounded = bounded or cut.next_ordinal == 0
        if bounded and len(found) >= limit:
            break
    return found


def read_schemas(reader: RecordReader, name: str) -> dict[tuple[str, str], SchemaRecord]:
    """Every schema a row of the log was encoded with, by (table, schema_id), in the order they first appeared.

    A schema that comes back keeps its first place, unless compaction moves it to a later one. A column that was dropped
    and added again gives a new id; an option that was changed back gives the old one. Raises ProgressDamaged.
    """
    topic = schema_topic(name)
    partition = (topic, 0)
    low, high = reader.end_offsets([topic])[partition]
    found: dict[tuple[str, str], SchemaRecord] = {}
    for batch in reader.read({partition: low}, {partition: high}):
        for record in batch:
            if record[5] is not None:
                schema = decode_schema(record[5], topic)
                found.setdefault((schema.table, schema.schema_id), schema)
    return found
