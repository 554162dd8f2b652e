"""Builds envelopes for rows that do not fit the templates of a transcoder: TOAST, old rows, oversize. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import Final

from cdc.encode.envelope import ROW_TAIL, object_format
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import NOT_SENT
from cdc.encode.values import Encode
from cdc.model.change_records import Stamp

NULL: Final = b"null"


class JsonRows:
    """The common part of JSON formats: columns as JSON, keys as objects.

    `names` are the column names, encoded by `cdc.encode.envelope.member`.
    """

    __slots__ = ("_key_format", "_key_of", "_names", "encoders", "null")

    def __init__(self, schema: TableSchema, names: Sequence[bytes]) -> None:
        self._names = names
        self.encoders: tuple[Encode, ...] = tuple(encoding.encode for encoding in schema.encodings)
        self.null = NULL
        self._key_of = itemgetter(*schema.key) if schema.key else None
        self._key_format = object_format([names[index] for index in schema.key])

    def key(self, values: Sequence[bytes]) -> bytes:
        """See `cdc.encode.format_parts.RowFormat`."""
        assert self._key_of is not None
        key: bytes = self._key_format % self._key_of(values)
        return key

    def image(self, values: Sequence[bytes] | None, omitted: Collection[int] = ()) -> bytes:
        """Encode a row as an object of its available columns."""
        if values is None:
            return NULL
        pairs = (
            name + value
            for i, (name, value) in enumerate(zip(self._names, values, strict=True))
            if value != NOT_SENT and i not in omitted
        )
        return b"{%b}" % b",".join(pairs)

    def listed(self, indexes: Iterable[int]) -> bytes:
        """Encode column names as an array."""
        return b"[%b]" % b",".join(self._names[i][:-1] for i in indexes)


class Sparse(JsonRows):
    """Builds the envelopes of one relation; see `cdc.encode.format_parts.EnvelopeFormat`.

    `head` is the beginning of `source`, with the fields of the relation.
    """

    __slots__ = ("_head",)

    def __init__(self, schema: TableSchema, names: Sequence[bytes], head: bytes) -> None:
        super().__init__(schema, names)
        self._head = head

    def build(
        self,
        op: bytes,
        before: list[bytes] | None,
        after: list[bytes] | None,
        stamp: Stamp,
        lsn: int,
        ordinal: int,
        omitted: Collection[int] = (),
        reselected: Collection[int] = (),
    ) -> bytes:
        """Build an envelope; `source` lists columns that were not sent, were read later, or are left out."""
        unchanged = [i for i, value in enumerate(after or ()) if value == NOT_SENT and i not in omitted]
        lists = b""
        if unchanged:
            lists += b',"unchanged":' + self.listed(unchanged)
        if shown := sorted(set(reselected).difference(omitted)):
            lists += b',"reselected":' + self.listed(shown)
        if omitted:
            lists += b',"omitted":' + self.listed(sorted(omitted))
        tail = (ROW_TAIL % (lsn, lsn, ordinal))[:-1] + lists + b"}"
        return b'{"before":%b,"after":%b,%b%b%b,"op":"%b",%b' % (
            self.image(before, omitted),
            self.image(after, omitted),
            self._head,
            stamp.source,
            tail,
            op,
            stamp.tail,
        )

    def delete_of_key(self, key: bytes, stamp: Stamp, lsn: int, ordinal: int) -> bytes:
        """Build a delete whose `before` is the key, the only part of the old row in the stream."""
        tail = ROW_TAIL % (lsn, lsn, ordinal)
        return b'{"before":%b,"after":null,%b%b%b,"op":"d",%b' % (key, self._head, stamp.source, tail, stamp.tail)
