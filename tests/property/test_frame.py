"""CopyData payloads: round trip, and any bytes give a frame or a DecodeError."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import DecodeError
from cdc.lsn import Lsn
from cdc.wire.frame import POSTGRES_EPOCH_US, Keepalive, XLogData, parse, standby_status
from tests.fixtures.capture import pgoutput as server
from tests.property.messages import lsns

_u63 = st.integers(0, 2**62)


@given(lsns, lsns, st.binary(max_size=50))
def test_wal_data_survives_a_round_trip(start: Lsn, wal_end: Lsn, payload: bytes) -> None:
    assert parse(server.xlog(payload, start=start, wal_end=wal_end)) == XLogData(start, wal_end, payload)


@given(lsns, st.booleans())
def test_keepalive_survives_a_round_trip(wal_end: Lsn, reply: bool) -> None:
    found = parse(server.keepalive(wal_end, reply_requested=reply))
    assert isinstance(found, Keepalive)
    assert (found.wal_end, found.reply_requested) == (wal_end, reply)


@given(lsns, st.booleans())
def test_every_truncated_keepalive_is_a_decode_error(wal_end: Lsn, reply: bool) -> None:
    data = server.keepalive(wal_end, reply_requested=reply)

    for end in range(len(data)):
        with pytest.raises(DecodeError):
            parse(data[:end])
    with pytest.raises(DecodeError):
        parse(data + b"\0")


@given(st.sampled_from([b"", b"w", b"k"]), st.binary(max_size=40))
def test_any_bytes_give_a_frame_or_a_decode_error(tag: bytes, rest: bytes) -> None:
    data = tag + rest

    try:
        parsed = parse(data)
    except DecodeError:
        return
    assert isinstance(parsed, XLogData | Keepalive)


@given(lsns, lsns, _u63, st.booleans())
def test_standby_status_says_what_may_be_forgotten(written: Lsn, flushed: Lsn, now_us: int, reply: bool) -> None:
    data = standby_status(written=written, flushed=flushed, now_us=now_us, reply_requested=reply)

    tag, write, flush, apply, sent_us, asks = struct.unpack(">cQQQqB", data)
    assert (tag, write, flush, apply) == (b"r", written, flushed, flushed)
    assert (sent_us + POSTGRES_EPOCH_US, asks) == (now_us, reply)
