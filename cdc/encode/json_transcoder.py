"""Turns row messages into Debezium's JSON envelope, bytes to bytes: the hot path. Pure.

Each relation has a transcoder with a template of the envelope's constant parts, and one encoder function per column
(None if the text already is JSON). A row costs one list of column texts, one `%` for the value, one for the key, and
one hash for the partition; no object, no dict.

Rare cases (deletes, old rows, TOAST, oversize, invalid messages) leave this path for `cdc.encode.row_records`, with
envelopes from `cdc.encode.sparse_envelope`.
"""

from __future__ import annotations

import struct
from collections.abc import Container
from operator import itemgetter
from typing import Final

from murmurhash2 import murmurhash2

from cdc.encode.copied_columns import columns, objects
from cdc.encode.envelope import ROW_TAIL, literal, member, object_format, source_head
from cdc.encode.event_records import EventRecords
from cdc.encode.partitioner import SEED
from cdc.encode.plain_rows import COMPILED, plain_rows
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import ROW_LSN, TUPLE_AT, TranscodeOptions, UnchangedValue
from cdc.encode.sparse_envelope import Sparse
from cdc.errors import DecodeError
from cdc.model.change_records import Stamp, TopicBuffer
from cdc.model.incomplete_record import IncompleteRecords

_OPENING: Final = b'{"before":null,"after":'
_CREATED: Final = b',"op":"c",'
_UPDATED: Final = b',"op":"u",'


class Transcoder(EventRecords):
    """Turns the row messages of one relation into events of its topic."""

    __slots__ = ("_create", "_key", "_key_format", "_key_names", "_names", "_plain", "_rest", "_take", "_update")

    def __init__(
        self,
        schema: TableSchema,
        buffer: TopicBuffer,
        options: TranscodeOptions,
        incomplete: IncompleteRecords | None = None,
        *,
        compiled: bool = COMPILED,
    ) -> None:
        """See `cdc.encode.row_records.RowRecords`; `compiled`: see `cdc.encode.plain_rows`."""
        relation = schema.relation
        names = [member(column.name) for column in relation.columns]
        head = b'"source":' + source_head(
            options.name, options.database, (relation.namespace, relation.name), schema.schema_id
        )
        super().__init__(schema, buffer, options, Sparse(schema, names, head), incomplete)
        self._key = itemgetter(*schema.key) if schema.key else None
        self._names, self._key_names = names, [names[index] for index in schema.key]
        self._key_format = object_format(self._key_names)
        row, self._rest = object_format(names), head
        self._create = b'{"before":null,"after":%b,%b%%b%b,"op":"c",%%b' % (row, literal(head), ROW_TAIL)
        self._update = b'{"before":null,"after":%b,%b%%b%b,"op":"u",%%b' % (row, literal(head), ROW_TAIL)
        limit, rest = options.row_bytes_max, b"," + head
        self._plain = plain_rows(schema, names, buffer, opening=_OPENING, rest=rest, limit=limit, compiled=compiled)
        self._take = self._plain.take

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """Transcode an Insert message. Raises DecodeError, RowRefused."""
        if self._take(frame, _CREATED, stamp.source, stamp.tail, ordinal):
            return
        if len(frame) > self._frame_limit:
            self._refuse_by_length(frame, stamp)
        try:
            values, end = self._row(frame, TUPLE_AT)
        except (IndexError, struct.error, UnchangedValue):
            self._broken(frame)
        except UnicodeDecodeError:
            self._not_text(frame)
        if end != len(frame) or frame[30] != 78:
            self._broken(frame)
        (lsn,) = ROW_LSN(frame, 1)
        value = self._create % (*values, stamp.source, lsn, lsn, ordinal, stamp.tail)
        if len(value) > self._limit:
            value = self._smaller(b"c", None, values, (stamp, lsn, ordinal), len(value))
        key_of = self._key
        if key_of is None:
            self._append_keyless(value, stamp)
            return
        key = self._key_format % key_of(values)
        self._partitions[(murmurhash2(key, SEED) & 0x7FFFFFFF) % self._partition_count].append((key, value, None))

    def update(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        """See `cdc.encode.row_records.RowRecords.update`."""
        if self._take(frame, _UPDATED, stamp.source, stamp.tail, ordinal):
            return 0
        return super().update(frame, stamp, ordinal)

    def _update_in_place(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        (lsn,) = ROW_LSN(frame, 1)
        try:
            values, end = self._row(frame, TUPLE_AT)
        except UnchangedValue:
            return self._update_without(frame, (stamp, lsn, ordinal))
        except (IndexError, struct.error):
            self._broken(frame)
        except UnicodeDecodeError:
            self._not_text(frame)
        if end != len(frame):
            self._broken(frame)
        value = self._update % (*values, stamp.source, lsn, lsn, ordinal, stamp.tail)
        if len(value) > self._limit:
            value = self._smaller(b"u", None, values, (stamp, lsn, ordinal), len(value))
        key_of = self._key
        if key_of is None:
            self._append_keyless(value, stamp)
            return 0
        key = self._key_format % key_of(values)
        self._partitions[(murmurhash2(key, SEED) & 0x7FFFFFFF) % self._partition_count].append((key, value, None))
        return 0

    def copied(self, text: bytes, drop: Container[bytes], stamp: Stamp) -> tuple[int, int]:
        """See `cdc.encode.row_records.RowRecords.copied`; without compiled code, encodes whole columns at once."""
        row, limit = (stamp, stamp.commit_lsn, 0), self._limit
        source = stamp.source + ROW_TAIL % (row[1], row[1], 0) + b',"op":"r",' + stamp.tail
        taken = self._plain.copied(text, source, drop)
        if taken is not None:
            return taken
        try:
            found = columns(text, self._encoders, self._null) if text else []
        except (ValueError, DecodeError):
            found = []
        if not found:
            return super().copied(text, drop, stamp)
        partitions, partition_count = self._partitions, self._partition_count
        keys = objects(self._key_names, [found[index] for index in self.schema.key], b"", b"")
        values = objects(self._names, found, _OPENING, b"," + self._rest + source)
        count = size = 0
        for number, (key, whole) in enumerate(zip(keys, values, strict=True)):
            if key in drop:
                continue
            value = whole
            if len(value) > limit:
                value = self._smaller(b"r", None, [column[number] for column in found], row, len(value))
            partitions[(murmurhash2(key, SEED) & 0x7FFFFFFF) % partition_count].append((key, value, None))
            count += 1
            size += len(key) + len(value)
        return count, size
