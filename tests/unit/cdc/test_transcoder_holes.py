"""Records that lack values: how they are tracked, and how they are completed when the values are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdc.encode.json_transcoder import Transcoder
from cdc.encode.relation_schema import TableSchema
from cdc.encode.row_records import TranscodeOptions
from cdc.errors import RowRefused
from cdc.model.change_records import Record, TopicBuffer
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.relation import ReplicaIdentity
from cdc.wire.pgoutput import UNCHANGED, Message, Update
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.servers import customer_table

NAME, NOTE = 1, 2
UPDATE = Update(customer_table.OID, "", None, (b"7", b"Ann", UNCHANGED))


class Site:
    """A transcoder of customers that tracks incomplete records."""

    def __init__(self, schema: TableSchema | None = None, options: TranscodeOptions = customer_table.OPTIONS) -> None:
        self.buffer = TopicBuffer(customer_table.TOPIC, 3)
        self.holes = IncompleteRecords()
        self.transcoder = Transcoder(schema or customer_table.schema(), self.buffer, options, self.holes)

    def update(self, message: Message, ordinal: int = 5) -> int:
        """Return the expected size of the missing values."""
        return self.transcoder.update(server.frame(message), customer_table.STAMP, ordinal)

    @property
    def records(self) -> list[Record]:
        return customer_table.all_records(self.buffer)

    @property
    def document(self) -> dict[str, Any]:
        """Return the newest event that is not a delete."""
        events = [json.loads(value) for _, value, _ in self.records if value is not None]
        found: dict[str, Any] = [event for event in events if event["op"] != "d"][-1]
        return found


def test_hole_names_key_columns_and_transaction() -> None:
    site = Site()

    expected = site.update(UPDATE)

    (hole,) = site.holes.waiting
    assert (hole.key_columns, hole.key, hole.missing, hole.xid) == ((0,), ("7",), (NOTE,), 700)
    assert expected > 0


def test_record_is_what_it_would_be_without_holes_until_it_is_filled() -> None:
    site, plain = Site(), TopicBuffer(customer_table.TOPIC, 3)

    site.update(UPDATE)
    Transcoder(customer_table.schema(), plain, customer_table.OPTIONS).update(
        server.frame(UPDATE), customer_table.STAMP, 5
    )

    assert site.records == customer_table.all_records(plain)


def test_filled_record_is_complete_and_says_what_was_read_later() -> None:
    site = Site()
    site.update(UPDATE)
    before = site.document

    site.holes.waiting[0].fill({NOTE: b'a "long" one'})

    document = site.document
    assert document["after"] == {"id": 7, "name": "Ann", "note": 'a "long" one'}
    assert document["source"].pop("reselected") == ["note"]
    assert before["source"].pop("unchanged") == ["note"]
    assert document == {**before, "after": document["after"]}


def test_null_that_was_read_later_is_a_null() -> None:
    site = Site()
    site.update(UPDATE)

    site.holes.waiting[0].fill({NOTE: None})

    assert site.document["after"]["note"] is None
    assert site.document["source"]["reselected"] == ["note"]


def test_column_that_was_not_found_stays_unchanged() -> None:
    site = Site()
    site.update(Update(customer_table.OID, "", None, (b"7", UNCHANGED, UNCHANGED)))

    site.holes.waiting[0].fill({NOTE: b"x"})

    assert site.document["after"] == {"id": 7, "note": "x"}
    assert (site.document["source"]["unchanged"], site.document["source"]["reselected"]) == (["name"], ["note"])


def test_each_hole_fills_its_own_record() -> None:
    site = Site()
    for number in range(20):
        site.update(Update(customer_table.OID, "", None, (b"%d" % number, b"n", UNCHANGED)), number + 1)

    for hole in site.holes.waiting:
        hole.fill({NOTE: hole.key[0].encode()})

    documents = [json.loads(value or b"") for _, value, _ in site.records]
    assert len(documents) == 20
    assert all(document["after"]["note"] == str(document["after"]["id"]) for document in documents)
    assert all(
        json.loads(key or b"")["id"] == json.loads(value or b"")["after"]["id"] for key, value, _ in site.records
    )


def test_row_whose_key_moved_is_looked_up_under_its_new_key() -> None:
    site = Site()

    site.update(Update(customer_table.OID, "K", (b"7", None, None), (b"8", b"Ann", UNCHANGED)))
    (hole,) = site.holes.waiting
    hole.fill({NOTE: b"moved"})

    assert hole.key == ("8",)
    created = next(record for record in site.records if record[1] and b'"op":"c"' in record[1])
    assert created[2] == [("__debezium.oldkey", b'{"id":7}')]
    assert site.document["after"] == {"id": 8, "name": "Ann", "note": "moved"}


def test_large_key_that_was_not_sent_again_is_that_of_the_old_key() -> None:
    site = Site(customer_table.schema(("id", "name")))

    site.update(Update(customer_table.OID, "K", (b"7", b"Ann", None), (b"8", UNCHANGED, UNCHANGED)))

    (hole,) = site.holes.waiting
    assert (hole.key, hole.missing) == (("8", "Ann"), (NOTE,))


def test_full_identity_and_keyless_tables_have_no_holes() -> None:
    full = Site(customer_table.schema(identity=ReplicaIdentity.FULL))
    keyless = Site(customer_table.schema((), identity=ReplicaIdentity.FULL))

    for site in (full, keyless):
        site.update(Update(customer_table.OID, "O", (b"7", b"A", b"long"), (b"7", b"Ann", UNCHANGED)))

    assert full.holes.waiting == keyless.holes.waiting == []
    assert full.document["after"]["note"] == "long"


def test_limit_of_a_row_holds_for_the_completed_one() -> None:
    site = Site(options=TranscodeOptions("shop", "d", 1000))
    site.update(UPDATE)

    with pytest.raises(RowRefused, match="note"):
        site.holes.waiting[0].fill({NOTE: b"x" * 2000})


def test_completed_row_that_is_too_large_loses_its_largest_column() -> None:
    site = Site(options=TranscodeOptions("shop", "d", 1000, "omit"))
    site.update(UPDATE)

    site.holes.waiting[0].fill({NOTE: b"x" * 2000})

    source = site.document["source"]
    assert site.document["after"] == {"id": 7, "name": "Ann"}
    assert source["omitted"] == ["note"]
    assert "reselected" not in source
    assert "unchanged" not in source


def test_value_that_is_not_text_is_refused_by_the_name_of_its_column() -> None:
    site = Site()
    site.update(UPDATE)

    with pytest.raises(RowRefused, match="'note'"):
        site.holes.waiting[0].fill({NOTE: b"\xff"})


def test_size_that_is_expected_is_learned() -> None:
    site = Site()
    first = site.update(UPDATE)

    site.holes.learn(customer_table.OID, 600_000, 2)

    assert first != site.update(UPDATE) == 300_000
