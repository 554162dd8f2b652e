"""Which transcoder makes the records of a relation: one class a format, chosen when a relation is planned. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from cdc.encode.avro_transcoder import AvroTranscoder
from cdc.encode.debezium_records import DebeziumTranscoder
from cdc.encode.flat_transcoder import FlatTranscoder
from cdc.encode.json_transcoder import Transcoder
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import RowRecords, TranscodeOptions
from cdc.model.change_records import TopicBuffer
from cdc.model.incomplete_record import IncompleteRecords

_Make = Callable[[TableSchema, TopicBuffer, TranscodeOptions, IncompleteRecords | None], RowRecords]

_FORMATS: Final[Mapping[str, _Make]] = {"json": Transcoder, "flat": FlatTranscoder, "avro": AvroTranscoder}


def transcoder_for(
    schema: TableSchema, buffer: TopicBuffer, options: TranscodeOptions, holes: IncompleteRecords | None
) -> RowRecords:
    """A transcoder for rows in the format of `schema`."""
    if schema.format == "json" and schema.compatibility == "debezium":
        return DebeziumTranscoder(schema, buffer, options, holes)
    return _FORMATS[schema.format](schema, buffer, options, holes)
