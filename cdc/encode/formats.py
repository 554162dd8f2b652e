"""Selects the transcoder of a relation by its format. Pure.

Each format is a class, chosen when a relation is planned, never an `if` on the row path. The JSON envelope has its own
`insert` and update; code shared by all formats is in `cdc.encode.row_records`. A topic keeps its format, which its
schema record names: a reader of rows would otherwise take envelopes for rows.
"""

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
    schema: TableSchema, buffer: TopicBuffer, options: TranscodeOptions, incomplete: IncompleteRecords | None
) -> RowRecords:
    """Return a transcoder for rows in the format of `schema`."""
    if schema.format == "json" and schema.compatibility == "debezium":
        return DebeziumTranscoder(schema, buffer, options, incomplete)
    return _FORMATS[schema.format](schema, buffer, options, incomplete)
