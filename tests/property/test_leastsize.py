"""A row is refused by the lengths in its frame only if its record is too large, for any format, types and values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.encode import row_records
from cdc.encode.formats import transcoder_for
from cdc.encode.least_size import LeastSize, lengths
from cdc.encode.relation_schema import TableSchema, table_schema
from cdc.encode.row_records import TranscodeOptions
from cdc.encode.values import EncodeOptions
from cdc.errors import RowRefused
from cdc.model.change_records import TopicBuffer
from cdc.model.progress_record import AvroIds
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.wire.pgoutput import UNCHANGED, Delete, Insert, Message, Update
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.servers import customer_table

_TEXT, _BYTEA, _JSON, _TEXTS, _BYTEAS, _TIMES, _NUMERIC = 25, 17, 114, 1009, 1001, 1115, 1700
_COLUMNS = tuple(
    Column(name, oid, -1, name == "id")
    for name, oid in (
        ("id", 23),
        ("t", _TEXT),
        ("b", _BYTEA),
        ("j", _JSON),
        ("ta", _TEXTS),
        ("ba", _BYTEAS),
        ("da", _TIMES),
        ("n", _NUMERIC),
    )
)
_OPTIONS = (
    EncodeOptions(),
    EncodeOptions(time="micros", bytea="base64", json="value", numeric="number"),
    EncodeOptions(format="flat"),
    EncodeOptions(format="flat", time="micros", bytea="base64url"),
    EncodeOptions(format="avro"),
    EncodeOptions(format="avro", time="micros", bytea="base64"),
)


def _element(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# Larger than an envelope, which is no part of the bound.
_plain = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40).map(lambda s: 50 * s)
_bytea = st.binary(max_size=40).map(lambda data: f"\\x{50 * data.hex()}")
_values = st.tuples(
    st.integers(0, 9).map(str),
    _plain,
    _bytea,
    _plain.map(lambda text: '{"a":"' + text.encode("unicode_escape").hex() + '"}'),
    st.lists(_plain, max_size=5).map(lambda some: "{" + ",".join(map(_element, some)) + "}"),
    st.lists(_bytea, max_size=5).map(lambda some: "[2:9][-1:4]={" + ",".join(map(_element, some)) + "}"),
    st.integers(0, 30).map(lambda count: "{" + ",".join(['"1970-01-01 00:00:00"'] * count) + "}"),
    st.integers(0, 10**40).map(str),
).map(lambda row: tuple(value.encode() for value in row))


def _schema(options: EncodeOptions, *, full: bool = False) -> TableSchema:
    identity = ReplicaIdentity.FULL if full else ReplicaIdentity.DEFAULT
    relation = Relation(customer_table.OID, "public", "t", identity, _COLUMNS)
    schema = table_schema(relation, ("id",), {}, options)
    return replace(schema, registered=AvroIds(1, 2) if options.format == "avro" else None)


@given(_values, _values, st.sampled_from(_OPTIONS), st.sampled_from("IUKOD"))
def test_least_size_is_never_more_than_that_of_the_record(
    old: tuple[bytes, ...], new: tuple[bytes, ...], options: EncodeOptions, kind: str
) -> None:
    messages: dict[str, Message] = {
        "I": Insert(customer_table.OID, new),
        "U": Update(customer_table.OID, "", None, new),
        "K": Update(customer_table.OID, "K", (old[0], *[None] * 7), new),
        "O": Update(customer_table.OID, "O", old, (*new[:-1], UNCHANGED)),
        "D": Delete(customer_table.OID, "O", old),
    }
    message = messages[kind]
    schema = _schema(options, full=kind in "OD")
    frame = server.frame(message)
    buffer = TopicBuffer("t", 1)
    transcoder = transcoder_for(schema, buffer, TranscodeOptions("shop", "d", 1 << 30), None)
    method = {"I": transcoder.insert, "D": transcoder.delete}.get(kind, transcoder.update)
    method(frame, customer_table.STAMP, 5)

    shown = transcoder.shows_before
    least = LeastSize(schema.encodings, schema.format).of(*lengths(frame, len(_COLUMNS), updated=shown, deleted=shown))

    assert least <= max(len(value or b"") for _, value, _ in buffer.partitions[0])


@pytest.mark.parametrize("options", _OPTIONS[::2], ids=["json", "flat", "avro"])
def test_row_far_over_the_limit_is_refused_before_any_value_is_encoded(
    options: EncodeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 1 << 16
    big = b"x" * (limit + row_records._EXACT_BYTES + 1000)
    row = (b"7", big, b"\\x00", b"{}", b"{}", b"{}", b"{}", b"1")
    buffer = TopicBuffer("t", 1)
    transcoder = transcoder_for(_schema(options), buffer, TranscodeOptions("shop", "d", limit), None)
    transcoder.insert(server.frame(Insert(customer_table.OID, (*row[:1], b"small", *row[2:]))), customer_table.STAMP, 1)

    def encoded(*_: object) -> None:
        raise AssertionError("a value was encoded")

    monkeypatch.setattr(type(transcoder), "_row", encoded)
    monkeypatch.setattr(row_records.RowRecords, "_row", encoded)
    for method, message in (
        (transcoder.insert, Insert(customer_table.OID, row)),
        (transcoder.update, Update(customer_table.OID, "", None, row)),
    ):
        with pytest.raises(RowRefused, match=r"a row of public\.t makes a record of at least \d+ bytes") as caught:
            method(server.frame(message), customer_table.STAMP, 2)
        assert (caught.value.facts["table"], caught.value.facts["column"]) == ("public.t", "t")
        size = caught.value.facts["record_bytes"]
        assert isinstance(size, int)
        assert size > limit
        assert caught.value.state == "MISCONFIGURED"
    assert len(buffer.partitions[0]) == 1, "what came before is kept, and nothing of the refused row"
