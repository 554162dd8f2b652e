"""Rows alone against a simple model: every change becomes the resulting row, or a tombstone."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cdc.encode.envelope import stamp as make_stamp
from cdc.encode.flat_transcoder import FlatTranscoder
from cdc.encode.row_records import TranscodeOptions
from cdc.lsn import Lsn
from cdc.model.change_records import Record, TopicBuffer
from cdc.wire.pgoutput import UNCHANGED, Begin
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.murmur2 import java_partition
from tests.property.envelope_model import Place, compact, normal
from tests.property.rows import Cell, CellOrNot, Change, Table, changes, tables
from tests.property.test_transcoder import feed

OPTIONS = TranscodeOptions("shop", "the db", 1 << 20)
PLACE = Place(Begin(Lsn(4096), 1_700_000_000_123_456, 700), 3, 3000, 5)

Expected = tuple[str | None, str | None, str, str | None]
"""(key, value, op, columns that were not sent), each as JSON."""


@given(st.data())
def test_change_becomes_the_row_it_leaves_or_a_tombstone(data: st.DataObject) -> None:
    table = data.draw(tables())
    drawn = data.draw(st.lists(changes(table), min_size=1, max_size=4))

    buffer = _transcode(table, drawn)

    wanted: list[list[Expected]] = [[] for _ in buffer.partitions]
    for record in (record for change in drawn for record in _records(table, change)):
        of = int(PLACE.begin.commit_lsn).to_bytes(8, "big") if record[0] is None else compact(record[0])
        wanted[java_partition(of, table.partition_count)].append(record)
    assert [[_spelled(record) for record in records] for records in buffer.partitions] == wanted


@given(st.data())
def test_every_record_has_its_place_in_headers_and_the_same_on_every_reading(data: st.DataObject) -> None:
    table = data.draw(tables())
    drawn = data.draw(st.lists(changes(table), min_size=1, max_size=3))

    buffer = _transcode(table, drawn)

    assert buffer.partitions == _transcode(table, drawn).partitions
    for record in (record for records in buffer.partitions for record in records):
        headers = dict(record[2] or [])
        assert (headers["__epoch"], headers["__commit_lsn"], headers["__ordinal"]) == (b"3", b"4096", b"5")
        assert headers["__ts_ms"] == b"1700000000123"
        assert headers["__schema_id"].decode() == table.schema.schema_id


def _transcode(table: Table, drawn: list[Change]) -> TopicBuffer:
    buffer = TopicBuffer("topic", table.partition_count)
    transcoder = FlatTranscoder(table.schema, buffer, OPTIONS)
    for change in drawn:
        message = change.message(table.schema.relation.oid)
        frame = server.frame(message, start=PLACE.lsn)
        feed(transcoder, message, frame, make_stamp(PLACE.begin, PLACE.epoch), PLACE)
    return buffer


def _records(table: Table, change: Change) -> list[Expected]:
    old = change.old if change.old_kind else None
    if change.op == "delete":
        assert old is not None
        return [(_key(table, old), None if table.key else _row(table, old), "d", None)]
    known = [change.old_kind == "O" or index in table.key for index in range(len(change.new))]
    new = tuple(
        change.old[index] if cell is UNCHANGED and old is not None and known[index] else cell
        for index, cell in enumerate(change.new)
    )
    missing = [name for name, cell in zip(table.column_names, new, strict=True) if cell is UNCHANGED]
    unchanged = json.dumps(missing) if missing else None
    if old is not None and _key(table, old) != _key(table, new):
        return [(_key(table, old), None, "d", None), (_key(table, new), _row(table, new), "c", unchanged)]
    return [(_key(table, new), _row(table, new), "c" if change.op == "insert" else "u", unchanged)]


def _row(table: Table, cells: tuple[CellOrNot, ...]) -> str:
    return json.dumps(
        {
            name: cell.json if isinstance(cell, Cell) else None
            for name, cell in zip(table.column_names, cells, strict=True)
            if cell is not UNCHANGED
        }
    )


def _key(table: Table, cells: tuple[CellOrNot, ...]) -> str | None:
    row = json.loads(_row(table, cells))
    return json.dumps({name: row[name] for name in (table.column_names[i] for i in table.key)}) if table.key else None


def _spelled(record: Record) -> Expected:
    key, value, headers = record
    found = dict(headers or [])
    return normal(key), normal(value), found["__op"].decode(), normal(found.get("__unchanged"))
