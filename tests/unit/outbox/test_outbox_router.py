"""The router, row by row: the published record, or the reason of a refused event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdc.encode.envelope import stamp as make_stamp
from cdc.errors import DecodeError, SourceRefused
from cdc.lsn import Lsn
from cdc.model.visibility import PgSnapshot
from cdc.wire.pgoutput import Begin, Delete, Insert, Update
from outbox.copied_rows import CopiedOutbox
from outbox.event import Event, to_message
from outbox.event_routes import REASONS
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.outbox.scripted_router import OID, OURS, ROW, UUID, Routing, relation_of

DEBEZIUM = {"id": 2950, "aggregatetype": 1043, "aggregateid": 1043, "type": 1043, "payload": 3802, "tenant": 1043}
LARGE = Event(aggregate_type="a", aggregate_id="7", type="t", payload=f'"{"x" * 20_000}"')
STAMP = make_stamp(Begin(Lsn(100), 0, 700), 1)


def test_event_is_a_record_of_its_types_topic() -> None:
    routing = Routing()
    routing.insert(headers=b'{"traceparent": "00-1", "n": 3, "none": null, "type": "stolen"}', ordering_key=b"k")

    told = {"id": UUID, "type": b"placed", "version": b"1", "content-type": b"application/json"}
    assert routing.one() == (b"k", b'{"a": 1.0}', {**told, "traceparent": b"00-1", "n": b"3"})
    assert routing.router.counts.events == 1


def test_bytes_are_the_value_as_they_are() -> None:
    routing = Routing()
    routing.insert(payload=None, payload_bytes=b"\\x00ff", content_type=b"avro")

    assert routing.one()[1:] == (
        b"\x00\xff",
        {"id": UUID, "type": b"placed", "version": b"1", "content-type": b"avro"},
    )


def test_row_of_debeziums_table_is_understood_without_a_word() -> None:
    routing = Routing(DEBEZIUM)
    routing.insert(aggregatetype=b"order", aggregateid=b"9", payload=b'{"x": 1}', tenant=b"t")

    told = {"id": UUID, "type": b"placed", "version": b"1", "content-type": b"application/json"}
    assert routing.one() == (b"9", b'{"x": 1}', told)


def test_further_columns_go_where_they_are_wanted() -> None:
    extra = {"tenant": "header:who", "n": "envelope", "ok": "envelope:fine", "note": "envelope"}
    routing = Routing({**DEBEZIUM, "n": 23, "ok": 16, "note": 25}, extra=extra)
    row: dict[str, bytes | None] = {"aggregatetype": b"order", "aggregateid": b"9", "payload": b"[1]", "tenant": b"t"}
    routing.insert(**row, n=b"5", ok=b"t", note=b'"q"')

    _, value, headers = routing.one()
    assert json.loads(value or b"") == {"payload": [1], "n": 5, "fine": True, "note": '"q"'}
    assert headers["who"] == b"t"


@pytest.mark.parametrize(
    ("reason", "settings", "row"),
    [
        ("no_id", {}, {"id": None}),
        ("no_type", {}, {"type": b""}),
        ("no_aggregate_type", {}, {"aggregate_type": b""}),
        ("topic_name", {}, {"aggregate_type": b"x" * 250}),
        ("topic_name", {}, {"aggregate_type": b"\xff"}),
        ("no_key", {}, {"aggregate_id": None}),
        ("no_payload", {"null_payload": "refuse"}, {"payload": None}),
        ("headers", {}, {"headers": b"[1]"}),
        ("too_large", {}, {"payload": b'"' + b"x" * 10_000 + b'"'}),
        ("too_large", {}, {"aggregate_id": b"x" * 20_000}),
    ],
)
def test_event_that_cannot_be_published_is_refused_with_its_reason_and_delays_no_other(
    reason: str, settings: dict[str, Any], row: dict[str, bytes | None]
) -> None:
    routing = Routing(**settings)
    routing.insert(**row)
    routing.insert()

    key, value, headers = routing.one("shop.__refused")
    assert (headers["refused-reason"].decode(), headers["refused-commit-lsn"]) == (reason, b"100")
    assert len(key or b"") + len(value or b"") < 10_000
    assert reason == "too_large" or value == row.get("payload", ROW["payload"])
    assert len(routing.gather()["shop.events.order"]) == 1
    assert (routing.router.counts.events, dict(routing.router.counts.refused)) == (1, {reason: 1})
    assert reason in REASONS


def test_types_beyond_the_limit_are_refused_and_make_no_topics() -> None:
    routing = Routing(types_max=2)
    for number in range(5):
        routing.insert(aggregate_type=b"kind %d" % number)
    routing.gather()
    routing.insert(aggregate_type=b"kind 0")

    assert routing.opened == ["shop.events.kind-200", "shop.events.kind-201", "shop.__refused"]
    assert routing.reasons() == ["types_max"] * 3
    assert len(routing.gather()["shop.events.kind-200"]) == 2


def test_topic_whose_name_kafka_does_not_take_refuses_its_events_alone() -> None:
    routing = Routing(impossible=["shop.events.a_b"])
    routing.insert(aggregate_type=b"a_b")
    routing.insert()
    assert routing.reasons() == ["topic_name"]
    routing.insert(aggregate_type=b"a_b")

    assert routing.reasons() == ["topic_name"] * 2
    assert (routing.router.counts.events, routing.opened.count("shop.events.a_b")) == (1, 1)


def test_events_that_wait_for_their_topic_keep_their_order_and_their_partition() -> None:
    routing = Routing(partitions=4)
    for number in range(40):
        routing.insert(aggregate_id=b"%d" % (number % 7), payload=b"%d" % number)
        if number == 20:
            routing.gather()
    routing.gather()

    homes: dict[bytes, list[tuple[int, int]]] = {}
    for index, records in enumerate(routing.buffers["shop.events.order"].partitions):
        for key, value, _ in records:
            homes.setdefault(key or b"", []).append((index, int(value or b"")))
    assert all(found == sorted(found) and len({index for index, _ in found}) == 1 for found in homes.values())
    assert sum(map(len, homes.values())) == 40


def test_message_is_an_event_as_a_row_is() -> None:
    event = Event(aggregate_type="order", aggregate_id="7", type="placed", payload='{"a":  1}')
    by_hand = to_message(event).replace('"headers":{}', '"headers":{"id":"x"}')
    routing = Routing()
    size = routing.message(by_hand)

    told = {"id": str(event.id).encode(), "type": b"placed", "version": b"1", "content-type": b"application/json"}
    assert routing.one() == (b"7", b'{"a":  1}', told)
    assert size
    assert routing.message("x", prefix="heartbeat") is None, "it is somebody else's"
    assert Routing(prefix="").message("x", prefix="") is None


@pytest.mark.parametrize(
    ("reason", "content", "transactional"),
    [
        ("message", b"\xff", True),
        ("message", b'{"id": "7"}', True),
        ("not_transactional", to_message(Event(aggregate_type="a", aggregate_id="7", type="t")).encode(), False),
        ("topic_name", to_message(Event(aggregate_type="é" * 90, aggregate_id="7", type="t")).encode(), True),
        ("too_large", to_message(LARGE).encode(), True),
    ],
)  # fmt: skip
def test_message_that_is_no_event_is_refused_and_counts_as_taken(
    reason: str,
    content: bytes,
    transactional: bool,
) -> None:
    routing = Routing()

    assert routing.message(content, transactional=transactional)
    assert routing.reasons() == [reason]


def test_updates_and_deletes_are_no_events() -> None:
    row = tuple(ROW.values())
    routing = Routing()
    routing.rows.update(server.frame(Update(OID, "", None, row)), STAMP, 1)
    routing.rows.delete(server.frame(Delete(OID, "K", row)), STAMP, 2)
    assert routing.gather() == {}
    assert routing.router.counts.ignored == 1

    with pytest.raises(SourceRefused, match="was updated"):
        Routing(on_update="stop").rows.update(server.frame(Update(OID, "", None, row)), STAMP, 1)


def test_rows_that_were_copied_are_left_out_of_the_stream_by_transaction() -> None:
    routing = Routing(copies={OID: CopiedOutbox(PgSnapshot.parse("700:705:702"), Lsn(500))})
    routing.row({"payload": b"1"}, xid=701)
    routing.row({"payload": b"2"}, xid=702)
    routing.row({"payload": b"3"}, xid=705)
    routing.row({"payload": b"4"}, xid=701, commit_lsn=500)

    assert sorted(value or b"" for _, value, _ in routing.gather()["shop.events.order"]) == [b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("columns", "settings"),
    [
        ({"id": 2950, "aggregate_type": 25, "type": 25, "payload": 114}, {}),
        ({name: oid for name, oid in OURS.items() if not name.startswith("payload")}, {}),
        (OURS, {"named": {"ordering_key": "gone"}}),
        (OURS, {"extra": {"gone": "header"}}),
        ({**DEBEZIUM, "payload": 17}, {"extra": {"tenant": "envelope"}}),
    ],
)
def test_table_that_lacks_a_column_is_refused_by_its_name(columns: dict[str, int], settings: dict[str, Any]) -> None:
    with pytest.raises(SourceRefused) as caught:
        Routing(columns, **settings)

    assert caught.value.command.startswith("[outbox]")


def test_table_of_another_name_is_none_of_its() -> None:
    assert Routing().router.take(relation_of(OURS, name="orders")) is None


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_broken_frame_is_a_decode_error(cut: int) -> None:
    frame = server.frame(Insert(OID, tuple(ROW.values())))

    with pytest.raises(DecodeError):
        Routing().rows.insert(frame[:-cut], STAMP, 1)
    with pytest.raises(DecodeError):
        Routing().rows.insert(server.frame(Insert(OID, (UUID,))), STAMP, 1)
