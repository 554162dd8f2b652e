"""Rows read from a table are encoded like rows of the stream."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.encode.envelope import snapshot_stamp, stamp
from cdc.encode.json_transcoder import Transcoder
from cdc.encode.relation_schema import table_schema
from cdc.encode.row_records import TranscodeOptions
from cdc.encode.values import EncodeOptions
from cdc.errors import DecodeError, RowRefused
from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.wire.pgoutput import Begin, Insert
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.copy_text import copy_line

_COLUMNS = (("id", 23), ("v", 25), ("b", 16), ("n", 1700), ("j", 3802), ("s", 1114), ("z", 1184))
_RELATION = Relation(
    1,
    "public",
    "t",
    ReplicaIdentity.DEFAULT,
    tuple(Column(name, oid, -1, name == "id") for name, oid in _COLUMNS),
)
_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20).map(str.encode)
rows = st.tuples(
    st.integers(0, 9).map(lambda n: b"%d" % n),
    st.none() | _text,
    st.none() | st.sampled_from([b"t", b"f"]),
    st.none() | st.sampled_from([b"1.50", b"NaN", b"-0"]),
    st.none() | st.sampled_from([b'{"a": "\\\\ \\n"}', b"[]"]),
    st.none() | st.sampled_from([b"2026-11-22 12:00:00.5", b"-infinity", b"0044-03-15 00:00:00 BC"]),
    st.none() | st.sampled_from([b"2026-11-22 12:00:00.5+00", b"infinity", b"0044-03-15 00:00:00+00 BC"]),
)


def _transcoder() -> tuple[Transcoder, TopicBuffer]:
    buffer = TopicBuffer("shop.public.t", 3)
    return Transcoder(table_schema(_RELATION, ("id",), {}, EncodeOptions()), buffer, _OPTIONS), buffer


_OPTIONS = TranscodeOptions("shop", "d", 1 << 20)


@given(st.lists(rows, max_size=8), st.sets(st.integers(0, 9), max_size=3))
def test_row_that_was_read_has_key_partition_and_values_of_one_that_was_streamed(
    found: list[tuple[bytes | None, ...]], dropped: set[int]
) -> None:
    streamed, expected = _transcoder()
    copied, buffer = _transcoder()
    for row in found:
        streamed.insert(server.frame(Insert(1, row)), stamp(Begin(Lsn(7), 0, 1), 1), 1)
    drop = {b'{"id":%d}' % key for key in dropped}

    count, size = copied.copied(b"".join(copy_line(row) for row in found), drop, snapshot_stamp(9, 5_000_000, 1))

    wanted = [[record for record in partition if record[0] not in drop] for partition in expected.partitions]
    assert [[key for key, _, _ in partition] for partition in buffer.partitions] == [
        [key for key, _, _ in partition] for partition in wanted
    ]
    made = [json.loads(value or b"") for partition in buffer.partitions for _, value, _ in partition]
    like = [json.loads(value or b"") for partition in wanted for _, value, _ in partition]
    assert [one["after"] for one in made] == [one["after"] for one in like]
    assert all(one["before"] is None and one["op"] == "r" and one["ts_ms"] == 5000 for one in made)
    sources = [one["source"] for one in made]
    assert all((one["commit_lsn"], one["ordinal"], one["txId"], one["snapshot"]) == _PLACE for one in sources)
    assert all(one["source"].keys() == other["source"].keys() for one, other in zip(made, like, strict=True))
    assert (count, size) == (
        len(made),
        sum(len(key or b"") + len(value or b"") for partition in buffer.partitions for key, value, _ in partition),
    )
    assert [copied.key_of(copy_line(row)) for row in found] == [b'{"id":%b}' % (row[0] or b"") for row in found]


@pytest.mark.parametrize("line", [b"1\t\xff", b"1\t\xffa\\n", b"1", b"1\ta\tb"])
def test_line_that_is_not_utf8_or_has_other_columns_is_refused(line: bytes) -> None:
    transcoder = Transcoder(table_schema(_NARROW, ("id",), {}, EncodeOptions()), TopicBuffer("t", 1), _OPTIONS)

    with pytest.raises((DecodeError, RowRefused)):
        transcoder.copied(b"1\ta\n" + line + b"\n", frozenset(), snapshot_stamp(9, 5_000_000, 1))


_NARROW = Relation(1, "public", "t", ReplicaIdentity.DEFAULT, (Column("id", 23, -1, True), Column("v", 25, -1, False)))
_PLACE = (9, 0, None, "incremental")
