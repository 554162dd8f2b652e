"""A snapshot reads every row whose record is incomplete, and only the encoder decides which records are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.encode.formats import transcoder_for
from cdc.encode.relation_schema import TableSchema, table_schema
from cdc.encode.row_records import RowRecords
from cdc.encode.values import EncodeOptions
from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.progress_record import AvroIds
from cdc.wire.pgoutput import UNCHANGED, Insert, Update
from snapshot.handover import HandOver
from snapshot.merger import Merger
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.servers import customer_table

TABLE = "public.customers"
FORMATS = ("json", "flat", "avro")
XID = 700
_JSON_OID = 114
INCOMPLETE = Update(customer_table.OID, "", None, (b"7", b"Ann", UNCHANGED))
MOVED = Update(customer_table.OID, "K", (b"6", None, None), (b"7", b"Ann", UNCHANGED))
COMPLETE = Update(customer_table.OID, "", None, (b"7", b"Ann", b"note"))


class Site:
    """A hand-over during a snapshot of one table, and the transcoder whose records it watches."""

    def __init__(self, form: str, *, holes: IncompleteRecords | None = None) -> None:
        merger = Merger()
        merger.requests.begin(TABLE, customer_table.OID, Lsn(1))
        self.merger = merger
        self.handover = HandOver(merger, lambda *_: None, epoch=1)
        self.buffer = TopicBuffer(customer_table.TOPIC, 3)
        self.transcoder: RowRecords = transcoder_for(_schema(form), self.buffer, customer_table.OPTIONS, holes)
        self.handover.watch(TABLE, self.buffer)
        self.handover.begun(XID, whole=True)

    def update(self, *updates: Update) -> Site:
        """Add rows of the transaction that is being streamed."""
        for update in updates:
            self.transcoder.update(server.frame(update), customer_table.STAMP, 5)
        return self

    def partial(self) -> set[bytes]:
        """End the transaction; return the keys that the snapshot will read."""
        self.handover.ended()
        return set(self.merger.window.pending[XID].partial.get(TABLE, ()))


def _schema(form: str) -> TableSchema:
    return replace(customer_table.schema(), format=form, registered=AvroIds(1, 2) if form == "avro" else None)


def _key(form: str) -> bytes:
    return Site(form).transcoder.key_of(b"7\tAnn\tnote\n")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("update", [INCOMPLETE, MOVED], ids=["in place", "moved"])
def test_snapshot_repairs_a_row_whose_record_lacks_values_in_every_format(form: str, update: Update) -> None:
    assert Site(form).update(update).partial() == {_key(form)}


@pytest.mark.parametrize("form", FORMATS)
def test_complete_record_behind_an_incomplete_one_needs_no_repair(form: str) -> None:
    assert Site(form).update(INCOMPLETE, COMPLETE).partial() == set()
    assert Site(form).update(COMPLETE, INCOMPLETE).partial() == {_key(form)}


@pytest.mark.parametrize("form", FORMATS)
def test_repair_is_remembered_across_the_batches_of_one_transaction(form: str) -> None:
    site = Site(form).update(INCOMPLETE)
    site.handover.gather()
    site.buffer.clear()
    site.update(Update(customer_table.OID, "", None, (b"8", b"Bob", b"note")))

    assert site.partial() == {_key(form)}


@pytest.mark.parametrize("form", FORMATS)
def test_record_whose_values_are_read_before_it_is_published_needs_no_repair(form: str) -> None:
    assert Site(form, holes=IncompleteRecords()).update(INCOMPLETE).partial() == set()


def test_value_that_looks_like_the_mark_of_an_incomplete_record_is_a_value() -> None:
    relation = customer_table.relation()
    columns = (*relation.columns[:2], replace(relation.columns[2], type_oid=_JSON_OID))
    schema = table_schema(replace(relation, columns=columns), ("id",), {}, EncodeOptions(json="value"))
    site = Site("json")
    transcoder = transcoder_for(schema, site.buffer, customer_table.OPTIONS, None)

    row = (b"7", b'"unchanged":[', b'{"unchanged":["note"]}')
    transcoder.insert(server.frame(Insert(customer_table.OID, row)), customer_table.STAMP, 5)

    assert b'"unchanged":[' in (customer_table.all_records(site.buffer)[0][1] or b"")
    assert site.partial() == set()
