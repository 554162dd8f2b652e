"""Compiled code changes no byte: rows of the stream and of COPY, whole and damaged, with and without it."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc.encode.envelope import snapshot_stamp
from cdc.encode.envelope import stamp as make_stamp
from cdc.encode.json_transcoder import Transcoder
from cdc.encode.plain_rows import COMPILED
from cdc.encode.relation_schema import table_schema
from cdc.encode.row_records import TranscodeOptions
from cdc.encode.values import EncodeOptions
from cdc.errors import TailraceError
from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.wire.pgoutput import Begin
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.copy_text import copy_line
from tests.property.envelope_model import Place
from tests.property.messages import damaged
from tests.property.rows import Cell, Change, Table, changes, tables
from tests.property.test_transcoder import feed, places

pytestmark = pytest.mark.skipif(not COMPILED, reason="no compiled code: no C compiler, or no headers of Python")

Run: TypeAlias = Callable[[Transcoder], object]

_LARGE: Final = 1 << 20
_LIMITS: Final = st.sampled_from([_LARGE, 400, 300])
_PLACE: Final = Place(Begin(Lsn(77), 1_700_000_000_000_000, 5), 1, 66, 1)
_FORMS: Final = {
    "debezium": EncodeOptions(compatibility="debezium"),
    "others": EncodeOptions(numeric="number", int64="string", time="micros", bytea="base64", json="value"),
}
_COLUMNS: Final = (Column("id", 20, -1, True), Column("v", 25, -1, False), Column("ok", 16, -1, False))
_RELATION: Final = Relation(1, "public", "t", ReplicaIdentity.DEFAULT, _COLUMNS)
_SMALL: Final = Table(table_schema(_RELATION, ["id"], {}, EncodeOptions()), 3)


@given(st.data(), tables(keyed=True), places(), _LIMITS)
def test_changes_give_the_same_records(data: st.DataObject, table: Table, place: Place, limit: int) -> None:
    for change in data.draw(st.lists(changes(table), min_size=1, max_size=4)):
        assert_same(table, streaming(table, change, place), limit)


@settings(max_examples=30)  # each is some hundred frames
@given(st.data(), tables(keyed=True))
def test_damaged_frames_have_the_same_outcome(data: st.DataObject, table: Table) -> None:
    change = data.draw(changes(table))
    whole = server.frame(change.message(table.schema.relation.oid))
    for at in range(30, len(whole)):
        for frame in (whole[:at], *damaged(whole, at)):
            assert_same(table, streaming(table, change, _PLACE, frame))


@given(st.data(), tables(keyed=True), _LIMITS)
def test_lines_of_copy_give_the_same_records(data: st.DataObject, table: Table, limit: int) -> None:
    rows = [change.new for change in data.draw(st.lists(changes(table, ("insert", "")), max_size=6))]
    text = b"".join(copy_line([cell.text if isinstance(cell, Cell) else None for cell in row]) for row in rows)
    _, partitions = outcome(table, copying(text), _LARGE, compiled=False)
    keys = [key for partition in partitions for key, _ in partition]
    drop = data.draw(st.sets(st.sampled_from(keys))) if keys else set()

    assert_same(table, copying(text, drop), limit)


_PIECES: Final = st.lists(
    st.sampled_from([b"\t", b"1\t", b"t\n", b"\n", b"\\", b"\\N", b"N", b"t", b"\xff", b"\r"]), max_size=9
)


@settings(max_examples=400)
@given(_PIECES)
@example([b"1\t", b"\\N", b"N", b"\t", b"t\n"])
@example([b"1\t", b"\t", b"t", b"t\n"])
@example([b"1\t", b"\t", b"\t", b"t\n"])
def test_any_lines_have_the_same_outcome(pieces: list[bytes]) -> None:
    assert_same(_SMALL, copying(b"".join(pieces)))


def test_record_of_the_limit_is_taken_and_one_byte_more_is_refused() -> None:
    change = Change("insert", "", (), (Cell(b"1", 1), Cell(b"a" * 99, "a" * 99), None))
    _, partitions = outcome(_SMALL, streaming(_SMALL, change, _PLACE), _LARGE, compiled=False)
    (size,) = (len(value) for records in partitions for _, value in records)
    for limit in (size - 1, size, size + 1):
        assert_same(_SMALL, streaming(_SMALL, change, _PLACE), limit)
        assert_same(_SMALL, copying(copy_line([b"1", b"a" * 99, None])), limit)


@pytest.mark.parametrize("form", _FORMS)
@given(st.data())
def test_forms_that_compiled_code_lacks_are_the_same(form: str, data: st.DataObject) -> None:
    drawn = data.draw(tables(keyed=True))
    key = [drawn.column_names[index] for index in drawn.key]
    table = Table(table_schema(drawn.schema.relation, key, {}, _FORMS[form]), drawn.partition_count)
    change = data.draw(changes(table))

    assert_same(table, streaming(table, change, _PLACE))


@given(st.integers(0, 5_000), st.sampled_from(["x", "é", '"', "\x7f", "\x1f", "\\", "\t"]))
@example(300_000, "x")
@example(300_000, "\\")
def test_long_texts_are_the_same(size: int, letter: str) -> None:
    text = letter * size
    change = Change("insert", "", (), (Cell(b"1", 1), Cell(text.encode(), text), None))

    assert_same(_SMALL, streaming(_SMALL, change, _PLACE))
    assert_same(_SMALL, copying(copy_line([b"1", text.encode(), None])))


def test_plain_rows_are_taken_and_others_are_refused_without_an_effect() -> None:
    """Otherwise the comparisons would compare the same code with itself, or a row would come twice."""
    buffer = TopicBuffer("topic", 1)
    rows = Transcoder(_SMALL.schema, buffer, _options(400), compiled=True)._plain

    def take(text: bytes) -> bool:
        return rows.take(server.xlog(b"I\0\0\0\1N" + server.row((b"1", text, None))), b"", b"", b"", 1)

    assert take(b"a")
    assert rows.copied(b"2\ta\tt\n3\t\\N\tf\n", b"", set()) is not None
    assert len(buffer.partitions[0]) == 3
    for text in (b"a" * 400, b"\xff"):
        assert not take(text)
        assert rows.copied(b"4\ta\tt\n5\t" + text + b"\tt\n", b"", set()) is None
    assert len(buffer.partitions[0]) == 3


def streaming(table: Table, change: Change, place: Place, frame: bytes = b"") -> Run:
    """Feed a change to a transcoder, or another frame in its place."""
    message = change.message(table.schema.relation.oid)
    whole = frame or server.frame(message, start=place.lsn)
    return lambda transcoder: feed(transcoder, message, whole, make_stamp(place.begin, place.epoch), place)


def copying(text: bytes, drop: Container[bytes] = ()) -> Run:
    """Feed lines of COPY to a transcoder."""
    return lambda transcoder: transcoder.copied(text, drop, snapshot_stamp(9, 5_000_000, 1))


def assert_same(table: Table, run: Run, limit: int = _LARGE) -> None:
    """Run with and without compiled code, and compare."""
    assert outcome(table, run, limit, compiled=True) == outcome(table, run, limit, compiled=False)


def outcome(table: Table, run: Run, limit: int, *, compiled: bool) -> tuple[object, list[list[tuple[bytes, bytes]]]]:
    """What was returned or raised, and the records; those of a refused row are not used."""
    buffer = TopicBuffer("topic", table.partition_count)
    transcoder = Transcoder(table.schema, buffer, _options(limit), compiled=compiled)
    try:
        returned = run(transcoder)
    except TailraceError as error:
        return (type(error), str(error), error.facts), []
    return returned, [[(key or b"", value or b"") for key, value, _ in records] for records in buffer.partitions]


def _options(limit: int) -> TranscodeOptions:
    return TranscodeOptions("shop", "the db", limit)
