"""Row messages of one relation to records, whatever their format: reading, keys, holes, limits, errors. Pure.

What a format is made of it is given as `Pieces`; the formats are `cdc.encode.json_transcoder` (Debezium's envelope in
JSON, the hot path of most) and `cdc.encode.avro_transcoder`, by way of `cdc.encode.event_records`, and
`cdc.encode.flat_transcoder`. `cdc.encode.formats` chooses one per relation.

What an unchanged column lacks is noted as a `cdc.model.incomplete_record.IncompleteRecord`; broken bytes are given to
`cdc.wire.pgoutput`, which says what is wrong. Offsets into a frame: 25 tag, 26 relation oid, 30 kind of the first
tuple, 31 its column count.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, Literal, NoReturn, TypeAlias

from cdc.encode.format_parts import Pieces
from cdc.encode.least_size import LeastSize, lengths
from cdc.encode.partitioner import partition_of
from cdc.encode.relation_schema import TableSchema
from cdc.errors import DecodeError, InvariantError, RowRefused
from cdc.model.change_records import Headers, Record, Stamp, TopicBuffer, Truncation
from cdc.model.incomplete_record import IncompleteRecord, IncompleteRecords, ReadValues
from cdc.wire import copy_text, pgoutput
from cdc.wire.frame import PAYLOAD_OFFSET

NOT_SENT: Final = b""
"""Stands for a value the stream does not have: no encoder gives an empty text."""

TUPLE_AT: Final = 31
ROW_LSN: Final = struct.Struct(">Q").unpack_from
"""At offset 1 of a frame."""
NEW_KEY: Final = "__debezium.newkey"
OLD_KEY: Final = "__debezium.oldkey"
_LENGTH: Final = struct.Struct(">I").unpack_from
_EXACT_BYTES: Final = 1 << 20  # over the limit, up to which a refusal says the exact size of the record
_NO_LIMIT: Final = 1 << 62

Values: TypeAlias = list[bytes]
"""Encoded columns of a row, in the relation's order."""
Row: TypeAlias = tuple[Stamp, int, int]
"""Where a row stands: its transaction's stamp, its LSN, its ordinal."""
_Parts: TypeAlias = tuple[bytes, Values, Row, Headers | None]
"""Operation, new row, place and given headers of a record that lacks values."""


@dataclass(frozen=True, slots=True)
class TranscodeOptions:
    """What an operator may choose about rows.

    Attributes:
        row_bytes_max: a larger value is refused or made smaller.
        oversize: ``stop`` or ``omit``.
    """

    name: str
    database: str
    row_bytes_max: int
    oversize: Literal["stop", "omit"] = "stop"


class UnchangedValue(Exception):
    """A column was not sent; the row takes the long way."""


class RowRecords(ABC):
    """Turns the row messages of one relation into records of its topic; see `cdc.contracts.Transcoding`.

    Not thread-safe. After a Relation message for the same table a new one takes its place; the buffer stays.
    """

    shows_before: ClassVar = True
    """Whether the record of an update has the old row, if the stream has it."""

    __slots__ = (
        "_buffer",
        "_column_count",
        "_encoders",
        "_frame_limit",
        "_holes",
        "_keyed",
        "_limit",
        "_null",
        "_options",
        "_partition_count",
        "_partitions",
        "_pieces",
        "schema",
    )

    def __init__(
        self,
        schema: TableSchema,
        buffer: TopicBuffer,
        options: TranscodeOptions,
        pieces: Pieces,
        holes: IncompleteRecords | None,
    ) -> None:
        """Without `holes` what the stream does not have stays out of the records."""
        self._holes = holes
        self.schema = schema
        self._buffer = buffer
        self._options = options
        self._limit = options.row_bytes_max
        # With `omit` the columns are wanted that fit.
        self._frame_limit = options.row_bytes_max + _EXACT_BYTES if options.oversize == "stop" else _NO_LIMIT
        self._partitions = buffer.partitions
        self._partition_count = len(buffer.partitions)
        self._pieces = pieces
        self._encoders = tuple(pieces.encoders)
        self._null = pieces.null
        self._column_count = len(schema.relation.columns).to_bytes(2, "big")
        self._keyed = bool(schema.key)

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """An Insert message. Raises DecodeError, RowRefused."""
        if len(frame) > self._frame_limit:
            self._refuse_by_length(frame, stamp)
        values, end = self._guarded(frame, TUPLE_AT, None)
        if end != len(frame) or frame[30] != 78:
            self._broken(frame)
        (lsn,) = ROW_LSN(frame, 1)
        row = (stamp, lsn, ordinal)
        self._put(b"c", self._key_bytes(values), self._built(b"c", None, values, row), row, values)

    def update(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        """An Update message. A changed key becomes a delete with its tombstone, and a create.

        Returns how many bytes are expected to come when its hole is filled, 0 without one.
        """
        if len(frame) > self._frame_limit:
            self._refuse_by_length(frame, stamp)
        if len(frame) > TUPLE_AT and frame[30] == 78:
            return self._update_in_place(frame, stamp, ordinal)
        return self._update_with_old(frame, stamp, ordinal)

    def delete(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """A Delete message: the event, then a tombstone."""
        if len(frame) > self._frame_limit:
            self._refuse_by_length(frame, stamp)
        old, end = self._guarded(frame, TUPLE_AT, None)
        kind = frame[30]
        if end != len(frame) or kind not in b"KO":
            self._broken(frame)
        if kind == 75 and not self._keyed:
            raise DecodeError("D", 5, detail=f"has only a key, and {self.schema.relation.table} has none")
        (lsn,) = ROW_LSN(frame, 1)
        self._remove(self._key_bytes(old), old if kind == 79 else None, (stamp, lsn, ordinal), None)

    @abstractmethod
    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """See `cdc.contracts.Transcoding.remove`."""

    def key_of(self, line: bytes) -> bytes:
        """The key of a line of COPY. Raises DecodeError, RowRefused. May be called from any thread."""
        return self._pieces.key(self._copied_values(line))

    def copied(self, text: bytes, drop: Container[bytes], stamp: Stamp) -> tuple[int, int]:
        """Place rows that were read, lines of COPY, at ordinal 0 of a boundary, but for keys that `drop` has.

        Returns how many they are, and their bytes. Raises DecodeError, RowRefused.
        """
        row, count, size = (stamp, stamp.commit_lsn, 0), 0, 0
        for line in text.splitlines(keepends=True):
            values = self._copied_values(line)
            key = self._pieces.key(values)
            if key not in drop:
                value = self._built(b"r", None, values, row)
                self._put(b"r", key, value, row, values)
                count, size = count + 1, size + len(key) + len(value)
        return count, size

    def copied_keyless(self, lines: Sequence[bytes], stamp: Stamp, ordinal: int) -> int:
        """As `copied`, of a table without a key: ordinals, from `ordinal` on, tell rows apart. Returns their bytes."""
        size = 0
        for number, line in enumerate(lines, ordinal):
            values, row = self._copied_values(line), (stamp, stamp.commit_lsn, number)
            value = self._built(b"r", None, values, row)
            self._put(b"r", None, value, row, values)
            size += len(value)
        return size

    def _copied_values(self, line: bytes) -> Values:
        """Encoded column values of a line of COPY."""
        texts, null = copy_text.texts(line, len(self._encoders)), self._null
        try:
            return [
                null if text is None else text if encode is None else encode(text)
                for encode, text in zip(self._encoders, texts, strict=True)
            ]
        except UnicodeDecodeError:
            self._not_unicode(texts)

    def _row(self, frame: bytes, at: int, missing: Sequence[bytes] | None = None) -> tuple[Values, int]:
        """Encoded column values of the tuple at `at`, and the offset after it.

        `missing` gives the values of columns that were not sent; without it such a column raises.
        Raises IndexError or struct.error past the end; a value cut short shows as an end past the frame.
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
        """Columns were not sent, and there is no old row to take them from."""
        values, end = self._guarded(frame, TUPLE_AT, [NOT_SENT] * len(self._encoders))
        self._checked_end(frame, end)
        if any(values[index] == NOT_SENT for index in self.schema.key):
            raise DecodeError("U", 5, detail="has an unchanged key column and no old key")
        key = self._key_bytes(values)
        self._put(b"u", key, self._built(b"u", None, values, row), row, values)
        return self._note_hole(frame, key, (b"u", values, row, None))

    def _update_with_old(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        """The old row (FULL) or old key came too: see whether the key changed, fill what was not sent."""
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
            return self._note_hole(frame, new_key, (b"u", new, row, None))
        assert old_key is not None
        assert new_key is not None
        created = self._built(b"c", None, new, row)
        self._remove(old_key, before, row, [(NEW_KEY, new_key)])
        given = [(OLD_KEY, old_key)]
        self._put(b"c", new_key, created, row, new, given)
        return self._note_hole(frame, new_key, (b"c", new, row, given))

    def _note_hole(self, frame: bytes, key: bytes | None, parts: _Parts) -> int:
        """The record put last may lack columns: have them read, or mark it as incomplete.

        With REPLICA IDENTITY FULL none is missing.
        """
        _, after, (stamp, _, _), _ = parts
        if key is None or NOT_SENT not in after:
            return 0
        partition = partition_of(key, self._partition_count)
        records = self._partitions[partition]
        if self._holes is None:
            self._buffer.incomplete.add((partition, len(records) - 1))
            return 0
        missing = tuple(index for index, value in enumerate(after) if value == NOT_SENT)
        fill = partial(self._fill, records, len(records) - 1, parts)
        relation, key_columns = self.schema.relation, self.schema.key
        assert stamp.xid is not None
        return self._holes.add(
            IncompleteRecord(relation, key_columns, self._key_texts(frame), key, missing, stamp.xid, fill)
        )

    def _key_texts(self, frame: bytes) -> tuple[str, ...]:
        """The key of the new row as the server wrote it, of a frame that was read before."""
        texts, at = self._texts(frame, TUPLE_AT)
        if frame[30] != 78:
            old = texts
            texts, _ = self._texts(frame, at + 1)
            texts = [before if text is None else text for before, text in zip(old, texts, strict=True)]
        return tuple((texts[index] or b"").decode() for index in self.schema.key)

    def _texts(self, frame: bytes, at: int) -> tuple[list[bytes | None], int]:
        """The texts of the tuple at `at`, None where there is none, and the offset after it."""
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
        """Make a record anew with values that were read later."""
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
        op: bytes,  # noqa: ARG002 - for formats whose values do not say it
        after: Values | None,  # noqa: ARG002
        row: Row,  # noqa: ARG002
        given: Headers | None,
        reselected: Collection[int] = (),  # noqa: ARG002
    ) -> Headers | None:
        """The headers of a record, of which `given` must be some."""
        return given

    @abstractmethod
    def _remove(self, key: bytes | None, before: Values | None, row: Row, given: Headers | None) -> None:
        """Records of a row that is gone: `before` is all of it, if the stream has that."""

    def _built(
        self, op: bytes, before: Values | None, after: Values | None, row: Row, reselected: Collection[int] = ()
    ) -> bytes:
        value = self._pieces.build(op, before, after, *row, reselected=reselected)
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
        """A table without a key: all rows of a transaction in one partition, the same one on replay."""
        index = partition_of(stamp.commit_lsn.to_bytes(8, "big"), self._partition_count)
        self._partitions[index].append((None, value, headers))

    def _key_bytes(self, values: Values) -> bytes | None:
        return self._pieces.key(values) if self._keyed else None

    def _smaller(
        self,
        op: bytes,
        before: Values | None,
        after: Values | None,
        row: Row,
        size: int,
        reselected: Collection[int] = (),
    ) -> bytes:
        """Leave out the largest columns, never a key column, until the row fits; or refuse it."""
        sizes = sorted(
            (max(len(image[i]) for image in (before, after) if image is not None), i)
            for i in range(len(self._encoders))
            if i not in self.schema.key
        )
        omitted: set[int] = set()
        value = b""
        while self._options.oversize == "omit" and sizes:
            omitted.add(sizes.pop()[1])
            value = self._pieces.build(op, before, after, *row, omitted=omitted, reselected=reselected)
            if len(value) <= self._limit:
                return value
        raise self._too_large(str(size), size, sizes[-1][1] if sizes else None, row[0])

    def _too_large(self, shown: str, size: int, largest: int | None, stamp: Stamp) -> RowRefused:
        table = self.schema.relation.table
        column = "" if largest is None else self.schema.relation.columns[largest].name
        may_omit = self.schema.format == "json"  # the others cannot say what a row lacks
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
        """Raise RowRefused for a row that is far over the limit, before any of it is encoded.

        What is broken in a frame is for the way of all rows to find.
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
        """Ask the exact decoder what is wrong; it must find something."""
        message = pgoutput.decode(frame[PAYLOAD_OFFSET:])
        relation = self.schema.relation
        for row in (getattr(message, "old", None), getattr(message, "new", None)):
            if row is not None and len(row) != len(relation.columns):
                raise DecodeError(
                    chr(frame[PAYLOAD_OFFSET]),
                    TUPLE_AT - PAYLOAD_OFFSET,
                    detail=f"has {len(row)} columns, the relation {relation.table} has {len(relation.columns)}",
                )
        if isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete):
            raise DecodeError(chr(frame[PAYLOAD_OFFSET]), 6, detail="has an unchanged value where there can be none")
        raise InvariantError(f"the fast path refused a message of {relation.table} that is well formed")

    def _not_text(self, frame: bytes) -> NoReturn:
        """Find the column whose text is not UTF-8, which only an SQL_ASCII database can send."""
        message = pgoutput.decode(frame[PAYLOAD_OFFSET:])
        try:
            self._not_unicode(getattr(message, "old", None), getattr(message, "new", None))
        except RowRefused as error:
            # The change is in the WAL as it is; a slot that begins behind it is the only way past it.
            error.hint += "; what the WAL has of it stays, so then have the tables read anew, behind it"
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
        raise InvariantError(f"a value of {relation.table} failed to encode once but not twice")

    def _no_text(self, column: str) -> RowRefused:
        table = self.schema.relation.table
        return RowRefused(
            f"column {column!r} of {table} has bytes that are not UTF-8",
            hint="the database's encoding lets any bytes in: repair the row",
            table=table,
            column=column,
        )
