"""Row messages to events: formats whose values are Debezium's envelopes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.encode.format_parts import EventPieces
from cdc.encode.partitioner import partition_of
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import Row, RowRecords, TranscodeOptions, Values
from cdc.model.change_records import Headers, TopicBuffer, Truncation
from cdc.model.incomplete_record import IncompleteRecords


class EventRecords(RowRecords):
    """Each change is an event with its row before and after; a delete is followed by a tombstone."""

    __slots__ = ("_around",)

    def __init__(
        self,
        schema: TableSchema,
        buffer: TopicBuffer,
        options: TranscodeOptions,
        pieces: EventPieces,
        holes: IncompleteRecords | None,
    ) -> None:
        """See `RowRecords`."""
        super().__init__(schema, buffer, options, pieces, holes)
        self._around = pieces.around

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """See `cdc.contracts.Transcoding.remove`: an event and a tombstone for each key."""
        records = self._partitions[partition]
        around, stamp, lsn, ordinal = self._around, truncation.stamp, truncation.lsn, truncation.ordinal
        size = 0
        for key in keys:
            value = around(key, stamp, lsn, ordinal)
            size += 2 * len(key) + len(value)
            records.append((key, value, None))
            records.append((key, None, None))
        return size

    def _remove(self, key: bytes | None, before: Values | None, row: Row, given: Headers | None) -> None:
        if before is not None:
            value = self._built(b"d", before, None, row)
        else:
            assert key is not None
            value = self._around(key, *row)
        self._put(b"d", key, value, row, None, given)
        if key is not None:
            self._partitions[partition_of(key, self._partition_count)].append((key, None, None))
