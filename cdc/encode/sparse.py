"""Envelopes from pieces, for rows that a transcoder's templates do not fit: TOAST, old rows, oversize. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from cdc.encode.envelope import ROW_TAIL
from cdc.model.event import Stamp

NULL: Final = b"null"
NOT_SENT: Final = b""
"""Stands for a value the stream does not have: no encoder gives an empty text."""


class Sparse:
    """Builds the envelopes of one relation.

    Args:
        names: of the columns, as `cdc.encode.envelope.member` has them.
        head: what `source` has of the relation, with the opening of the object.
    """

    __slots__ = ("_head", "_names")

    def __init__(self, names: list[bytes], head: bytes) -> None:
        self._names = names
        self._head = head

    def build(
        self,
        op: bytes,
        before: list[bytes] | None,
        after: list[bytes] | None,
        stamp: Stamp,
        lsn: int,
        ordinal: int,
        omitted: set[int] | frozenset[int] = frozenset(),
        reselected: Collection[int] = (),
    ) -> bytes:
        """An envelope; `source` lists the columns that were not sent, were read later, or are left out."""
        unchanged = [i for i, value in enumerate(after or ()) if value == NOT_SENT and i not in omitted]
        lists = b""
        if unchanged:
            lists += b',"unchanged":' + self._list(unchanged)
        if shown := sorted(set(reselected) - omitted):
            lists += b',"reselected":' + self._list(shown)
        if omitted:
            lists += b',"omitted":' + self._list(sorted(omitted))
        tail = (ROW_TAIL % (lsn, lsn, ordinal))[:-1] + lists + b"}"
        return b'{"before":%b,"after":%b,%b%b%b,"op":"%b",%b' % (
            self._image(before, omitted),
            self._image(after, omitted),
            self._head,
            stamp.source,
            tail,
            op,
            stamp.tail,
        )

    def around(self, key: bytes, stamp: Stamp, lsn: int, ordinal: int) -> bytes:
        """A delete whose `before` is the key: that is all the stream has of the old row."""
        tail = ROW_TAIL % (lsn, lsn, ordinal)
        return b'{"before":%b,"after":null,%b%b%b,"op":"d",%b' % (key, self._head, stamp.source, tail, stamp.tail)

    def _image(self, values: list[bytes] | None, omitted: set[int] | frozenset[int]) -> bytes:
        if values is None:
            return NULL
        pairs = (
            name + value
            for i, (name, value) in enumerate(zip(self._names, values, strict=True))
            if value != NOT_SENT and i not in omitted
        )
        return b"{%b}" % b",".join(pairs)

    def _list(self, indexes: list[int]) -> bytes:
        return b"[%b]" % b",".join(self._names[i][:-1] for i in indexes)
