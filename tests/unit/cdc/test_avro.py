"""Bytes that Avro's specification requires, and values that must be refused; see also tests/property/test_avro.py."""

from __future__ import annotations

import dataclasses
import json
import struct

import pytest

from cdc.encode.avro_binary import end_of, long, read_long
from cdc.encode.avro_schema import avro_name, schemas_of
from cdc.encode.avro_transcoder import AvroTranscoder
from cdc.encode.avro_types import avro_type
from cdc.encode.builtin_types import ARRAYS, SCALARS
from cdc.encode.envelope import with_order
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import TranscodeOptions
from cdc.encode.values import EncodeOptions, resolve
from cdc.errors import DecodeError, InvariantError, RowRefused
from cdc.model.change_records import EventOrder, TopicBuffer
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.progress_record import AvroIds
from cdc.wire.pgoutput import UNCHANGED, Insert, Update
from tests.fixtures.capture import avro_reader
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.servers import customer_table

_OIDS = {name: oid for oid, name in SCALARS.items()}
_ARRAYS = {SCALARS[element]: oid for oid, element in ARRAYS.items() if element in SCALARS}
_MICROS = EncodeOptions(time="micros", interval="parts", bytea="base64")


def registered(schema: TableSchema, key: int | None = 1) -> TableSchema:
    return dataclasses.replace(schema, registered=AvroIds(key, 2))


@pytest.mark.parametrize(
    ("number", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (2**63 - 1, "feffffffffffffffff01")],
)
def test_longs_are_those_of_the_specification(number: int, data: str) -> None:
    assert long(number).hex() == data
    assert read_long(bytes.fromhex(data), 0) == (number, len(data) // 2)


def test_smallest_long_is_read_back() -> None:
    assert read_long(long(-(2**63)), 0) == (-(2**63), 10)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("int4", "-3", b"\x02\x05"),
        ("bool", "t", b"\x02\x01"),
        ("bool", "f", b"\x02\x00"),
        ("float8", "NaN", b"\x02" + struct.pack("<d", float("nan"))),
        ("float4", "0.1", b"\x02" + struct.pack("<d", 0.1)),
        ("text", "☃", b"\x02\x06\xe2\x98\x83"),
        ("text", "", b"\x02\x00"),
        ("numeric", "1.50", b"\x02\x081.50"),
        ("bytea", "\\x00ff", b"\x02\x04\x00\xff"),
        ("timestamp", "2026-11-21 16:52:38", b"\x02\x262026-11-21T16:52:38"),
        ("timestamptz", "2026-11-21 16:52:38+00", b"\x02\x322026-11-21T16:52:38+00:00"),
        ("int2vector", "1 2", b"\x02\x04\x02\x02\x02\x04\x00"),
        ("int4[]", "{1,NULL}", b"\x02\x04\x02\x02\x00\x00"),
        ("int4[]", "{}", b"\x02\x00"),
        ("int4[]", "[5:6]={1,2}", b"\x02\x04\x02\x02\x02\x04\x00"),
        ("int4[]", "{{1},{2}}", b"\x04\x12[[1],[2]]"),
        ("text[]", '{"a,\\"",NULL,"NULL"}', b'\x02\x06\x02\x06a,"\x00\x02\x08NULL\x00'),
    ],
)
def test_value_is_its_branch_and_its_bytes(name: str, text: str, wanted: bytes) -> None:
    assert _encoded(name, text, EncodeOptions()) == wanted


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("date", "1970-01-02", b"\x02\x02"),
        ("date", "infinity", b"\x04\x10infinity"),
        ("time", "00:00:00.000001", b"\x02\x02"),
        ("timestamp", "1969-12-31 23:59:59.999999", b"\x02\x01"),
        ("timestamp", "-infinity", b"\x04\x12-infinity"),
        ("interval", "P1Y2M-3DT4S", b"\x02" + long(14) + long(-3) + long(4_000_000)),
        ("interval", "infinity", b"\x04\x10infinity"),
        ("bytea", "\\xff", b"\x02\x02\xff"),
        ("date[]", "{1970-01-02,infinity,NULL}", b"\x02\x06\x02\x02\x04\x10infinity\x00\x00"),
    ],
)
def test_number_is_a_number_and_what_is_none_its_text(name: str, text: str, wanted: bytes) -> None:
    assert _encoded(name, text, _MICROS) == wanted


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("int4", "one"),
        ("float8", "1.5x"),
        ("bytea", "00"),
        ("bytea", "\\x0"),
        ("int4[]", "1,2"),
        ("int4[]", "{1,,2}"),
        ("int4[]", "{1}2"),
        ("text[]", '{"a"'),
        ("text[]", '{"a"}}'),
        ("int4[]", "[1={1}"),
    ],
)
def test_text_that_no_server_prints_is_a_decode_error(name: str, text: str) -> None:
    with pytest.raises(DecodeError):
        _encoded(name, text, EncodeOptions())


def test_text_that_is_not_utf8_is_refused_by_the_name_of_its_column() -> None:
    with pytest.raises(RowRefused, match="'note'"):
        _inserted((b"7", b"A", b"\xff"))


def test_key_without_a_value_is_refused_by_the_name_of_its_column() -> None:
    """With REPLICA IDENTITY FULL and `source.keys` a column may lose its NOT NULL."""
    with pytest.raises(RowRefused, match="key column 'id'"):
        _inserted((None, b"A", None))


def test_row_over_the_limit_is_refused() -> None:
    with pytest.raises(RowRefused, match="'note'"):
        _inserted((b"7", b"A", b"x" * 400), TranscodeOptions("shop", "d", 300))


def test_nothing_is_written_before_its_schema_has_an_id() -> None:
    for schema in (customer_table.schema(), registered(customer_table.schema(), key=None)):
        with pytest.raises(InvariantError):
            AvroTranscoder(schema, TopicBuffer(customer_table.TOPIC, 1), customer_table.OPTIONS)


def test_place_in_the_transaction_is_in_the_envelope() -> None:
    buffer = TopicBuffer(customer_table.TOPIC, 1)
    transcoder = AvroTranscoder(registered(customer_table.schema()), buffer, customer_table.OPTIONS)

    for order in (1, 2):
        stamp = with_order(customer_table.STAMP, EventOrder("700:4096", order + 3, order))
        transcoder.insert(server.frame(Insert(customer_table.OID, (b"7", b"Ann", None))), stamp, order)

    schema = schemas_of(customer_table.schema(), "shop").value
    found = [avro_reader.envelope(value or b"", schema)["transaction"] for _, value, _ in buffer.partitions[0]]
    assert found == [{"id": "700:4096", "total_order": order + 3, "data_collection_order": order} for order in (1, 2)]


def test_value_that_was_read_later_completes_the_record_and_is_named() -> None:
    buffer, holes = TopicBuffer(customer_table.TOPIC, 1), IncompleteRecords()
    update = Update(customer_table.OID, "", None, (b"7", b"Ann", UNCHANGED))
    AvroTranscoder(registered(customer_table.schema()), buffer, customer_table.OPTIONS, holes).update(
        server.frame(update), customer_table.STAMP, 5
    )
    schema = schemas_of(customer_table.schema(), "shop").value
    before = avro_reader.envelope(buffer.partitions[0][0][1] or b"", schema)

    holes.waiting[0].fill({2: b"later"})

    after = avro_reader.envelope(buffer.partitions[0][0][1] or b"", schema)
    assert (before["after"], before["source"].pop("unchanged")) == ({"id": 7, "name": "Ann"}, ["note"])
    assert (after["after"]["note"], after["source"].pop("reselected")) == ("later", ["note"])
    assert after == {**before, "after": after["after"]}


@pytest.mark.parametrize(
    ("name", "escaped"),
    [("id", "id"), ("a b", "a_x20b"), ("1st", "_x31st"), ("_x41", "_x5fx41"), ("_xAB", "_xAB"), ("ß", "_xc3_x9f")],
)
def test_name_that_is_none_in_avro_is_escaped(name: str, escaped: str) -> None:
    assert avro_name(name) == escaped


def test_schema_of_keys_has_nothing_that_an_alter_may_change() -> None:
    key = schemas_of(customer_table.schema(), "shop").key

    assert json.loads(key or "") == {
        "type": "record",
        "name": "Key",
        "namespace": "shop.public.customers",
        "fields": [{"name": "id", "type": "long"}],
    }


@pytest.mark.parametrize("data", ["", "80", "06", "0461"])
def test_key_that_is_cut_short_is_a_decode_error(data: str) -> None:
    with pytest.raises(DecodeError):
        end_of(["long", "string"], bytes.fromhex("02" + data), 0)


def _encoded(name: str, text: str, options: EncodeOptions) -> bytes:
    oid = _ARRAYS[name[:-2]] if name.endswith("[]") else _OIDS[name]
    return avro_type(resolve(oid, {}, options)).encode(text.encode())


def _inserted(row: tuple[bytes | None, ...], options: TranscodeOptions = customer_table.OPTIONS) -> None:
    transcoder = AvroTranscoder(registered(customer_table.schema()), TopicBuffer(customer_table.TOPIC, 1), options)
    transcoder.insert(server.frame(Insert(customer_table.OID, row)), customer_table.STAMP, 1)
