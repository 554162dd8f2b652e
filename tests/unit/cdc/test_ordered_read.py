"""Starts, ends and tables of an ordered read, as they are given; places that later events do not change."""

from __future__ import annotations

import pytest

from cdc.cutindex.log_start import AtLsn, Beginning
from cdc.errors import UsageError
from cdc.inspect.log_reading import Table
from cdc.inspect.ordered_read import parse_ordered_start, parse_until, readable
from cdc.inspect.resume_token import Boundary, LogIdentity, ReadPlaces, ReadState, decode_token, encode_token
from cdc.lsn import Lsn

LOG = LogIdentity("shop", "id")
TABLES = [Table("public.a", "shop.public.a", ("id",)), Table("public.b", "shop.public.b", ("id",), "avro")]


def test_start_is_the_beginning_an_lsn_or_a_token() -> None:
    token = encode_token(LOG, ReadState())

    assert parse_ordered_start("beginning") == Beginning()
    assert parse_ordered_start("0/1B014F8") == AtLsn(Lsn(0x1B014F8))
    assert parse_ordered_start(token) == token
    for text in ("now", "10m", "0/1/2", token[1:], ""):
        with pytest.raises(UsageError, match="invalid start") as refused:
            parse_ordered_start(text)
        assert "expected beginning, an LSN (0/1B014F8), or a resume token" in refused.value.hint


def test_end_is_now_or_an_lsn() -> None:
    assert parse_until("now") is None
    assert parse_until("0/1B014F8") == Lsn(0x1B014F8)
    for text in ("soon", "", "42"):
        with pytest.raises(UsageError, match="invalid end"):
            parse_until(text)


def test_table_in_avro_is_refused_unless_others_are_named() -> None:
    with pytest.raises(UsageError, match=r"that of public.b is inside its Avro value"):
        readable(TABLES, ())

    assert readable(TABLES, ["public.a"]) == TABLES[:1]


def test_place_of_an_event_is_not_changed_by_later_ones() -> None:
    places = ReadPlaces(LOG, ReadState())
    at = [("shop.public.a", 0), ("shop.public.a", 1), ("shop.public.b", 0)]
    offsets = dict.fromkeys(at, 0)
    kept = []
    for number in range(1_000):
        partition = at[number % 7 % 3]
        offsets[partition] += 1 + number % 5
        kept.append((places.passed(partition, offsets[partition]), dict(offsets)))
        if number == 700:
            places.at(Boundary(5, 1, 100))
            offsets = {}.fromkeys(at, 0)

    for number, (place, wanted) in enumerate(kept):
        state = decode_token(place.token(), LOG)
        assert state.boundary == (None if number <= 700 else Boundary(5, 1, 100))
        assert state.pairs() == {partition: offset for partition, offset in wanted.items() if offset}


def test_token_with_many_partitions_is_compressed_and_read_back() -> None:
    offsets = {f"shop.public.table_{number}": {index: number * index for index in range(8)} for number in range(500)}
    state = ReadState(None, offsets)

    token = encode_token(LOG, state)

    assert token.startswith("tz")
    assert decode_token(token, LOG) == state


def test_token_of_a_newer_release_is_refused() -> None:
    import base64
    import zlib

    data = b'{"version":2,"new":1}'
    token = f"tp{zlib.crc32(data):08x}.{base64.urlsafe_b64encode(data).decode().rstrip('=')}"

    with pytest.raises(UsageError, match="the resume token has version 2; this release reads version 1"):
        decode_token(token, LOG)
