"""Parses CopyData messages of the streaming replication protocol: WAL data or a keepalive. Pure.

Implements https://www.postgresql.org/docs/18/protocol-replication.html. The capture loop reads tags and offsets
directly from the bytes, because it does so for every row; other code uses `parse`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from cdc.errors import DecodeError
from cdc.lsn import Lsn

XLOG_DATA: Final = ord("w")
KEEPALIVE: Final = ord("k")
PAYLOAD_OFFSET: Final = 25  # tag, start LSN, end of WAL, send time
KEEPALIVE_LENGTH: Final = 18  # tag, end of WAL, send time, reply requested
POSTGRES_EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01 UTC, in microseconds of the Unix epoch

_XLOG_DATA: Final = struct.Struct(">cQQq")
_KEEPALIVE: Final = struct.Struct(">cQq?")
_STATUS: Final = struct.Struct(">cQQQq?")


@dataclass(frozen=True, slots=True)
class XLogData:
    """A piece of WAL, decoded by the output plugin.

    Never take a position from `start`: it can be 0/0, and row LSNs go up and down. Positions come only from Commit
    messages and keepalives.
    """

    start: Lsn
    wal_end: Lsn
    payload: bytes


@dataclass(frozen=True, slots=True)
class Keepalive:
    """The position of the server: it has already sent every transaction that commits below `wal_end`.

    `sent_us` is the server's clock in microseconds since 1970.
    """

    wal_end: Lsn
    reply_requested: bool
    sent_us: int = 0


def parse(data: bytes) -> XLogData | Keepalive:
    """Parse one CopyData payload. Raises DecodeError for any other message."""
    tag = data[:1].decode("latin-1")
    if data[:1] == b"w":
        if len(data) < PAYLOAD_OFFSET:
            raise DecodeError(tag, 0, need=PAYLOAD_OFFSET, have=len(data))
        _, start, wal_end, _ = _XLOG_DATA.unpack_from(data)
        return XLogData(Lsn(start), Lsn(wal_end), data[PAYLOAD_OFFSET:])
    if data[:1] == b"k":
        if len(data) != KEEPALIVE_LENGTH:
            raise DecodeError(tag, 0, need=KEEPALIVE_LENGTH, have=len(data))
        _, wal_end, sent, reply = _KEEPALIVE.unpack(data)
        return Keepalive(Lsn(wal_end), reply, sent + POSTGRES_EPOCH_US)
    raise DecodeError(tag, 0, need=1, have=len(data), detail="neither WAL data nor a keepalive")


def standby_status(*, written: Lsn, flushed: Lsn, now_us: int, reply_requested: bool) -> bytes:
    """Encode a standby status update. The server may drop WAL below `flushed`; `now_us` is microseconds since 1970."""
    return _STATUS.pack(b"r", written, flushed, flushed, now_us - POSTGRES_EPOCH_US, reply_requested)
