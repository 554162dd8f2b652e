"""Adds the fields of Debezium's envelope that ours lacks by default: `encode.compatibility = "debezium"`. Pure.

They are `ts_ns`, `xmin`, `origin` and `origin_lsn` in `source`, and `ts_us` and `ts_ns` of the event. All times are the
commit time.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from cdc.encode.json_transcoder import Transcoder
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import TranscodeOptions
from cdc.model.change_records import Stamp, TopicBuffer, Truncation
from cdc.model.incomplete_record import IncompleteRecords


class DebeziumTranscoder(Transcoder):
    """A `Transcoder` that adds these fields to each stamp."""

    __slots__ = ("_given", "_stamp")

    def __init__(
        self,
        schema: TableSchema,
        buffer: TopicBuffer,
        options: TranscodeOptions,
        incomplete: IncompleteRecords | None = None,
    ) -> None:
        """See `Transcoder`."""
        super().__init__(schema, buffer, options, incomplete)
        self._given: Stamp | None = None
        self._stamp: Stamp | None = None

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """See `Transcoder`."""
        super().insert(frame, self._extended(stamp), ordinal)

    def update(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        """See `Transcoder`."""
        return super().update(frame, self._extended(stamp), ordinal)

    def delete(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """See `Transcoder`."""
        super().delete(frame, self._extended(stamp), ordinal)

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """See `Transcoder`."""
        return super().remove(partition, keys, replace(truncation, stamp=self._extended(truncation.stamp)))

    def copied(self, text: bytes, drop: Container[bytes], stamp: Stamp) -> tuple[int, int]:
        """See `Transcoder`."""
        return super().copied(text, drop, self._extended(stamp))

    def copied_keyless(self, lines: Sequence[bytes], stamp: Stamp, ordinal: int) -> int:
        """See `Transcoder`."""
        return super().copied_keyless(lines, self._extended(stamp), ordinal)

    def _extended(self, stamp: Stamp) -> Stamp:
        """Return the stamp with the additional fields; computed once per transaction."""
        if self._stamp is None or stamp is not self._given:
            nanos = stamp.commit_us * 1000
            source = b'"ts_ns":%d,"xmin":null,"origin":null,"origin_lsn":null,%b' % (nanos, stamp.source)
            tail = b'"ts_us":%d,"ts_ns":%d,%b' % (stamp.commit_us, nanos, stamp.tail)
            self._given, self._stamp = stamp, replace(stamp, source=source, tail=tail)
        return self._stamp
