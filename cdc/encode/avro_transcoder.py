"""Encodes Debezium's envelope in Avro (`encode.format = "avro"`), with the frame of Confluent's serializers. Pure.

    0, four bytes of the schema id, Avro's binary encoding of a record `Key` or `Envelope` (`cdc.encode.avro_schema`)

The ids come from the registry: `cdc.capture.table_planner` registers schemas where it plans a relation, never for a
row. With the same ids the same WAL gives the same bytes.
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from cdc.encode.avro_binary import blocks, end_of, long, sized
from cdc.encode.avro_schema import key_parts
from cdc.encode.avro_types import NULL, avro_type
from cdc.encode.envelope import VERSION
from cdc.encode.event_records import EventRecords
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import NOT_SENT, TranscodeOptions, Values
from cdc.errors import DecodeError, InvariantError, RowRefused
from cdc.model.change_records import Stamp, TopicBuffer
from cdc.model.incomplete_record import IncompleteRecords

_FRAME_BYTES: Final = 5
_PRESENT: Final = b"\x02"


class AvroRows:
    """See `cdc.encode.event_records.EnvelopeFormat`."""

    __slots__ = (
        "_head",
        "_key_frame",
        "_key_parts",
        "_names",
        "_schema",
        "_shared",
        "_source",
        "_stamp",
        "_tail",
        "encoders",
        "null",
    )

    def __init__(self, schema: TableSchema, options: TranscodeOptions) -> None:
        """Raises InvariantError when `schema` has no registered ids."""
        relation, ids = schema.relation, schema.registered
        if ids is None or (ids.key is None and schema.key):
            raise InvariantError(f"the schema of {relation.table} is not registered")
        types = tuple(map(avro_type, schema.encodings))
        self._schema = schema
        self.encoders = tuple(kind.encode for kind in types)
        self.null = NULL
        self._names = [sized(column.name.encode()) for column in relation.columns]
        self._key_parts = key_parts(types, schema)
        self._key_frame = _frame(ids.key or 0)
        self._head = _frame(ids.value)
        constant = (VERSION, "postgresql", options.name, options.database, relation.namespace, relation.name)
        self._source = b"".join(sized(text.encode()) for text in (*constant, schema.schema_id))
        self._stamp: Stamp | None = None
        self._shared = self._tail = b""

    def key(self, values: Sequence[bytes]) -> bytes:
        """See `cdc.encode.format_parts.RowFormat`. Removes the null branch from columns: a key has no nulls."""
        pieces = [self._key_frame]
        for index, part in zip(self._schema.key, self._key_parts, strict=True):
            value = values[index]
            if value == NULL:
                raise self._null_key(index)
            pieces.append(bytes((value[0] - 2,)) + value[1:] if isinstance(part, list) else value[1:])
        return b"".join(pieces)

    def build(
        self,
        op: bytes,
        before: Values | None,
        after: Values | None,
        stamp: Stamp,
        lsn: int,
        ordinal: int,
        omitted: Collection[int] = (),
        reselected: Collection[int] = (),
    ) -> bytes:
        """Build an envelope; a column that was not sent is null and listed in `unchanged`."""
        assert not omitted, "refused by the configuration"
        if stamp is not self._stamp:
            self._prepare(stamp)
        missing = () if after is None or NOT_SENT not in after else [i for i, v in enumerate(after) if v == NOT_SENT]
        return b"".join(
            (
                self._head,
                _image(before),
                _image(after),
                self._source,
                self._shared,
                sized(b'["%d","%d"]' % (stamp.commit_lsn, lsn)),
                long(lsn),
                long(ordinal),
                self._listed(missing),
                self._listed(sorted(reselected)),
                sized(op),
                self._tail,
            )
        )

    def delete_of_key(self, key: bytes, stamp: Stamp, lsn: int, ordinal: int) -> bytes:
        """Build a delete whose `before` has only the key columns; the others are null."""
        values = [NULL] * len(self.encoders)
        at = _FRAME_BYTES
        for index, part in zip(self._schema.key, self._key_parts, strict=True):
            end = end_of(part, key, at)
            value = key[at:end]
            values[index] = bytes((value[0] + 2,)) + value[1:] if isinstance(part, list) else _PRESENT + value
            at = end
        if at != len(key):
            raise DecodeError("avro", at, detail=f"additional bytes after a key of {self._schema.relation.table}")
        return self.build(b"d", values, None, stamp, lsn, ordinal)

    def _prepare(self, stamp: Stamp) -> None:
        """Encode the fields that all rows of a transaction share; per row if rows carry their order."""
        ts_ms, order = long(stamp.commit_us // 1000), stamp.order
        snapshot, xid = (b"incremental", NULL) if stamp.xid is None else (b"false", _PRESENT + long(stamp.xid))
        self._stamp = stamp
        self._shared = b"".join(
            (sized(snapshot), ts_ms, long(stamp.commit_us), xid, long(stamp.epoch), long(stamp.commit_lsn))
        )
        self._tail = ts_ms + NULL
        if order is not None:
            orders = long(order.total_order) + long(order.data_collection_order)
            self._tail = ts_ms + _PRESENT + sized(order.transaction.encode()) + orders

    def _listed(self, indexes: Sequence[int]) -> bytes:
        return blocks([self._names[index] for index in indexes])

    def _null_key(self, index: int) -> RowRefused:
        table, column = self._schema.relation.table, self._schema.relation.columns[index].name
        return RowRefused(
            f"key column {column!r} of {table} is null in a row: Avro keys cannot contain null",
            hint="repair the row and make the column NOT NULL again",
            command=f'alter table {table} alter column "{column}" set not null;',
            table=table,
            column=column,
        )


class AvroTranscoder(EventRecords):
    """Turns the row messages of one relation into events of its topic."""

    __slots__ = ()

    def __init__(
        self,
        schema: TableSchema,
        buffer: TopicBuffer,
        options: TranscodeOptions,
        incomplete: IncompleteRecords | None = None,
    ) -> None:
        """See `cdc.encode.row_records.RowRecords`."""
        super().__init__(schema, buffer, options, AvroRows(schema, options), incomplete)


def _frame(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def _image(values: Values | None) -> bytes:
    if values is None:
        return NULL
    shown = [value or NULL for value in values] if NOT_SENT in values else values
    return _PRESENT + b"".join(shown)
