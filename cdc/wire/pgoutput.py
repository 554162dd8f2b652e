"""Decodes messages of the pgoutput plugin, protocol version 1, without streaming and two-phase commit. Pure.

Implements https://www.postgresql.org/docs/18/protocol-logicalrep-message-formats.html. Any bytes result in a message or
a DecodeError. `cdc.encode.json_transcoder` reads row messages faster and calls this decoder when a message looks wrong,
so that only this module diagnoses errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from cdc.errors import DecodeError
from cdc.lsn import Lsn
from cdc.model.relation import Column, Relation, ReplicaIdentity


class Unchanged(Enum):
    """Marks a TOAST value that an update did not change: the stream does not contain it."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED

Value: TypeAlias = bytes | Unchanged | None
"""The text of a value in the server's output format, None for null, or UNCHANGED."""

Tuple: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a transaction. Its commit record starts at `commit_lsn`; `commit_us` is since 1970 UTC."""

    commit_lsn: Lsn
    commit_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction. `end_lsn` is the first byte after its commit record."""

    commit_lsn: Lsn
    end_lsn: Lsn
    commit_us: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction was replicated from another server."""

    commit_lsn: Lsn
    name: str


@dataclass(frozen=True, slots=True)
class TypeName:
    """The name of a type that is not built in, by its oid."""

    oid: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    relation_oid: int
    new: Tuple


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row. `old_kind` is ``K`` (`old` has only key columns), ``O`` (all columns) or empty (`old` is None)."""

    relation_oid: int
    old_kind: str
    old: Tuple | None
    new: Tuple


@dataclass(frozen=True, slots=True)
class Delete:
    """A deleted row. `old_kind` as for Update, never empty."""

    relation_oid: int
    old_kind: str
    old: Tuple


@dataclass(frozen=True, slots=True)
class Truncate:
    """A TRUNCATE of tables."""

    relation_oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message of pg_logical_emit_message; only sent with the option `messages`."""

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes


Message: TypeAlias = (
    Begin | Commit | Origin | Relation | TypeName | Insert | Update | Delete | Truncate | LogicalMessage
)

_REFUSED: Final = {
    "S": "Stream Start (streaming = on, protocol 2)",
    "E": "Stream Stop (streaming = on, protocol 2)",
    "c": "Stream Commit (streaming = on, protocol 2)",
    "A": "Stream Abort (streaming = on, protocol 2)",
    "b": "Begin Prepare (two_phase, protocol 3)",
    "P": "Prepare (two_phase, protocol 3)",
    "K": "Commit Prepared (two_phase, protocol 3)",
    "r": "Rollback Prepared (two_phase, protocol 3)",
    "p": "Stream Prepare (two_phase, protocol 3)",
}
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_POSTGRES_EPOCH_US: Final = 946_684_800_000_000


class _Cursor:
    """Reads fields of a message and never past its end."""

    __slots__ = ("at", "data", "tag")

    def __init__(self, data: bytes, tag: str) -> None:
        self.data = data
        self.tag = tag
        self.at = 1

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise DecodeError(self.tag, self.at, need=count, have=len(self.data) - self.at)
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def unsigned(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def signed(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big", signed=True)

    def text(self) -> str:
        end = self.data.find(0, self.at)
        if end < 0:
            raise DecodeError(self.tag, self.at, detail="unterminated name")
        try:
            name = self.data[self.at : end].decode()
        except UnicodeDecodeError:
            raise DecodeError(self.tag, self.at, detail="name is not UTF-8") from None
        self.at = end + 1
        return name

    def letter(self) -> str:
        return self.take(1).decode("latin-1")

    def finish(self) -> None:
        if self.at != len(self.data):
            raise DecodeError(self.tag, self.at, detail=f"{len(self.data) - self.at} additional bytes")

    def refuse(self, detail: str) -> DecodeError:
        return DecodeError(self.tag, self.at, detail=detail)


def decode(payload: bytes) -> Message:
    """Decode one message. Raises DecodeError for invalid bytes and for messages of later protocol versions."""
    if not payload:
        raise DecodeError("", 0, need=1, have=0)
    tag = chr(payload[0])
    reader = _READERS.get(tag)
    if reader is None:
        raise DecodeError(tag, 0, detail=_REFUSED.get(tag, "unknown message type in protocol version 1"))
    cursor = _Cursor(payload, tag)
    message = reader(cursor)
    cursor.finish()
    return message


def _begin(cursor: _Cursor) -> Begin:
    commit_lsn, commit_us, xid = _BEGIN.unpack(cursor.take(_BEGIN.size))
    return Begin(Lsn(commit_lsn), commit_us + _POSTGRES_EPOCH_US, xid)


def _commit(cursor: _Cursor) -> Commit:
    _, commit_lsn, end_lsn, commit_us = _COMMIT.unpack(cursor.take(_COMMIT.size))
    return Commit(Lsn(commit_lsn), Lsn(end_lsn), commit_us + _POSTGRES_EPOCH_US)


def _origin(cursor: _Cursor) -> Origin:
    return Origin(Lsn(cursor.unsigned(8)), cursor.text())


def _relation(cursor: _Cursor) -> Relation:
    oid = cursor.unsigned(4)
    namespace = cursor.text() or "pg_catalog"
    name = cursor.text()
    letter = cursor.letter()
    try:
        identity = ReplicaIdentity(letter)
    except ValueError:
        raise cursor.refuse(f"unknown replica identity {letter!r}") from None
    columns = []
    for _ in range(cursor.unsigned(2)):
        flags = cursor.unsigned(1)
        column_name = cursor.text()
        columns.append(Column(column_name, cursor.unsigned(4), cursor.signed(4), bool(flags & 1)))
    return Relation(oid, namespace, name, identity, tuple(columns))


def _type_name(cursor: _Cursor) -> TypeName:
    return TypeName(cursor.unsigned(4), cursor.text() or "pg_catalog", cursor.text())


def _tuple(cursor: _Cursor) -> Tuple:
    values: list[Value] = []
    for _ in range(cursor.unsigned(2)):
        kind = cursor.letter()
        if kind == "t":
            values.append(cursor.take(cursor.unsigned(4)))
        elif kind == "n":
            values.append(None)
        elif kind == "u":
            values.append(UNCHANGED)
        elif kind == "b":
            raise cursor.refuse("value in binary form, which was not requested")
        else:
            raise cursor.refuse(f"unknown kind of value {kind!r}")
    return tuple(values)


def _insert(cursor: _Cursor) -> Insert:
    oid = cursor.unsigned(4)
    if cursor.letter() != "N":
        raise cursor.refuse("no new row")
    return Insert(oid, _tuple(cursor))


def _update(cursor: _Cursor) -> Update:
    oid = cursor.unsigned(4)
    kind = cursor.letter()
    old: Tuple | None = None
    if kind in {"K", "O"}:
        old = _tuple(cursor)
        if cursor.letter() != "N":
            raise cursor.refuse("no new row")
    elif kind == "N":
        kind = ""
    else:
        raise cursor.refuse(f"unknown kind of row {kind!r}")
    return Update(oid, kind, old, _tuple(cursor))


def _delete(cursor: _Cursor) -> Delete:
    oid = cursor.unsigned(4)
    kind = cursor.letter()
    if kind not in {"K", "O"}:
        raise cursor.refuse(f"unknown kind of row {kind!r}")
    return Delete(oid, kind, _tuple(cursor))


def _truncate(cursor: _Cursor) -> Truncate:
    count = cursor.unsigned(4)
    options = cursor.unsigned(1)
    if count > (len(cursor.data) - cursor.at) // 4:
        raise DecodeError("T", cursor.at, need=count * 4, have=len(cursor.data) - cursor.at)
    return Truncate(tuple(cursor.unsigned(4) for _ in range(count)), bool(options & 1), bool(options & 2))


def _logical_message(cursor: _Cursor) -> LogicalMessage:
    flags = cursor.unsigned(1)
    lsn = Lsn(cursor.unsigned(8))
    prefix = cursor.text()
    return LogicalMessage(bool(flags & 1), lsn, prefix, cursor.take(cursor.unsigned(4)))


_READERS: Final[dict[str, Callable[[_Cursor], Message]]] = {
    "B": _begin,
    "C": _commit,
    "O": _origin,
    "R": _relation,
    "Y": _type_name,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "M": _logical_message,
}
