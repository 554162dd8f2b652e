"""Row messages to records, bytes to bytes: the hot path. Pure.

One transcoder per relation: a template with the constant parts of the envelope filled in, and one encoder function
per column (None where the text already is JSON). Per row there is one list of column texts, one `%` for the value,
one for the key, one hash for the partition; no object, no dict.

What is rare (TOAST, oversize, a message that is broken) leaves this path: unchanged columns and oversize rows are
built by `cdc.encode.sparse`, what an unchanged column lacks is noted as a `cdc.model.hole.Hole`, broken bytes are
given to `cdc.wire.pgoutput`, which says what is wrong.

Offsets into a frame: 25 tag, 26 relation oid, 30 kind of the first tuple, 31 its column count.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Final, Literal, NoReturn

from murmurhash2 import murmurhash2

from cdc.encode.envelope import ROW_TAIL, literal, member, object_format, source_head
from cdc.encode.partition import SEED, partition_of
from cdc.encode.schema import TableSchema
from cdc.encode.sparse import NOT_SENT, NULL, Sparse
from cdc.errors import DecodeError, InvariantError, RowRefused
from cdc.model.event import Headers, Record, Stamp, TopicBuffer, Truncation
from cdc.model.hole import Found, Hole, Holes
from cdc.wire import copytext, pgoutput
from cdc.wire.frame import PAYLOAD_OFFSET

_TUPLE_AT: Final = 31
_LENGTH: Final = struct.Struct(">I").unpack_from
_START: Final = struct.Struct(">Q").unpack_from
_NEW_KEY: Final = "__debezium.newkey"
_OLD_KEY: Final = "__debezium.oldkey"


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


class _UnchangedValue(Exception):
    """A column was not sent; the row takes the long way."""


class Transcoder:
    """Turns the row messages of one relation into records of its topic.

    Not thread-safe. After a Relation message for the same table a new one takes its place; the buffer stays.
    """

    __slots__ = (
        "_buffer",
        "_column_count",
        "_create",
        "_encoded",
        "_encoders",
        "_head",
        "_holes",
        "_key",
        "_key_format",
        "_limit",
        "_names",
        "_options",
        "_partition_count",
        "_partitions",
        "_sparse",
        "_update",
        "schema",
    )

    def __init__(
        self, schema: TableSchema, buffer: TopicBuffer, options: TranscodeOptions, holes: Holes | None = None
    ) -> None:
        """Without `holes` what the stream does not have stays out of the records."""
        relation = schema.relation
        self._holes = holes
        self.schema = schema
        self._buffer = buffer
        self._options = options
        self._limit = options.row_bytes_max
        self._partitions = buffer.partitions
        self._partition_count = len(buffer.partitions)
        self._names = [member(column.name) for column in relation.columns]
        self._encoders = tuple(encoding.encode for encoding in schema.encodings)
        self._encoded = [(index, encode) for index, encode in enumerate(self._encoders) if encode is not None]
        self._column_count = len(self._names).to_bytes(2, "big")
        self._key = itemgetter(*schema.key) if schema.key else None
        self._key_format = object_format([self._names[index] for index in schema.key])
        head = b'"source":' + source_head(
            options.name, options.database, (relation.namespace, relation.name), schema.schema_id
        )
        row = object_format(self._names)
        self._create = b'{"before":null,"after":%b,%b%%b%b,"op":"c",%%b' % (row, literal(head), ROW_TAIL)
        self._update = b'{"before":null,"after":%b,%b%%b%b,"op":"u",%%b' % (row, literal(head), ROW_TAIL)
        self._head = head
        self._sparse = Sparse(self._names, head)

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """An Insert message. Raises DecodeError, RowRefused."""
        try:
            values, end = self._row(frame, _TUPLE_AT)
        except (IndexError, struct.error, _UnchangedValue):
            self._broken(frame)
        except UnicodeDecodeError:
            self._not_text(frame)
        if end != len(frame) or frame[30] != 78:
            self._broken(frame)
        (lsn,) = _START(frame, 1)
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
        """An Update message. A changed key becomes a delete with its tombstone, and a create.

        Returns how many bytes are expected to come when its hole is filled, 0 without one.
        """
        if len(frame) > _TUPLE_AT and frame[30] == 78:
            return self._update_in_place(frame, stamp, ordinal)
        return self._update_with_old(frame, stamp, ordinal)

    def delete(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """A Delete message: the event, then a tombstone."""
        try:
            old, end = self._row(frame, _TUPLE_AT)
            kind = frame[30]
        except (IndexError, struct.error, _UnchangedValue):
            self._broken(frame)
        except UnicodeDecodeError:
            self._not_text(frame)
        if end != len(frame) or kind not in b"KO":
            self._broken(frame)
        if kind == 75 and self._key is None:
            raise DecodeError("D", 5, detail=f"has only a key, and {self.schema.relation.table} has none")
        (lsn,) = _START(frame, 1)
        self._remove(self._key_bytes(old), old if kind == 79 else None, (stamp, lsn, ordinal), None)

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """See `cdc.contracts.Transcoding.remove`: an event and a tombstone for each key."""
        records = self._partitions[partition]
        around, stamp, lsn, ordinal = self._sparse.around, truncation.stamp, truncation.lsn, truncation.ordinal
        size = 0
        for key in keys:
            value = around(key, stamp, lsn, ordinal)
            size += 2 * len(key) + len(value)
            records.append((key, value, None))
            records.append((key, None, None))
        return size

    def key_of(self, line: bytes) -> bytes:
        """The key of a line of COPY. Raises DecodeError, RowRefused. May be called from any thread."""
        assert self._key is not None
        key: bytes = self._key_format % self._key(self._copied_values(line))
        return key

    def copied(self, lines: Sequence[bytes], drop: Container[bytes], stamp: Stamp) -> tuple[int, int]:
        """Rows that were read from the table, as lines of COPY, at ordinal 0 of a boundary; not keys that `drop` has.

        Returns how many they are, and their bytes. Raises DecodeError, RowRefused.
        """
        row, key_of, limit, count, size = (stamp, stamp.commit_lsn, 0), self._key, self._limit, 0, 0
        assert key_of is not None
        # All but the columns is the same for all of them.
        rest = self._head + stamp.source + ROW_TAIL % (row[1], row[1], 0) + b',"op":"r",' + stamp.tail
        template = b'{"before":null,"after":' + object_format(self._names) + b"," + literal(rest)
        key_format, partitions, partition_count = self._key_format, self._partitions, self._partition_count
        for line in lines:
            values = self._copied_values(line)
            key = key_format % key_of(values)
            if key in drop:
                continue
            value = template % tuple(values)
            if len(value) > limit:
                value = self._smaller(b"r", None, values, row, len(value))
            partitions[(murmurhash2(key, SEED) & 0x7FFFFFFF) % partition_count].append((key, value, None))
            count += 1
            size += len(key) + len(value)
        return count, size

    def _copied_values(self, line: bytes) -> list[bytes]:
        """Encoded column values of a line of COPY."""
        if b"\\" in line:
            return self._escaped_values(line)
        values = line[:-1].split(b"\t")
        try:
            for index, encode in self._encoded:
                values[index] = encode(values[index])
        except (UnicodeDecodeError, IndexError):
            return self._escaped_values(line)
        return values if len(values) == len(self._encoders) else self._escaped_values(line)

    def _escaped_values(self, line: bytes) -> list[bytes]:
        texts = copytext.texts(line, len(self._encoders))
        try:
            return [
                NULL if text is None else text if encode is None else encode(text)
                for encode, text in zip(self._encoders, texts, strict=True)
            ]
        except UnicodeDecodeError:
            self._not_unicode(texts)

    def _row(self, frame: bytes, at: int, missing: Sequence[bytes] | None = None) -> tuple[list[bytes], int]:
        """Encoded column values of the tuple at `at`, and the offset after it.

        `missing` gives the values of columns that were not sent; without it such a column raises.
        Raises IndexError or struct.error past the end; a value cut short shows as an end past the frame.
        """
        if frame[at : at + 2] != self._column_count:
            raise IndexError
        at += 2
        values: list[bytes] = []
        append = values.append
        for encode in self._encoders:
            kind = frame[at]
            if kind == 116:
                start = at + 5
                at = start + _LENGTH(frame, at + 1)[0]
                append(frame[start:at] if encode is None else encode(frame[start:at]))
            elif kind == 110:
                append(NULL)
                at += 1
            elif kind == 117:
                if missing is None:
                    raise _UnchangedValue
                append(missing[len(values)])
                at += 1
            else:
                raise IndexError
        return values, at

    def _update_in_place(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        (lsn,) = _START(frame, 1)
        try:
            values, end = self._row(frame, _TUPLE_AT)
        except _UnchangedValue:
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

    def _update_without(self, frame: bytes, row: tuple[Stamp, int, int]) -> int:
        """Columns were not sent, and there is no old row to take them from."""
        values, end = self._guarded(frame, _TUPLE_AT, [NOT_SENT] * len(self._names))
        self._checked_end(frame, end)
        if any(values[index] == NOT_SENT for index in self.schema.key):
            raise DecodeError("U", 5, detail="has an unchanged key column and no old key")
        key = self._key_bytes(values)
        self._put(key, self._built(b"u", None, values, row), row[0], None)
        return self._note_hole(frame, key, b"u", values, row)

    def _update_with_old(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        """The old row (FULL) or old key came too: see whether the key changed, fill what was not sent."""
        kind = frame[30:31]
        if kind not in {b"K", b"O"}:
            self._broken(frame)
        old, at = self._guarded(frame, _TUPLE_AT, None)
        if frame[at : at + 1] != b"N":
            self._broken(frame)
        full = kind == b"O"
        key_columns = self.schema.key
        missing = old if full else [v if i in key_columns else NOT_SENT for i, v in enumerate(old)]
        new, end = self._guarded(frame, at + 1, missing)
        self._checked_end(frame, end)
        (lsn,) = _START(frame, 1)
        before = old if full else None
        old_key, new_key = self._key_bytes(old), self._key_bytes(new)
        row = (stamp, lsn, ordinal)
        if old_key == new_key:
            self._put(new_key, self._built(b"u", before, new, row), stamp, None)
            return self._note_hole(frame, new_key, b"u", new, row)
        assert old_key is not None
        assert new_key is not None
        created = self._built(b"c", None, new, row)
        self._remove(old_key, before, row, [(_NEW_KEY, new_key)])
        self._put(new_key, created, stamp, [(_OLD_KEY, old_key)])
        return self._note_hole(frame, new_key, b"c", new, row)

    def _note_hole(
        self, frame: bytes, key: bytes | None, op: bytes, after: list[bytes], row: tuple[Stamp, int, int]
    ) -> int:
        """The record put last may lack columns: have them asked for. With REPLICA IDENTITY FULL none is missing."""
        if self._holes is None or key is None or NOT_SENT not in after:
            return 0
        missing = tuple(index for index, value in enumerate(after) if value == NOT_SENT)
        records = self._partitions[partition_of(key, self._partition_count)]
        fill = partial(self._fill, records, len(records) - 1, (op, after, row))
        relation, key_columns = self.schema.relation, self.schema.key
        return self._holes.add(Hole(relation, key_columns, self._key_texts(frame), missing, row[0].xid, fill))

    def _key_texts(self, frame: bytes) -> tuple[str, ...]:
        """The key of the new row as the server wrote it, of a frame that was read before."""
        texts, at = self._texts(frame, _TUPLE_AT)
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

    def _fill(
        self, records: list[Record], at: int, parts: tuple[bytes, list[bytes], tuple[Stamp, int, int]], found: Found
    ) -> None:
        """Make a record anew with values that were read later."""
        op, after, row = parts
        values = after.copy()
        for index, text in found.items():
            encode = self._encoders[index]
            try:
                values[index] = NULL if text is None else text if encode is None else encode(text)
            except UnicodeDecodeError:
                raise self._no_text(self.schema.relation.columns[index].name) from None
        value = self._sparse.build(op, None, values, *row, reselected=found.keys())
        if len(value) > self._limit:
            value = self._smaller(op, None, values, row, len(value), reselected=found.keys())
        key, _, headers = records[at]
        records[at] = (key, value, headers)

    def _remove(
        self, key: bytes | None, before: list[bytes] | None, row: tuple[Stamp, int, int], headers: Headers | None
    ) -> None:
        stamp, lsn, ordinal = row
        if before is not None:
            value = self._built(b"d", before, None, row)
        else:
            assert key is not None
            value = self._sparse.around(key, stamp, lsn, ordinal)
        self._put(key, value, stamp, headers)
        if key is not None:
            self._partitions[partition_of(key, self._partition_count)].append((key, None, None))

    def _built(
        self, op: bytes, before: list[bytes] | None, after: list[bytes] | None, row: tuple[Stamp, int, int]
    ) -> bytes:
        value = self._sparse.build(op, before, after, *row)
        return self._smaller(op, before, after, row, len(value)) if len(value) > self._limit else value

    def _put(self, key: bytes | None, value: bytes, stamp: Stamp, headers: Headers | None) -> None:
        if key is None:
            self._append_keyless(value, stamp)
        else:
            self._partitions[partition_of(key, self._partition_count)].append((key, value, headers))

    def _append_keyless(self, value: bytes, stamp: Stamp) -> None:
        """A table without a key: all rows of a transaction in one partition, the same one on replay."""
        index = partition_of(stamp.commit_lsn.to_bytes(8, "big"), self._partition_count)
        self._partitions[index].append((None, value, None))

    def _key_bytes(self, values: list[bytes]) -> bytes | None:
        return None if self._key is None else self._key_format % self._key(values)

    def _smaller(
        self,
        op: bytes,
        before: list[bytes] | None,
        after: list[bytes] | None,
        row: tuple[Stamp, int, int],
        size: int,
        reselected: Collection[int] = (),
    ) -> bytes:
        """Leave out the largest columns, never a key column, until the row fits; or refuse it."""
        table = self.schema.relation.table
        sizes = sorted(
            (max(len(image[i]) for image in (before, after) if image is not None), i)
            for i in range(len(self._names))
            if i not in self.schema.key
        )
        omitted: set[int] = set()
        value = b""
        while self._options.oversize == "omit" and sizes:
            omitted.add(sizes.pop()[1])
            value = self._sparse.build(op, before, after, *row, omitted=omitted, reselected=reselected)
            if len(value) <= self._limit:
                return value
        column = self.schema.relation.columns[sizes[-1][1]].name if sizes else ""
        raise RowRefused(
            f"a row of {table} makes a record of {size} bytes; the limit is {self._limit} (largest column: {column!r})",
            hint="raise capture.row_bytes_max and max.message.bytes of the topic, or leave large columns out",
            command='[capture] oversize = "omit"',
            table=table,
            column=column,
            record_bytes=size,
            commit_lsn=row[0].commit_lsn,
        )

    def _guarded(self, frame: bytes, at: int, missing: Sequence[bytes] | None) -> tuple[list[bytes], int]:
        try:
            return self._row(frame, at, missing)
        except (IndexError, struct.error, _UnchangedValue):
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
                    _TUPLE_AT - PAYLOAD_OFFSET,
                    detail=f"has {len(row)} columns, the relation {relation.table} has {len(relation.columns)}",
                )
        if isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete):
            raise DecodeError(chr(frame[PAYLOAD_OFFSET]), 6, detail="has an unchanged value where there can be none")
        raise InvariantError(f"the fast path refused a message of {relation.table} that is well formed")

    def _not_text(self, frame: bytes) -> NoReturn:
        """Find the column whose text is not UTF-8, which only an SQL_ASCII database can send."""
        message = pgoutput.decode(frame[PAYLOAD_OFFSET:])
        self._not_unicode(getattr(message, "old", None), getattr(message, "new", None))

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
            hint="the database's encoding lets any bytes in; repair the row, or leave the column out",
            table=table,
            column=column,
        )
