"""Avro against JSON: fastavro reads the same values as in Debezium's JSON envelope."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from cdc.encode.avro_schema import avro_name, schemas_of
from cdc.encode.avro_transcoder import AvroTranscoder
from cdc.encode.envelope import stamp as make_stamp
from cdc.encode.json_transcoder import Transcoder
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import RowRecords, TranscodeOptions
from cdc.lsn import Lsn
from cdc.model.change_records import Record, TopicBuffer, Truncation
from cdc.model.progress_record import AvroIds
from cdc.wire.pgoutput import Begin
from tests.fixtures.capture import avro_reader
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.murmur2 import java_partition
from tests.property.envelope_model import Place
from tests.property.messages import names
from tests.property.rows import Change, Table, changes, tables
from tests.property.test_transcoder import feed

OPTIONS = TranscodeOptions("shop", "the db", 1 << 20)
PLACE = Place(Begin(Lsn(4096), 1_700_000_000_123_456, 700), 3, 3000, 5)
IDS = AvroIds(300, 70_000)


def registered(table: Table) -> TableSchema:
    key = IDS.key if table.key else None
    return dataclasses.replace(table.schema, format="avro", registered=AvroIds(key, IDS.value))


@given(st.data())
def test_record_says_what_its_json_form_says(data: st.DataObject) -> None:
    table = data.draw(tables())
    (key_schema, value_schema), schema = schemas_of(table.schema, "shop"), registered(table)

    for change in data.draw(st.lists(changes(table), min_size=1, max_size=3)):
        in_avro, in_json = _one(table, AvroTranscoder, schema, change), _one(table, Transcoder, table.schema, change)

        assert len(in_avro) == len(in_json)
        for (key, value, headers), (wanted_key, wanted_value, wanted_headers) in zip(in_avro, in_json, strict=True):
            assert _key(key, key_schema) == (None if wanted_key is None else list(json.loads(wanted_key).values()))
            assert [name for name, _ in headers or []] == [name for name, _ in wanted_headers or []]
            if wanted_value is None or value is None:
                assert value is wanted_value
                continue
            assert avro_reader.schema_id(value) == IDS.value
            assert avro_reader.envelope(value, value_schema) == _with_nulls(json.loads(wanted_value), table)


@given(st.data())
def test_key_never_leaves_its_partition_and_bytes_are_the_same_on_every_reading(data: st.DataObject) -> None:
    table = data.draw(tables(keyed=True))
    drawn = data.draw(st.lists(changes(table), min_size=1, max_size=3))

    first, again = (_buffer(table, AvroTranscoder, registered(table), drawn) for _ in range(2))

    assert first.partitions == again.partitions
    for index, records in enumerate(first.partitions):
        assert all(java_partition(key or b"", table.partition_count) == index for key, _, _ in records)


@given(st.data())
def test_delete_of_a_truncated_key_has_its_columns(data: st.DataObject) -> None:
    table = data.draw(tables(keyed=True))
    change = data.draw(changes(table, ("insert", "")))
    ((key, value, _),) = _one(table, AvroTranscoder, registered(table), change)
    assert key is not None
    assert value is not None
    buffer = TopicBuffer("topic", 1)
    truncation = Truncation(1, make_stamp(PLACE.begin, PLACE.epoch), 1, 9)

    AvroTranscoder(registered(table), buffer, OPTIONS).remove(0, [key], truncation)

    event, tombstone = buffer.partitions[0]
    _, schema = schemas_of(table.schema, "shop")
    row, removed = avro_reader.envelope(value, schema)["after"], avro_reader.envelope(event[1] or b"", schema)
    in_key = [table.column_names[index] for index in table.key]
    assert removed["before"] == {name: row[name] if name in in_key else None for name in table.column_names}
    assert (removed["op"], removed["after"], removed["source"]["ordinal"]) == ("d", None, 9)
    assert (event[0], tombstone) == (key, (key, None, None))


@given(tables())
def test_schemas_are_ones_that_fastavro_takes_and_keep_the_names(table: Table) -> None:
    key, value = schemas_of(table.schema, "shop")

    for schema in (key, value):
        if schema is not None:
            fastavro.parse_schema(json.loads(schema))
    assert list(avro_reader.columns(value).values()) == table.column_names
    row = json.loads(value)["fields"][0]["type"][1]["fields"]
    assert [field["encoding"] for field in row] == [encoding.encoding for encoding in table.schema.encodings]
    assert [field["postgresql_type"] for field in row] == [encoding.name for encoding in table.schema.encodings]


@given(st.lists(names | st.from_regex(r"[_x0-9a-f]{1,8}", fullmatch=True), unique=True, min_size=2))
def test_two_names_are_never_one_in_avro(found: list[str]) -> None:
    escaped = [avro_name(name) for name in found]

    assert len(set(escaped)) == len(found)
    assert all(name.replace("_", "a").isalnum() and name.isascii() and not name[0].isdigit() for name in escaped)


def _one(table: Table, kind: type[Transcoder | AvroTranscoder], schema: TableSchema, change: Change) -> list[Record]:
    one = Table(table.schema, 1)
    return _buffer(one, kind, schema, [change]).partitions[0]


def _buffer(
    table: Table, kind: type[Transcoder | AvroTranscoder], schema: TableSchema, drawn: list[Change]
) -> TopicBuffer:
    buffer = TopicBuffer("topic", table.partition_count)
    transcoder: RowRecords = kind(schema, buffer, OPTIONS)
    for change in drawn:
        message = change.message(schema.relation.oid)
        frame = server.frame(message, start=PLACE.lsn)
        feed(transcoder, message, frame, make_stamp(PLACE.begin, PLACE.epoch), PLACE)
    return buffer


def _key(key: bytes | None, schema: str | None) -> list[Any] | None:
    assert (key is None) == (schema is None)
    if key is None or schema is None:
        return None
    assert avro_reader.schema_id(key) == IDS.key
    return [avro_reader.in_json(value) for value in avro_reader.decoded(key, schema).values()]


def _with_nulls(wanted: dict[str, Any], table: Table) -> dict[str, Any]:
    """A deleted row may have its key alone: in JSON it has no other columns, in Avro they are null."""
    if wanted["before"] is not None:
        wanted["before"] = {name: wanted["before"].get(name) for name in table.column_names}
    return wanted
