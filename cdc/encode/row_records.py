"""Turns row messages of one relation into records, for all formats: parsing, keys, TOAST, limits, errors. Pure.

A `cdc.encode.format_parts.RowFormat` encodes the rows. The formats are `cdc.encode.json_transcoder` (Debezium's
envelope in JSON, the most common hot path), `cdc.encode.avro_transcoder` and `cdc.encode.flat_transcoder`.
`cdc.encode.formats` selects one per relation.

A record that lacks unchanged TOAST values is added to the `IncompleteRecords`. Invalid bytes are passed to
`cdc.wire.pgoutput`, which diagnoses the error. Offsets into a frame: 25 tag, 26 relation oid, 30 kind of the first
tuple, 31 its column count.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, Literal, NoReturn, TypeAlias

from cdc.encode.format_parts import RowFormat
from cdc.encode.least_size import LeastSize, lengths
from cdc.encode.partitioner import partition_of
from cdc.encode.relation_schema import TableSchema
from cdc.errors import DecodeError, InvariantError, RowRefused
from cdc.model.change_records import Headers, Record, Stamp, TopicBuffer, Truncation
from cdc.model.incomplete_record import IncompleteRecord, IncompleteRecords, ReadValues
from cdc.wire import copy_text, pgoutput
from cdc.wire.frame import PAYLOAD_OFFSET

NOT_SENT: Final = b""
"""Marks a value that is not in the stream; no encoder returns an empty text."""

TUPLE_AT: Final = 31
ROW_LSN: Final = struct.Struct(">Q").unpack_from
"""At offset 1 of a frame."""
NEW_KEY: Final = "__debezium.newkey"
OLD_KEY: Final = "__debezium.oldkey"
_LENGTH: Final = struct.Struct(">I").unpack_from
_EXACT_BYTES: Final = 1 << 20  # a refusal reports the exact size of records up to this much above the limit
_NO_LIMIT: Final = 1 << 62

Values: TypeAlias = list[bytes]
"""Encoded columns of a row, in the relation's order."""
Row: TypeAlias = tuple[Stamp, int, int]
"""The position of a row: stamp of its transaction, LSN, ordinal."""
_Parts: TypeAlias = tuple[bytes, Values, Row, Headers | None]
"""Operation, new row, position and given headers of a record that lacks values."""


@dataclass(frozen=True, slots=True)
class TranscodeOptions:
    """Options for the rows of a pipeline.

    Attributes:
        row_bytes_max: a larger record is refused, or columns are left out.
        oversize: ``stop`` or ``omit``.
    """

    name: str
    database: str
    row_bytes_max: int
    oversize: Literal["stop", "omit"] = "stop"


class UnchangedValue(Exception):
    """A column was not sent; the row leaves the hot path."""


class RowRecords(ABC):
    """Turns the row messages of one relation into records of its topic; see `cdc.contracts.Transcoding`.

    Not thread-safe. A new Relation message for the same table creates a new instance with the same buffer.
    """

    shows_before: ClassVar = True
    """Whether the record of an update contains the old row, if the stream has it."""

    __slots__ = (
        "_buffer",
        "_column_count",
        "_encoders",
        "_format",
        "_frame_limit",
        "_incomplete",
        "_keyed",
        "_limit",
        "_null",
        "_options",
        "_partition_count",
        "_partitions",
        "schema",
    )

    def __init__(
        self,
        schema: TableSchema,
        buffer: TopicBuffer,
        options: TranscodeOptions,
        row_format: RowFormat,
        incomplete: IncompleteRecords | None,
    ) -> None:
        """Without `incomplete`, records are published without values that the stream does not contain."""
        self._incomplete = incomplete
        self.schema = schema
        self._buffer = buffer
        self._options = options
        self._limit = options.row_bytes_max
        # With `omit`, columns that fit are published, so every row is encoded.
        self._frame_limit = options.row_bytes_max + _EXACT_BYTES if options.oversize == "stop" else _NO_LIMIT
        self._partitions = buffer.partitions
        self._partition_count = len(buffer.partitions)
        self._format = row_format
        self._encoders = tuple(row_format.encoders)
        self._null = row_format.null
        self._column_count = len(schema.relation.columns).to_bytes(2, "big")
        self._keyed = bool(schema.key)

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """Transcode an Insert message. Raises DecodeError, RowRefused."""
        if len(frame) > self._frame_limit:
            self._refuse_by_length(frame, stamp)
        values, end = self._guarded(frame, TUPLE_AT, None)
        if end != len(frame) or frame[30] != 78:
            self._broken(frame)
        (lsn,) = ROW_LSN(frame, 1)
        row = (stamp, lsn, ordinal)
        self._put(b"c", self._key_bytes(values), self._built(b"c", None, values, row), row, values)

    def update(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        """Transcode an Update message. A changed key becomes a delete with its tombstone, and a create.

        Returns the expected size of missing values, 0 if the record is complete.
        """
        if len(frame) > self._frame_limit:
            self._refuse_by_length(frame, stamp)
        if len(frame) > TUPLE_AT and frame[30] == 78:
            return self._update_in_place(frame, stamp, ordinal)
        return self._update_with_old(frame, stamp, ordinal)

    def delete(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """Transcode a Delete message: the event, then a tombstone."""
        if len(frame) > self._frame_limit:
            self._refuse_by_length(frame, stamp)
        old, end = self._guarded(frame, TUPLE_AT, None)
        kind = frame[30]
        if end != len(frame) or kind not in b"KO":
            self._broken(frame)
        if kind == 75 and not self._keyed:
            raise DecodeError("D", 5, detail=f"only a key, but {self.schema.relation.table} has no key")
        (lsn,) = ROW_LSN(frame, 1)
        self._remove(self._key_bytes(old), old if kind == 79 else None, (stamp, lsn, ordinal), None)

    @abstractmethod
    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """See `cdc.contracts.Transcoding.remove`."""

    def key_of(self, line: bytes) -> bytes:
        """Return the key of a COPY line. Raises DecodeError, RowRefused. May be called from any thread."""
        return self._format.key(self._copied_values(line))

    def copied(self, text: bytes, drop: Container[bytes], stamp: Stamp) -> tuple[int, int]:
        """Add COPY lines that were read from the table, at ordinal 0 of a boundary, except keys in `drop`.

        Returns the number of records and their bytes. Raises DecodeError, RowRefused.
        """
        row, count, size = (stamp, stamp.commit_lsn, 0), 0, 0
        for line in text.splitlines(keepends=True):
            values = self._copied_values(line)
            key = self._format.key(values)
            if key not in drop:
                value = self._built(b"r", None, values, row)
                self._put(b"r", key, value, row, values)
                count, size = count + 1, size + len(key) + len(value)
        return count, size

    def copied_keyless(self, lines: Sequence[bytes], stamp: Stamp, ordinal: int) -> int:
        """As `copied`, for a table without a key; rows have ascending ordinals from `ordinal` on. Returns the bytes."""
        size = 0
        for number, line in enumerate(lines, ordinal):
            values, row = self._copied_values(line), (stamp, stamp.commit_lsn, number)
            value = self._built(b"r", None, values, row)
            self._put(b"r", None, value, row, values)
            size += len(value)
        return size

    def _copied_values(self, line: bytes) -> Values:
        """Return the encoded column values of a COPY line."""
        texts, null = copy_text.texts(line, len(self._encoders)), self._null
        try:
            return [
                null if text is None else text if encode is None else encode(text)
                for encode, text in zip(self._encoders, texts, strict=True)
            ]
        except UnicodeDecodeError:
            self._not_unicode(texts)

    def _row(self, frame: bytes, at: int, missing: Sequence[bytes] | None = None) -> tuple[Values, int]:
        """Return the encoded column values of the tuple at `at`, and the offset after it.

        `missing` has the values for columns that were not sent; without it, such a column raises UnchangedValue.
        Raises IndexError or struct.error past the end; a truncated value results in an offset past the frame.
        """
        if frame[at : at + 2] != self._column_count:
            raise IndexError
        at += 2
        values: Values = []
        append = values.append
        for encode in self._encoders:
            kind = frame[at]
            if kind == 116:
                start = at + 5
                at = start + _LENGTH(frame, at + 1)[0]
                append(frame[start:at] if encode is None else encode(frame[start:at]))
            elif kind == 110:
                append(self._null)
                at += 1
            elif kind == 117:
                if missing is None:
                    raise UnchangedValue
                append(missing[len(values)])
                at += 1
            else:
                raise IndexError
        return values, at

    def _update_in_place(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        (lsn,) = ROW_LSN(frame, 1)
        row = (stamp, lsn, ordinal)
        try:
            values, end = self._row(frame, TUPLE_AT)
        except UnchangedValue:
            return self._update_without(frame, row)
        except (IndexError, struct.error):
            self._broken(frame)
        except UnicodeDecodeError:
            self._not_text(frame)
        self._checked_end(frame, end)
        self._put(b"u", self._key_bytes(values), self._built(b"u", None, values, row), row, values)
        return 0

    def _update_without(self, frame: bytes, row: Row) -> int:
        """Transcode an update in which columns were not sent, and without an old row that has them."""
        values, end = self._guarded(frame, TUPLE_AT, [NOT_SENT] * len(self._encoders))
        self._checked_end(frame, end)
        if any(values[index] == NOT_SENT for index in self.schema.key):
            raise DecodeError("U", 5, detail="unchanged key column without an old key")
        key = self._key_bytes(values)
        self._put(b"u", key, self._built(b"u", None, values, row), row, values)
        return self._note_missing(frame, key, (b"u", values, row, None))

    def _update_with_old(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        """Transcode an update with the old row (FULL) or old key: detects a changed key, fills columns not sent."""
        kind = frame[30:31]
        if kind not in {b"K", b"O"}:
            self._broken(frame)
        old, at = self._guarded(frame, TUPLE_AT, None)
        if frame[at : at + 1] != b"N":
            self._broken(frame)
        full = kind == b"O"
        key_columns = self.schema.key
        missing = old if full else [v if i in key_columns else NOT_SENT for i, v in enumerate(old)]
        new, end = self._guarded(frame, at + 1, missing)
        self._checked_end(frame, end)
        (lsn,) = ROW_LSN(frame, 1)
        before = old if full else None
        old_key, new_key = self._key_bytes(old), self._key_bytes(new)
        row = (stamp, lsn, ordinal)
        if old_key == new_key:
            self._put(b"u", new_key, self._built(b"u", before, new, row), row, new)
            return self._note_missing(frame, new_key, (b"u", new, row, None))
        assert old_key is not None
        assert new_key is not None
        created = self._built(b"c", None, new, row)
        self._remove(old_key, before, row, [(NEW_KEY, new_key)])
        given = [(OLD_KEY, old_key)]
        self._put(b"c", new_key, created, row, new, given)
        return self._note_missing(frame, new_key, (b"c", new, row, given))

    def _note_missing(self, frame: bytes, key: bytes | None, parts: _Parts) -> int:
        """If the last record lacks columns, request their values, or mark it as incomplete.

        With REPLICA IDENTITY FULL no column is missing. The values are read right before the batch is written.
        """
        _, after, (stamp, _, _), _ = parts
        if key is None or NOT_SENT not in after:
            return 0
        partition = partition_of(key, self._partition_count)
        records = self._partitions[partition]
        if self._incomplete is None:
            self._buffer.incomplete.add((partition, len(records) - 1))
            return 0
        missing = tuple(index for index, value in enumerate(after) if value == NOT_SENT)
        fill = partial(self._fill, records, len(records) - 1, parts)
        relation, key_columns = self.schema.relation, self.schema.key
        assert stamp.xid is not None
        return self._incomplete.add(
            IncompleteRecord(relation, key_columns, self._key_texts(frame), key, missing, stamp.xid, fill)
        )

    def _key_texts(self, frame: bytes) -> tuple[str, ...]:
        """Return the key of the new row as the server wrote it, from a valid frame."""
        texts, at = self._texts(frame, TUPLE_AT)
        if frame[30] != 78:
            old = texts
            texts, _ = self._texts(frame, at + 1)
            texts = [before if text is None else text for before, text in zip(old, texts, strict=True)]
        return tuple((texts[index] or b"").decode() for index in self.schema.key)

    def _texts(self, frame: bytes, at: int) -> tuple[list[bytes | None], int]:
        """Return the texts of the tuple at `at`, None for missing ones, and the offset after it."""
        at += 2
        texts: list[bytes | None] = []
        for _ in self._encoders:
            start = at + 5
            if frame[at] == 116:
                at = start + _LENGTH(frame, at + 1)[0]
                texts.append(frame[start:at])
            else:
                at += 1
                texts.append(None)
        return texts, at

    def _fill(self, records: list[Record], at: int, parts: _Parts, found: ReadValues) -> None:
        """Encode a record again with values that were read later."""
        op, after, row, given = parts
        values = after.copy()
        for index, text in found.items():
            encode = self._encoders[index]
            try:
                values[index] = self._null if text is None else text if encode is None else encode(text)
            except UnicodeDecodeError:
                raise self._no_text(self.schema.relation.columns[index].name) from None
        value = self._built(op, None, values, row, found.keys())
        records[at] = (records[at][0], value, self._headers(op, values, row, given, found.keys()))

    def _headers(
        self,
        op: bytes,  # noqa: ARG002 - for formats that have it in headers
        after: Values | None,  # noqa: ARG002
        row: Row,  # noqa: ARG002
        given: Headers | None,
        reselected: Collection[int] = (),  # noqa: ARG002
    ) -> Headers | None:
        """Return the headers of a record; they include `given`."""
        return given

    @abstractmethod
    def _remove(self, key: bytes | None, before: Values | None, row: Row, given: Headers | None) -> None:
        """Add the records of a deleted row; `before` is the whole row, if the stream has it."""

    def _built(
        self, op: bytes, before: Values | None, after: Values | None, row: Row, reselected: Collection[int] = ()
    ) -> bytes:
        value = self._format.build(op, before, after, *row, reselected=reselected)
        return value if len(value) <= self._limit else self._smaller(op, before, after, row, len(value), reselected)

    def _put(
        self,
        op: bytes,
        key: bytes | None,
        value: bytes | None,
        row: Row,
        after: Values | None,
        given: Headers | None = None,
    ) -> None:
        headers = self._headers(op, after, row, given)
        if key is None:
            self._append_keyless(value, row[0], headers)
        else:
            self._partitions[partition_of(key, self._partition_count)].append((key, value, headers))

    def _append_keyless(self, value: bytes | None, stamp: Stamp, headers: Headers | None = None) -> None:
        """Append for a table without a key: all rows of a transaction go to one partition, the same on replay."""
        index = partition_of(stamp.commit_lsn.to_bytes(8, "big"), self._partition_count)
        self._partitions[index].append((None, value, headers))

    def _key_bytes(self, values: Values) -> bytes | None:
        return self._format.key(values) if self._keyed else None

    def _smaller(
        self,
        op: bytes,
        before: Values | None,
        after: Values | None,
        row: Row,
        size: int,
        reselected: Collection[int] = (),
    ) -> bytes:
        """Leave out the largest columns, never a key column, until the record fits; otherwise refuse the row."""
        sizes = sorted(
            (max(len(image[i]) for image in (before, after) if image is not None), i)
            for i in range(len(self._encoders))
            if i not in self.schema.key
        )
        omitted: set[int] = set()
        value = b""
        while self._options.oversize == "omit" and sizes:
            omitted.add(sizes.pop()[1])
            value = self._format.build(op, before, after, *row, omitted=omitted, reselected=reselected)
            if len(value) <= self._limit:
                return value
        raise self._too_large(str(size), size, sizes[-1][1] if sizes else None, row[0])

    def _too_large(self, shown: str, size: int, largest: int | None, stamp: Stamp) -> RowRefused:
        table = self.schema.relation.table
        column = "" if largest is None else self.schema.relation.columns[largest].name
        may_omit = self.schema.format == "json"  # other formats cannot list omitted columns
        return RowRefused(
            f"a row of {table} makes a record of {shown} bytes; the limit is {self._limit} "
            f"(largest column: {column!r})",
            hint="raise capture.row_bytes_max and max.message.bytes of the topic"
            + (", or leave large columns out" if may_omit else ""),
            command='[capture] oversize = "omit"' if may_omit else "",
            table=table,
            column=column,
            record_bytes=size,
            commit_lsn=stamp.commit_lsn,
        )

    def _refuse_by_length(self, frame: bytes, stamp: Stamp) -> None:
        """Raise RowRefused for a row far above the limit, before it is encoded.

        Errors in the frame are left to the normal path.
        """
        try:
            shows = self.shows_before, self.shows_before or not self._keyed
            rows = lengths(frame, len(self._encoders), updated=shows[0], deleted=shows[1])
        except (IndexError, struct.error):
            return
        least = LeastSize(self.schema.encodings, self.schema.format).of(*rows)
        if least > self._frame_limit:
            sizes = [max(row[index] or 0 for row in rows) for index in range(len(self._encoders))]
            others = [index for index in range(len(sizes)) if index not in self.schema.key]
            largest = max(others, key=sizes.__getitem__, default=None)
            raise self._too_large(f"at least {least}", least, largest, stamp)

    def _guarded(self, frame: bytes, at: int, missing: Sequence[bytes] | None) -> tuple[Values, int]:
        try:
            return self._row(frame, at, missing)
        except (IndexError, struct.error, UnchangedValue):
            self._broken(frame)
        except UnicodeDecodeError:
            self._not_text(frame)

    def _checked_end(self, frame: bytes, end: int) -> None:
        if end != len(frame):
            self._broken(frame)

    def _broken(self, frame: bytes) -> NoReturn:
        """Raise the error that the exact decoder finds; it must find one."""
        message = pgoutput.decode(frame[PAYLOAD_OFFSET:])
        relation = self.schema.relation
        for row in (getattr(message, "old", None), getattr(message, "new", None)):
            if row is not None and len(row) != len(relation.columns):
                raise DecodeError(
                    chr(frame[PAYLOAD_OFFSET]),
                    TUPLE_AT - PAYLOAD_OFFSET,
                    detail=f"{len(row)} columns, the relation {relation.table} has {len(relation.columns)}",
                )
        if isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete):
            raise DecodeError(chr(frame[PAYLOAD_OFFSET]), 6, detail="unexpected unchanged value")
        raise InvariantError(f"the fast path refused a valid message of {relation.table}")

    def _not_text(self, frame: bytes) -> NoReturn:
        """Raise the error for the column whose text is not UTF-8; only an SQL_ASCII database can send that."""
        message = pgoutput.decode(frame[PAYLOAD_OFFSET:])
        try:
            self._not_unicode(getattr(message, "old", None), getattr(message, "new", None))
        except RowRefused as error:
            # The change stays in the WAL, so capture can only continue with a slot that begins behind it.
            error.hint += "; the old value stays in the WAL, so then recreate the slot and read the tables again"
            error.command = "cdc slot recreate --resnapshot"
            raise

    def _not_unicode(self, *rows: Sequence[object] | None) -> NoReturn:
        relation = self.schema.relation
        for row in rows:
            for column, encode, value in zip(relation.columns, self._encoders, row or (), strict=False):
                try:
                    if encode is not None and isinstance(value, bytes):
                        encode(value)
                except UnicodeDecodeError:
                    raise self._no_text(column.name) from None
        raise InvariantError(f"a value of {relation.table} failed to encode once but not again")

    def _no_text(self, column: str) -> RowRefused:
        table = self.schema.relation.table
        return RowRefused(
            f"column {column!r} of {table} has bytes that are not UTF-8",
            hint="repair the row; the encoding of the database accepts any bytes",
            table=table,
            column=column,
        )
