"""Reads the cut index and the schemas from Kafka for a lake (`sinks.warehouse.log`)."""

from __future__ import annotations

from cdc.cutindex.index_reader import IndexReader, bounds, cuts_between, epoch_start
from cdc.errors import SinkStale
from cdc.model.progress_record import CUTS_WINDOW, Cut, SchemaRecord
from cdc.model.topic_names import cuts_topic, schema_topic
from cdc.progress.record_format import decode_schema
from sinks.warehouse.log.span import CutPosition


def read_cut_index(reader: IndexReader, name: str, start: CutPosition, limit: int) -> list[tuple[int, Cut]]:
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
    low, high = bounds(reader, topic)
    if high < start.cuts_offset:
        raise SinkStale(
            f"{topic} ends at offset {high}, and the lake has read it up to {start.cuts_offset}",
            hint="the topic was made again; build the lake anew in another folder",
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


def read_schemas(reader: IndexReader, name: str) -> dict[tuple[str, str], SchemaRecord]:
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
            if record[5] is not None:
                schema = decode_schema(record[5], topic)
                found.setdefault((schema.table, schema.schema_id), schema)
    return found
