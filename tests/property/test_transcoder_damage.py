"""Broken row frames: fast path and exact decoder refuse the same ones with the same message.

Only types whose every text is a value are used, so that whatever is accepted must be valid JSON.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.encode.envelope import stamp as make_stamp
from cdc.encode.json_transcoder import Transcoder
from cdc.errors import DecodeError, RowRefused
from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.wire.pgoutput import Begin, decode
from tests.fixtures.capture import pgoutput as server
from tests.property.envelope_model import Place
from tests.property.messages import damaged
from tests.property.rows import Change, Table, changes, tables
from tests.property.test_transcoder import OPTIONS, feed

_ANY_TEXT = (25, 1009, 3802, 99999)
_PLACE = Place(Begin(Lsn(77), 1_700_000_000_000_000, 5), 1, 66, 1)
_EVERY_BYTE = settings(max_examples=50)  # each example is some hundred frames
_FIRST_BYTE = 30  # after the frame's head, the tag and the relation's oid, which choose the transcoder

table_of_texts = tables(type_oids=_ANY_TEXT)


@_EVERY_BYTE
@given(st.data(), table_of_texts)
def test_every_truncated_row_is_a_decode_error_and_leaves_no_record(data: st.DataObject, table: Table) -> None:
    change = data.draw(changes(table))
    whole = server.frame(change.message(table.schema.relation.oid))

    for end in range(_FIRST_BYTE, len(whole)):
        buffer = TopicBuffer("topic", 1)
        with pytest.raises(DecodeError):
            _run(table, buffer, change, whole[:end])
        assert buffer.partitions == [[]]


@_EVERY_BYTE
@given(st.data(), table_of_texts)
def test_every_changed_byte_is_refused_or_still_a_row(data: st.DataObject, table: Table) -> None:
    change = data.draw(changes(table))
    whole = server.frame(change.message(table.schema.relation.oid))

    for at in range(_FIRST_BYTE, len(whole)):
        for broken in damaged(whole, at):
            _refused_or_valid(table, change, broken)


@given(st.data(), table_of_texts, st.binary(max_size=30))
def test_any_bytes_are_refused_or_a_row(data: st.DataObject, table: Table, rest: bytes) -> None:
    change = data.draw(changes(table))
    whole = server.frame(change.message(table.schema.relation.oid))
    kept = data.draw(st.integers(_FIRST_BYTE, len(whole)))

    _refused_or_valid(table, change, whole[:kept] + rest)


@given(st.data(), tables(type_oids=(25,)), st.sampled_from([b"\xff", b"\xc3", b"\xed\xa0\x80", b"ok\x80"]))
def test_text_that_is_not_utf8_names_table_and_column(data: st.DataObject, table: Table, text: bytes) -> None:
    index = data.draw(st.integers(0, len(table.column_names) - 1))
    cells = [text if i == index else b"fine" for i in range(len(table.column_names))]
    frame = server.xlog(b"I\0\0\0\1N" + server.row(tuple(cells)))

    with pytest.raises(RowRefused) as caught:
        Transcoder(table.schema, TopicBuffer("topic", 1), OPTIONS).insert(frame, make_stamp(_PLACE.begin, 1), 1)

    assert caught.value.facts["column"] == table.column_names[index]
    assert caught.value.facts["table"] == table.schema.relation.table
    assert repr(text) not in str(caught.value)


def _refused_or_valid(table: Table, change: Change, frame: bytes) -> None:
    buffer = TopicBuffer("topic", 1)
    try:
        _run(table, buffer, change, frame)
    except (DecodeError, RowRefused):
        return
    decode(frame[25:])  # what the fast path takes, the exact decoder takes too
    for key, value, headers in buffer.partitions[0]:
        for document in (key, value, *(header for _, header in headers or [])):
            assert document is None or isinstance(json.loads(document), dict)


def _run(table: Table, buffer: TopicBuffer, change: Change, frame: bytes) -> None:
    transcoder = Transcoder(table.schema, buffer, OPTIONS)
    message = change.message(table.schema.relation.oid)
    feed(transcoder, message, frame, make_stamp(_PLACE.begin, 1), _PLACE)
