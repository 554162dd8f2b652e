"""Any bytes give a record or a named error in every format; no other exception escapes."""

from __future__ import annotations

import dataclasses
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.encode.envelope import snapshot_stamp
from cdc.encode.envelope import stamp as make_stamp
from cdc.encode.formats import transcoder_for
from cdc.encode.row_records import RowRecords, TranscodeOptions
from cdc.errors import DecodeError, RowRefused
from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer, Truncation
from cdc.model.progress_record import AvroIds
from cdc.wire.pgoutput import Begin
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.copy_text import copy_line
from tests.property.envelope_model import Place
from tests.property.rows import Table, changes, tables
from tests.property.test_transcoder import feed

_OPTIONS: Final = TranscodeOptions("shop", "the db", 1 << 20)
_PLACE: Final = Place(Begin(Lsn(77), 1_700_000_000_000_000, 5), 1, 66, 1)
_FIRST_BYTE: Final = 30  # after the frame's head, the tag and the relation's oid, which choose the transcoder
_texts = st.none() | st.binary(max_size=12) | st.text("0123456789-.:+ eTinfaN{}[]\",\\tf'", max_size=24).map(str.encode)

every_format = pytest.mark.parametrize("form", ["json", "flat", "avro"])


def _transcoder(table: Table, form: str) -> RowRecords:
    schema = dataclasses.replace(table.schema, format=form, registered=AvroIds(300 if table.key else None, 70_000))
    return transcoder_for(schema, TopicBuffer("topic", 2), _OPTIONS, None)


@every_format
@given(st.data(), tables(), st.binary(max_size=30))
def test_any_bytes_of_the_stream_are_a_row_or_refused(
    form: str, data: st.DataObject, table: Table, rest: bytes
) -> None:
    change = data.draw(changes(table))
    message = change.message(table.schema.relation.oid)
    whole = server.frame(message)
    kept = data.draw(st.integers(_FIRST_BYTE, len(whole)))

    try:
        feed(_transcoder(table, form), message, whole[:kept] + rest, make_stamp(_PLACE.begin, 1), _PLACE)
    except (DecodeError, RowRefused):
        return


@every_format
@given(st.data(), tables(keyed=True))
def test_any_text_of_any_type_is_a_row_or_refused(form: str, data: st.DataObject, table: Table) -> None:
    """From the stream and from COPY alike."""
    texts = data.draw(st.lists(_texts, min_size=len(table.column_names), max_size=len(table.column_names)))
    transcoder = _transcoder(table, form)

    outcomes = []
    frame = server.xlog(b"I\0\0\0\1N" + server.row(tuple(texts)))
    for place in (
        lambda: transcoder.insert(frame, make_stamp(_PLACE.begin, 1), 1),
        lambda: transcoder.copied(copy_line(texts), (), snapshot_stamp(9, 5_000_000, 1)),
    ):
        try:
            place()
            outcomes.append("row")
        except (DecodeError, RowRefused) as error:
            outcomes.append(type(error).__name__)

    assert outcomes[0] == outcomes[1]


@every_format
@given(tables(keyed=True), st.binary(max_size=60))
def test_any_line_of_copy_is_a_row_or_refused(form: str, table: Table, line: bytes) -> None:
    transcoder = _transcoder(table, form)
    for place in (lambda: transcoder.key_of(line), lambda: transcoder.copied(line, (), snapshot_stamp(9, 5, 1))):
        try:
            place()
        except (DecodeError, RowRefused):
            continue


@given(tables(keyed=True), st.binary(max_size=30))
def test_any_bytes_are_a_key_in_avro_or_refused(table: Table, key: bytes) -> None:
    """The keys of a TRUNCATE come from the topic."""
    try:
        _transcoder(table, "avro").remove(0, [b"\0\0\0\1\x2c" + key], Truncation(1, make_stamp(_PLACE.begin, 1), 1, 9))
    except DecodeError:
        return
