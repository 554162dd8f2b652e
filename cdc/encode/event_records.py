"""Turns row messages into records of the formats whose values are Debezium's envelopes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.encode.format_parts import EnvelopeFormat
from cdc.encode.partitioner import partition_of
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import Row, RowRecords, TranscodeOptions, Values
from cdc.model.change_records import Headers, TopicBuffer, Truncation
from cdc.model.incomplete_record import IncompleteRecords


class EventRecords(RowRecords):
    """Writes each change as an event with the row before and after; a tombstone follows each delete."""

    __slots__ = ("_delete_of_key",)

    def __init__(
        self,
        schema: TableSchema,
        buffer: TopicBuffer,
        options: TranscodeOptions,
        row_format: EnvelopeFormat,
        incomplete: IncompleteRecords | None,
    ) -> None:
        """See `RowRecords`."""
        super().__init__(schema, buffer, options, row_format, incomplete)
        self._delete_of_key = row_format.delete_of_key

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """See `cdc.contracts.Transcoding.remove`: writes an event and a tombstone for each key."""
        records = self._partitions[partition]
        delete_of_key, stamp, lsn, ordinal = self._delete_of_key, truncation.stamp, truncation.lsn, truncation.ordinal
        size = 0
        for key in keys:
            value = delete_of_key(key, stamp, lsn, ordinal)
            size += 2 * len(key) + len(value)
            records.append((key, value, None))
            records.append((key, None, None))
        return size

    def _remove(self, key: bytes | None, before: Values | None, row: Row, given: Headers | None) -> None:
        if before is not None:
            value = self._built(b"d", before, None, row)
        else:
            assert key is not None
            value = self._delete_of_key(key, *row)
        self._put(b"d", key, value, row, None, given)
        if key is not None:
            self._partitions[partition_of(key, self._partition_count)].append((key, None, None))
