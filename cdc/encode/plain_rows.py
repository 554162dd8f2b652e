"""Takes plain rows in compiled code, where `_plain_rows.c` was built; everywhere else it takes none. Pure.

A plain row has only new values, and all of them, and makes a record within the limit. Compiled code refuses any other
without an effect, and the transcoder takes it: so each rare form and each error has one implementation. The bytes are
the same with and without compiled code (tests/property/test_plain_rows.py), at a quarter of the CPU.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, Protocol

from cdc.encode.envelope import ROW_TAIL
from cdc.encode.relation_schema import TableSchema
from cdc.encode.values import Encode, boolean, number, quoted, string, timestamp, timestamp_utc
from cdc.model.change_records import TopicBuffer

try:
    from cdc.encode import _plain_rows
except ImportError:
    _plain_rows = None  # type: ignore[assignment]

COMPILED: Final = _plain_rows is not None
"""Whether this installation has compiled code."""

_FORMS: Final[dict[Encode, int]] = {
    None: 0,
    quoted: 1,
    string: 2,
    boolean: 3,
    number: 4,
    timestamp: 5,
    timestamp_utc: 6,
}
"""The encoders that compiled code implements; it calls any other one."""
_OTHER: Final = 7


class PlainRows(Protocol):
    """Appends the records of plain rows to the partitions of a topic."""

    def take(self, frame: bytes, op: bytes, source: bytes, tail: bytes, ordinal: int, /) -> bool:
        """Take a row of the stream, or return False. `op` has its commas; `source` and `tail` are those of a stamp."""

    def copied(self, text: bytes, rest: bytes, drop: Container[bytes], /) -> tuple[int, int] | None:
        """Take COPY lines, except keys in `drop`; `rest` is the record from `source` of the stamp on.

        Returns the number of records and their bytes, or None if it has taken none.
        """


class _NoPlainRows:
    def take(self, *_: object) -> bool:
        return False

    def copied(self, *_: object) -> None:
        return None


_NONE: Final = _NoPlainRows()


def plain_rows(
    schema: TableSchema,
    names: Sequence[bytes],
    buffer: TopicBuffer,
    *,
    opening: bytes,
    rest: bytes,
    limit: int,
    compiled: bool,
) -> PlainRows:
    """Return what takes the plain rows of a relation.

    Args:
        schema: its relation, encoders and key. Rows without a key are not taken.
        names: the members of the row object, see `cdc.encode.envelope.member`.
        buffer: gets the records.
        opening: the text before the row object.
        rest: the text between the row object and `source` of a stamp.
        limit: bytes of a value.
        compiled: whether to use compiled code.
    """
    if not compiled or not schema.key:
        return _NONE
    encoders = [encoding.encode for encoding in schema.encodings]
    return _plain_rows.PlainRows(
        tuple((name, _FORMS.get(encode, _OTHER), encode) for name, encode in zip(names, encoders, strict=True)),
        tuple(schema.key),
        b"null",
        opening + b"{",
        b"}" + rest,
        tuple(ROW_TAIL.split(b"%d")),
        buffer.partitions,
        limit,
    )
