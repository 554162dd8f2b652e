"""Rows with `encode.format = "flat"`; tests/property/test_flat.py compares all rows with a model."""

from __future__ import annotations

import dataclasses
import json

import pytest

from cdc.encode.envelope import with_order
from cdc.encode.flat_transcoder import FlatTranscoder
from cdc.encode.row_records import TranscodeOptions
from cdc.errors import RowRefused, TopicMismatch
from cdc.inspect.log_reading import parse_event
from cdc.model.change_records import EventOrder, Record, Stamp, TopicBuffer, Truncation
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.log_record import LogRecord
from cdc.wire.pgoutput import UNCHANGED, Delete, Insert, Update
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.servers import customer_table

SCHEMA = customer_table.schema()
FLAT = dataclasses.replace(SCHEMA, format="flat")
ANN = Insert(customer_table.OID, (b"7", b"Ann", None))
INCOMPLETE = Update(customer_table.OID, "", None, (b"7", b"Ann", UNCHANGED))


def test_insert_is_the_row_and_its_place_stands_in_headers() -> None:
    (record,) = _inserted(customer_table.STAMP)

    assert record == (
        b'{"id":7}',
        b'{"id":7,"name":"Ann","note":null}',
        [
            ("__op", b"c"),
            ("__schema_id", SCHEMA.schema_id.encode()),
            ("__epoch", b"1"),
            ("__commit_lsn", b"4096"),
            ("__ts_ms", b"1700000000123"),
            ("__ordinal", b"5"),
        ],
    )


def test_place_in_the_transaction_is_a_header_of_its_own() -> None:
    stamp = with_order(customer_table.STAMP, EventOrder("700:4096", 3, 2))

    ((_, _, headers),) = _inserted(stamp)

    place = json.loads(dict(headers or [])["__transaction"])
    assert place == {"id": "700:4096", "total_order": 3, "data_collection_order": 2}


def test_headers_follow_the_transaction() -> None:
    buffer = TopicBuffer(customer_table.TOPIC, 1)
    transcoder = FlatTranscoder(SCHEMA, buffer, customer_table.OPTIONS)
    other = Stamp(8192, b"", b"", 701, 2, 1_800_000_000_000_000)

    for stamp in (customer_table.STAMP, other, customer_table.STAMP):
        transcoder.insert(server.frame(ANN), stamp, 1)

    assert [dict(headers or [])["__commit_lsn"] for _, _, headers in buffer.partitions[0]] == [
        b"4096",
        b"8192",
        b"4096",
    ]


def test_changed_key_is_a_tombstone_and_a_row_that_name_each_other() -> None:
    buffer = TopicBuffer(customer_table.TOPIC, 1)
    update = Update(customer_table.OID, "K", (b"7", None, None), (b"8", b"Ann", None))

    FlatTranscoder(SCHEMA, buffer, customer_table.OPTIONS).update(server.frame(update), customer_table.STAMP, 5)

    gone, created = buffer.partitions[0]
    assert (gone[0], gone[1], (gone[2] or [])[-1]) == (b'{"id":7}', None, ("__debezium.newkey", b'{"id":8}'))
    assert (created[0], (created[2] or [])[-1]) == (b'{"id":8}', ("__debezium.oldkey", b'{"id":7}'))


def test_truncate_is_a_tombstone_for_each_key() -> None:
    buffer = TopicBuffer(customer_table.TOPIC, 1)
    transcoder = FlatTranscoder(SCHEMA, buffer, customer_table.OPTIONS)

    size = transcoder.remove(
        0, [b'{"id":7}', b'{"id":8}'], Truncation(customer_table.OID, customer_table.STAMP, 3000, 9)
    )

    records = buffer.partitions[0]
    assert [(key, value) for key, value, _ in records] == [(b'{"id":7}', None), (b'{"id":8}', None)]
    assert all(dict(headers or [])["__ordinal"] == b"9" for _, _, headers in records)
    assert size == sum(len(key or b"") + sum(len(a) + len(b) for a, b in headers or []) for key, _, headers in records)


def test_row_that_lacked_values_is_completed_and_says_so() -> None:
    buffer, holes = TopicBuffer(customer_table.TOPIC, 1), IncompleteRecords()
    moved = Update(customer_table.OID, "K", (b"7", None, None), (b"8", b"Ann", UNCHANGED))
    FlatTranscoder(SCHEMA, buffer, customer_table.OPTIONS, holes).update(server.frame(moved), customer_table.STAMP, 5)
    assert dict(buffer.partitions[0][-1][2] or [])["__unchanged"] == b'["note"]'

    holes.waiting[0].fill({2: b"later"})

    _, value, headers = buffer.partitions[0][-1]
    found = dict(headers or [])
    assert value == b'{"id":8,"name":"Ann","note":"later"}'
    assert (found["__reselected"], found.get("__unchanged")) == (b'["note"]', None)
    assert found["__debezium.oldkey"] == b'{"id":7}'


def test_row_that_stays_incomplete_names_the_columns_it_lacks() -> None:
    buffer = TopicBuffer(customer_table.TOPIC, 1)

    FlatTranscoder(SCHEMA, buffer, customer_table.OPTIONS).update(server.frame(INCOMPLETE), customer_table.STAMP, 5)

    ((_, value, headers),) = buffer.partitions[0]
    assert value == b'{"id":7,"name":"Ann"}'
    assert dict(headers or [])["__unchanged"] == b'["note"]'


def test_delete_from_a_table_without_a_key_is_recognised_by_its_operation() -> None:
    buffer = TopicBuffer(customer_table.TOPIC, 1)
    transcoder = FlatTranscoder(customer_table.schema(()), buffer, customer_table.OPTIONS)

    transcoder.delete(server.frame(Delete(customer_table.OID, "O", (b"7", b"Ann", None))), customer_table.STAMP, 5)

    ((key, value, headers),) = buffer.partitions[0]
    assert (key, value, (headers or [])[0]) == (None, b'{"id":7,"name":"Ann","note":null}', ("__op", b"d"))


def test_row_over_the_limit_is_refused() -> None:
    transcoder = FlatTranscoder(FLAT, TopicBuffer(customer_table.TOPIC, 1), TranscodeOptions("shop", "d", 20))

    with pytest.raises(RowRefused, match="'note'") as caught:
        transcoder.insert(server.frame(Insert(customer_table.OID, (b"7", b"A", b"x" * 40))), customer_table.STAMP, 1)

    assert "omit" not in caught.value.hint + caught.value.command, "the configuration refuses that"


def test_rows_read_back_are_events_and_a_tombstone_is_a_delete() -> None:
    (record,) = _inserted(customer_table.STAMP)

    event = parse_event(LogRecord("shop.public.Order-20lines", 0, 1, 0, *record), (0, 0, 0))
    gone = parse_event(
        LogRecord("shop.public.customers", 0, 2, 0, record[0], None, [("__op", b"d"), *(record[2] or [])[1:]]),
        (0, 0, 0),
    )

    assert event.envelope is not None
    assert gone.envelope is not None
    assert event.position == gone.position == (1, 4096, 5)
    assert (event.envelope.op, bytes(event.envelope.after)) == ("c", record[1])
    assert (event.envelope.source.schema, event.envelope.source.table) == ("public", "Order lines")
    assert (gone.envelope.op, bytes(gone.envelope.before)) == ("d", b"null")


def test_row_with_headers_that_are_not_ours_is_refused_by_its_place() -> None:
    with pytest.raises(TopicMismatch, match=r"record 3 of shop\.public\.t-1"):
        parse_event(LogRecord("shop.public.t", 1, 3, 0, b"{}", b"{}", [("__op", b"c"), ("__epoch", b"one")]), (0, 0, 0))


def _inserted(stamp: Stamp) -> list[Record]:
    buffer = TopicBuffer(customer_table.TOPIC, 1)
    FlatTranscoder(SCHEMA, buffer, customer_table.OPTIONS).insert(server.frame(ANN), stamp, 5)
    return buffer.partitions[0]
