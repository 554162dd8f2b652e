"""Values that arrive later: a completed record equals the original one, and names the columns added later."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cdc.encode.envelope import stamp as make_stamp
from cdc.encode.json_transcoder import Transcoder
from cdc.model.change_records import Record, TopicBuffer
from cdc.model.incomplete_record import IncompleteRecords
from cdc.wire.pgoutput import UNCHANGED
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.servers.customer_table import all_records
from tests.property.envelope_model import Place
from tests.property.rows import Cell, Change, Table, changes, tables
from tests.property.test_transcoder import OPTIONS, feed, places, transcode


@given(st.data(), tables(keyed=True), places(), st.sampled_from(["", "K", "O"]))
def test_filled_record_is_the_one_of_a_row_that_was_sent_whole(
    data: st.DataObject, table: Table, place: Place, old_kind: str
) -> None:
    change = data.draw(changes(table, ("update", old_kind)))
    later = data.draw(changes(table, ("insert", ""))).new
    buffer, holes = TopicBuffer("topic", table.partition_count), IncompleteRecords()
    transcoder = Transcoder(table.schema, buffer, OPTIONS, holes)
    message = change.message(1)
    feed(transcoder, message, server.frame(message, start=place.lsn), make_stamp(place.begin, place.epoch), place)
    missing = _missing(table, change)

    for hole in holes.waiting:
        texts = {index: later[index] for index in missing}
        hole.fill({index: cell.text if isinstance(cell, Cell) else None for index, cell in texts.items()})

    whole = tuple(later[index] if index in missing else cell for index, cell in enumerate(change.new))
    assert [hole.missing for hole in holes.waiting] == ([tuple(missing)] if missing else [])
    assert all(hole.key == _key(table, change) for hole in holes.waiting)
    sent = all_records(transcode(table, [(replace(change, new=whole), place)]))
    found = [_without_mark(record, [table.column_names[index] for index in missing]) for record in all_records(buffer)]
    assert found == [_without_mark(record, []) for record in sent]


def _missing(table: Table, change: Change) -> list[int]:
    """Columns that neither the new row nor the old one shows."""
    if change.old_kind == "O":
        return []
    return [index for index, cell in enumerate(change.new) if cell is UNCHANGED and index not in table.key]


def _key(table: Table, change: Change) -> tuple[str, ...]:
    cells = [change.old[index] if change.new[index] is UNCHANGED else change.new[index] for index in table.key]
    return tuple(cell.text.decode() for cell in cells if isinstance(cell, Cell))


def _without_mark(record: Record, names: list[str]) -> tuple[object, ...]:
    key, value, headers = record
    document = None if value is None else json.loads(value)
    if document is not None and document["op"] != "d":
        assert document["source"].pop("reselected", []) == names
    return key, document, headers
