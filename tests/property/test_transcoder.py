"""The fast path against a simple model: every change becomes exactly the expected records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.encode.envelope import stamp as make_stamp
from cdc.encode.json_transcoder import Transcoder
from cdc.encode.row_records import RowRecords, TranscodeOptions
from cdc.lsn import Lsn
from cdc.model.change_records import Headers, Record, Stamp, TopicBuffer
from cdc.wire.pgoutput import Begin, Delete, Insert, Update
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.murmur2 import java_partition
from tests.property.envelope_model import Expected, Place, compact, expected_records, normal
from tests.property.rows import KINDS, Change, Table, changes, tables

OPTIONS = TranscodeOptions("shop", "the db", 1 << 20)
_times_us = st.integers(0, 2**50)
_u63 = st.integers(0, 2**63 - 1)


@st.composite
def places(draw: st.DrawFn) -> Place:
    begin = Begin(Lsn(draw(_u63)), draw(_times_us), draw(st.integers(0, 2**32 - 1)))
    return Place(begin, draw(st.integers(1, 9)), draw(_u63), draw(st.integers(1, 2**40)))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)  # of each kind
@given(st.data(), places())
def test_every_change_becomes_the_records_the_model_says(
    kind: tuple[str, str], data: st.DataObject, place: Place
) -> None:
    table = data.draw(tables(keyed=True if kind[1] == "K" else None))
    change = data.draw(changes(table, kind))

    buffer = transcode(table, [(change, place)])

    expected = expected_records(table, change, place)
    assert by_partition(table, expected, place) == [[_spelled(record) for record in p] for p in buffer.partitions]


@given(st.data(), tables(), places())
def test_same_bytes_whenever_it_is_decoded_again(data: st.DataObject, table: Table, place: Place) -> None:
    """G9, and that nothing of one row is left over in the next."""
    drawn = [(change, place) for change in data.draw(st.lists(changes(table), min_size=1, max_size=5))]

    together = transcode(table, drawn)

    alone = [transcode(table, [one]).partitions for one in drawn]
    assert together.partitions == [
        [record for partitions in alone for record in partitions[index]] for index in range(table.partition_count)
    ]


@given(st.data(), tables(keyed=True), places())
def test_key_never_leaves_its_partition(data: st.DataObject, table: Table, place: Place) -> None:
    drawn = [(change, place) for change in data.draw(st.lists(changes(table), min_size=1, max_size=5))]

    buffer = transcode(table, drawn)

    for index, records in enumerate(buffer.partitions):
        for key, _, _ in records:
            assert key is not None
            assert java_partition(key, table.partition_count) == index


def transcode(table: Table, drawn: list[tuple[Change, Place]], options: TranscodeOptions = OPTIONS) -> TopicBuffer:
    """Run changes through one transcoder."""
    buffer = TopicBuffer("topic", table.partition_count)
    transcoder = Transcoder(table.schema, buffer, options)
    for change, place in drawn:
        message = change.message(table.schema.relation.oid)
        feed(transcoder, message, server.frame(message, start=place.lsn), make_stamp(place.begin, place.epoch), place)
    return buffer


def feed(transcoder: RowRecords, message: Insert | Update | Delete, frame: bytes, stamp: Stamp, place: Place) -> None:
    """Give a frame to the method the pipeline would choose by its tag."""
    if isinstance(message, Insert):
        transcoder.insert(frame, stamp, place.ordinal)
    elif isinstance(message, Update):
        transcoder.update(frame, stamp, place.ordinal)
    else:
        transcoder.delete(frame, stamp, place.ordinal)


def by_partition(table: Table, expected: list[Expected], place: Place) -> list[list[Expected]]:
    """Records by partition: of their key, or of the transaction when the table has none."""
    partitions: list[list[Expected]] = [[] for _ in range(table.partition_count)]
    for record in expected:
        placed_by = int(place.begin.commit_lsn).to_bytes(8, "big") if record.key is None else compact(record.key)
        partitions[java_partition(placed_by, table.partition_count)].append(record)
    return partitions


def _spelled(record: Record) -> Expected:
    key, value, headers = record
    return Expected(normal(key), normal(value), tuple(_header(name, value) for name, value in headers or _NONE))


_NONE: Headers = []


def _header(name: str, value: bytes) -> tuple[str, str]:
    return name, normal(value) or ""
