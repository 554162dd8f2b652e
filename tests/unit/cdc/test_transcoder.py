"""Records of rows, one guarantee per test; tests/property/test_transcoder.py compares all rows with a model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdc.encode.json_transcoder import Transcoder
from cdc.encode.relation_schema import TableSchema
from cdc.errors import DecodeError
from cdc.model.change_records import Record, TopicBuffer
from cdc.model.relation import ReplicaIdentity
from cdc.wire.pgoutput import UNCHANGED, Delete, Insert, Message, Update
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.murmur2 import java_partition, murmur2
from tests.fixtures.servers import customer_table

FULL = customer_table.schema(identity=ReplicaIdentity.FULL)
KEYLESS = customer_table.schema((), identity=ReplicaIdentity.FULL)


def test_insert_is_a_create_event_with_every_field_of_the_envelope() -> None:
    ((key, value, headers),) = _records(Insert(customer_table.OID, (b"7", b"Ann", None)))

    assert (key, headers) == (b'{"id":7}', None)
    assert value is not None
    schema_id = customer_table.schema().schema_id
    assert value.decode() == (
        '{"before":null,"after":{"id":7,"name":"Ann","note":null},"source":{"version":"1","connector":"postgresql",'
        '"name":"shop","db":"shop_db","schema":"public","table":"customers","schema_id":"' + schema_id + '",'
        '"snapshot":"false","ts_ms":1700000000123,"ts_us":1700000000123456,"txId":700,"epoch":1,"commit_lsn":4096,'
        '"sequence":"[\\"4096\\",\\"3000\\"]","lsn":3000,"ordinal":5},"op":"c","ts_ms":1700000000123,'
        '"transaction":null}'
    )


def test_delete_is_followed_by_a_tombstone_of_the_same_key() -> None:
    event, tombstone = _records(Delete(customer_table.OID, "K", (b"7", None, None)))

    assert event[0] == b'{"id":7}'
    assert _document(event)["op"] == "d"
    assert _document(event)["before"] == {"id": 7}
    assert _document(event)["after"] is None
    assert tombstone == (b'{"id":7}', None, None)


def test_delete_with_full_identity_shows_the_whole_old_row() -> None:
    event, _ = _records(Delete(customer_table.OID, "O", (b"7", b"Ann", None)), FULL)

    assert _document(event)["before"] == {"id": 7, "name": "Ann", "note": None}


def test_changed_key_is_delete_tombstone_and_create_that_name_each_other() -> None:
    records = _records(Update(customer_table.OID, "K", (b"7", None, None), (b"8", b"Ann", None)))

    by_key = {key: [record for record in records if record[0] == key] for key in (b'{"id":7}', b'{"id":8}')}
    removal, tombstone = by_key[b'{"id":7}']
    (creation,) = by_key[b'{"id":8}']
    assert (_document(removal)["op"], removal[2]) == ("d", [("__debezium.newkey", b'{"id":8}')])
    assert tombstone == (b'{"id":7}', None, None)
    assert (_document(creation)["op"], creation[2]) == ("c", [("__debezium.oldkey", b'{"id":7}')])
    assert _document(creation)["after"] == {"id": 8, "name": "Ann", "note": None}


def test_both_keys_of_a_key_change_go_to_their_own_partitions() -> None:
    buffer = TopicBuffer(customer_table.TOPIC, 64)

    _feed(buffer, Update(customer_table.OID, "K", (b"7", None, None), (b"8", b"Ann", None)))

    filled = {index: len(records) for index, records in enumerate(buffer.partitions) if records}
    assert filled == {java_partition(b'{"id":7}', 64): 2, java_partition(b'{"id":8}', 64): 1}


def test_update_that_repeats_its_key_stays_an_update() -> None:
    """The server also sends the old key when only its storage outside the row changed."""
    (record,) = _records(Update(customer_table.OID, "K", (b"7", None, None), (b"7", b"Ann", None)))

    assert _document(record)["op"] == "u"
    assert _document(record)["before"] is None


def test_value_that_was_not_sent_is_left_out_and_named() -> None:
    (record,) = _records(Update(customer_table.OID, "", None, (b"7", b"Ann", UNCHANGED)))

    document = _document(record)
    assert document["after"] == {"id": 7, "name": "Ann"}
    assert document["source"]["unchanged"] == ["note"]


def test_old_key_says_nothing_of_the_other_columns() -> None:
    """The old key has nulls for other columns; they must not replace values that were not sent."""
    (record,) = _records(Update(customer_table.OID, "K", (b"7", None, None), (b"7", b"Ann", UNCHANGED)))
    *_, created = _records(Update(customer_table.OID, "K", (b"7", None, None), (b"8", b"Ann", UNCHANGED)))

    for document in (_document(record), _document(created)):
        assert "note" not in document["after"]
        assert document["source"]["unchanged"] == ["note"]


def test_value_that_was_not_sent_comes_from_the_old_row_when_that_is_there() -> None:
    (record,) = _records(Update(customer_table.OID, "O", (b"7", b"A", b"long"), (b"7", b"Ann", UNCHANGED)), FULL)

    document = _document(record)
    assert document["after"] == {"id": 7, "name": "Ann", "note": "long"}
    assert document["before"] == {"id": 7, "name": "A", "note": "long"}
    assert "unchanged" not in document["source"]


def test_null_and_unchanged_and_empty_are_three_things() -> None:
    (record,) = _records(Update(customer_table.OID, "", None, (b"7", b"", UNCHANGED)))
    (other,) = _records(Update(customer_table.OID, "", None, (b"7", None, b"")))

    assert _document(record)["after"] == {"id": 7, "name": ""}
    assert _document(other)["after"] == {"id": 7, "name": None, "note": ""}


def test_rows_without_a_key_of_one_transaction_share_a_partition_and_have_no_tombstone() -> None:
    buffer = TopicBuffer(customer_table.TOPIC, 8)

    _feed(buffer, Insert(customer_table.OID, (b"7", b"Ann", None)), KEYLESS)
    _feed(buffer, Insert(customer_table.OID, (b"8", b"Bob", None)), KEYLESS)
    _feed(buffer, Delete(customer_table.OID, "O", (b"8", b"Bob", None)), KEYLESS)

    index = java_partition(customer_table.STAMP.commit_lsn.to_bytes(8, "big"), 8)
    assert [len(records) for records in buffer.partitions] == [3 if i == index else 0 for i in range(8)]
    assert all(key is None and value is not None for key, value, _ in buffer.partitions[index])


def test_composite_key_keeps_the_order_of_the_key() -> None:
    schema = customer_table.schema(("name", "id"))

    ((key, _, _),) = _records(Insert(customer_table.OID, (b"7", b"Ann", None)), schema)

    assert key == b'{"name":"Ann","id":7}'


@pytest.mark.parametrize(
    ("message", "schema"),
    [
        (Insert(customer_table.OID, (b"7", b"Ann", UNCHANGED)), FULL),
        (Update(customer_table.OID, "", None, (UNCHANGED, b"Ann", None)), FULL),
        (Update(customer_table.OID, "O", (b"7", b"Ann", UNCHANGED), (b"7", b"Ann", None)), FULL),
        (Delete(customer_table.OID, "O", (b"7", UNCHANGED, None)), FULL),
        (Delete(customer_table.OID, "K", (b"7", None, None)), KEYLESS),
        (Insert(customer_table.OID, (b"7", b"Ann")), FULL),
        (Insert(customer_table.OID, (b"7", b"Ann", None, None)), FULL),
        (Update(customer_table.OID, "O", (b"7", b"Ann"), (b"7", b"Ann", None)), FULL),
    ],
)
def test_row_the_server_cannot_mean_is_a_decode_error(message: Message, schema: TableSchema) -> None:
    with pytest.raises(DecodeError):
        _records(message, schema)


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_partitions_are_those_of_the_java_client(data: bytes, hashed: int) -> None:
    """Values of org.apache.kafka.common.utils.UtilsTest.testMurmur2; the model of the other tests depends on them."""
    assert murmur2(data) == hashed


def _records(message: Message, schema: TableSchema | None = None) -> list[Record]:
    buffer = TopicBuffer(customer_table.TOPIC, 1)
    _feed(buffer, message, schema)
    return buffer.partitions[0]


def _feed(buffer: TopicBuffer, message: Message, schema: TableSchema | None = None) -> None:
    transcoder = Transcoder(schema or customer_table.schema(), buffer, customer_table.OPTIONS)
    frame = server.frame(message, start=3000)
    method = {Insert: transcoder.insert, Update: transcoder.update, Delete: transcoder.delete}[type(message)]
    method(frame, customer_table.STAMP, 5)


def _document(record: Record) -> dict[str, Any]:
    assert record[1] is not None
    document: dict[str, Any] = json.loads(record[1])
    return document
