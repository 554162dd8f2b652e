"""With `encode.compatibility = "debezium"` stream, snapshot and reselect write the same values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from cdc.encode.envelope import snapshot_stamp
from cdc.encode.formats import transcoder_for
from cdc.encode.relation_schema import TableSchema, table_schema
from cdc.encode.row_records import RowRecords
from cdc.encode.values import EncodeOptions
from cdc.model.change_records import TopicBuffer, Truncation
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.wire.pgoutput import UNCHANGED, Delete, Insert, Update
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.servers import customer_table

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "debezium.json"
_COLUMNS: Final = (
    Column("id", 23, -1, True),
    Column("at", 1184, -1, False),
    Column("price", 1700, ((10 << 16) | 2) + 4, False),
    Column("flags", 1560, 8, False),
    Column("soon", 1114, 3, False),
    Column("body", 17, -1, False),
)
ROW: Final = (b"7", b"2026-11-21 07:04:56.789123+00", b"12.50", b"10000001", b"2026-11-21 12:34:56.789", b"\\xfbff")
VALUES: Final = {
    "id": 7,
    "at": "2026-11-21T07:04:56.789123Z",
    "price": "BOI=",
    "flags": "gQ==",
    "soon": 1795264496789,
    "body": "+/8=",
}


def _schema(form: str) -> TableSchema:
    relation = Relation(customer_table.OID, "public", "customers", ReplicaIdentity.DEFAULT, _COLUMNS)
    options = EncodeOptions(compatibility="debezium", format="flat" if form == "flat" else "json")
    return table_schema(relation, ("id",), {}, options)


def _made(form: str, holes: IncompleteRecords | None = None) -> tuple[RowRecords, TopicBuffer]:
    buffer = TopicBuffer(customer_table.TOPIC, 1)
    return transcoder_for(_schema(form), buffer, customer_table.OPTIONS, holes), buffer


def _after(form: str, value: bytes | None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(value or b"")
    return document if form == "flat" else document["after"]


@pytest.mark.parametrize("form", ["json", "flat"])
def test_stream_snapshot_and_reselect_write_the_same_values(form: str) -> None:
    holes = IncompleteRecords()
    transcoder, buffer = _made(form, holes)

    transcoder.insert(server.frame(Insert(customer_table.OID, ROW)), customer_table.STAMP, 1)
    line = b"\t".join(text.replace(b"\\", b"\\\\") for text in ROW) + b"\n"
    transcoder.copied(line, (), snapshot_stamp(4096, 1_700_000_000_000_000, 1))
    lacking = Update(customer_table.OID, "", None, (*ROW[:-1], UNCHANGED))
    transcoder.update(server.frame(lacking), customer_table.STAMP, 2)
    holes.waiting[0].fill({5: ROW[5]})

    assert [_after(form, value) for _, value, _ in buffer.partitions[0]] == [VALUES] * 3
    assert [key for key, _, _ in buffer.partitions[0]] == [b'{"id":7}'] * 3


def test_every_event_has_the_fields_of_debeziums_envelope() -> None:
    transcoder, buffer = _made("json")
    stamp = customer_table.STAMP

    transcoder.insert(server.frame(Insert(customer_table.OID, ROW)), stamp, 1)
    transcoder.update(server.frame(Update(customer_table.OID, "", None, ROW)), stamp, 2)
    transcoder.delete(server.frame(Delete(customer_table.OID, "K", (b"7", *[None] * 5))), stamp, 3)
    transcoder.remove(0, [b'{"id":8}'], Truncation(customer_table.OID, stamp, 3000, 4))
    transcoder.copied(b"7\t" + b"\\N\t" * 4 + b"\\N\n", (), snapshot_stamp(4096, 1_700_000_000_123_456, 1))

    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["envelope"]
    events = [json.loads(value) for _, value, _ in buffer.partitions[0] if value is not None]
    assert [event["op"] for event in events] == ["c", "u", "d", "d", "r"]
    for event in events:
        for theirs in golden.values():
            assert event.keys() >= theirs.keys()
            assert event["source"].keys() >= theirs["source"].keys()
        assert (event["ts_ms"], event["ts_us"], event["ts_ns"]) == (
            1_700_000_000_123,
            1_700_000_000_123_456,
            1_700_000_000_123_456_000,
        )
        source = event["source"]
        assert (source["ts_us"], source["ts_ns"], source["xmin"]) == (event["ts_us"], event["ts_ns"], None)
        assert source["commit_lsn"] == 4096, "the position stays"
