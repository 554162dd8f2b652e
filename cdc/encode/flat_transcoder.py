"""Encodes rows alone as JSON objects (`encode.format = "flat"`): the topic is the table, key by key. Pure.

    key {"id":7}   value {"id":7,"name":"Ann"}   headers __op u, __schema_id …, __epoch 1, __commit_lsn …, __ordinal 5

A delete is a tombstone, and so is each key that a TRUNCATE removes. Metadata is in headers, not in fields: a tombstone
has headers, too, so every change keeps its id, and the value contains only the row. Headers are named as by
`add.headers` of Debezium's ExtractNewRecordState.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cdc.encode.envelope import member, order_object
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import NOT_SENT, Row, RowRecords, TranscodeOptions, Values
from cdc.encode.sparse_envelope import JsonRows
from cdc.model.change_records import Headers, Stamp, TopicBuffer, Truncation
from cdc.model.incomplete_record import IncompleteRecords


class FlatRows(JsonRows):
    """See `cdc.encode.format_parts.RowFormat`."""

    __slots__ = ()

    def build(
        self,
        op: bytes,  # noqa: ARG002 - operation and position are in headers
        before: Sequence[bytes] | None,
        after: Sequence[bytes] | None,
        stamp: Stamp,  # noqa: ARG002
        lsn: int,  # noqa: ARG002
        ordinal: int,  # noqa: ARG002
        omitted: Collection[int] = (),
        reselected: Collection[int] = (),  # noqa: ARG002
    ) -> bytes:
        """Return the new row; for a delete in a table without a key, which has no tombstones, the old one."""
        return self.image(before if after is None else after, omitted)


class FlatTranscoder(RowRecords):
    """Turns the row messages of one relation into its rows, the latest of each key."""

    shows_before = False

    __slots__ = ("_rows", "_schema_header", "_shared", "_stamp")

    def __init__(
        self,
        schema: TableSchema,
        buffer: TopicBuffer,
        options: TranscodeOptions,
        incomplete: IncompleteRecords | None = None,
    ) -> None:
        """See `cdc.encode.row_records.RowRecords`."""
        self._rows = FlatRows(schema, [member(column.name) for column in schema.relation.columns])
        super().__init__(schema, buffer, options, self._rows, incomplete)
        self._schema_header = ("__schema_id", schema.schema_id.encode())
        self._stamp: Stamp | None = None
        self._shared: Headers = []

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """See `cdc.contracts.Transcoding.remove`: writes a tombstone for each key."""
        records = self._partitions[partition]
        headers = self._headers(b"d", None, (truncation.stamp, truncation.lsn, truncation.ordinal), None)
        records.extend((key, None, headers) for key in keys)
        return sum(map(len, keys)) + len(keys) * sum(len(name) + len(value) for name, value in headers)

    def _remove(self, key: bytes | None, before: Values | None, row: Row, given: Headers | None) -> None:
        value = self._built(b"d", before, None, row) if key is None else None
        self._put(b"d", key, value, row, None, given)

    def _headers(
        self, op: bytes, after: Values | None, row: Row, given: Headers | None, reselected: Collection[int] = ()
    ) -> Headers:
        stamp, _, ordinal = row
        if stamp is not self._stamp:
            self._stamp, self._shared = stamp, self._of_transaction(stamp)
        headers = [("__op", op), *self._shared, ("__ordinal", b"%d" % ordinal)]
        if after is not None and NOT_SENT in after:
            missing = [index for index, value in enumerate(after) if value == NOT_SENT]
            headers.append(("__unchanged", self._rows.listed(missing)))
        if reselected:
            headers.append(("__reselected", self._rows.listed(sorted(reselected))))
        return headers if given is None else headers + given

    def _of_transaction(self, stamp: Stamp) -> Headers:
        """Return the headers that all rows of a transaction share; per row if rows carry their order."""
        shared = [
            self._schema_header,
            ("__epoch", b"%d" % stamp.epoch),
            ("__commit_lsn", b"%d" % stamp.commit_lsn),
            ("__ts_ms", b"%d" % (stamp.commit_us // 1000)),
        ]
        return shared if stamp.order is None else [*shared, ("__transaction", order_object(stamp.order))]
