"""Transaction metadata, TRUNCATE events and logical messages in their own topics, in Debezium's form."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fixtures.capture.topic_log import TopicLog
    from tests.fixtures.servers.daemon import CaptureSite


def test_transaction_metadata_has_the_number_of_events(capture: CaptureSite) -> None:
    capture.sql("create table a (id int primary key)", "create table b (id int primary key)")
    daemon = capture.running({"capture": {"transactions": True, "batch_rows_max": 5}})

    capture.transaction("insert into a values (1)", "insert into b values (1)", "insert into a values (2)")
    capture.transaction("create table left_out (id int)")
    capture.sql("insert into a select generate_series(3, 40)")
    capture.transaction("insert into b values (2)", "truncate b")
    log = capture.settled(daemon)

    told = [record.document for record in log.topic(f"{capture.name}.transaction")]
    assert [one.get("status", one.get("op")) for one in told] == ["BEGIN", "END", "BEGIN", "END", "BEGIN", "t", "END"]
    assert [one["event_count"] for one in told if one.get("status") == "END"] == [3, 38, 2]
    assert _collections(told[1]) == {"public.a": 2, "public.b": 1}
    places = [event.document["transaction"] for event in log.events]
    first = [place for place in places if place["id"] == told[0]["id"]]
    assert [(one["total_order"], one["data_collection_order"]) for one in first] == [(1, 1), (2, 1), (3, 2)]
    assert (told[5]["source"]["table"], told[5]["transaction"]["total_order"]) == ("b", 2)
    assert log.faults() == []


def test_transaction_metadata_is_off_by_default(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()

    capture.sql("insert into t values (1)", "select pg_logical_emit_message(true, 'a', 'b')")
    log = capture.settled(daemon)

    assert log.data_topics == [capture.topic("t")]
    assert log.events[0].document["transaction"] is None


def test_messages_are_published_once_in_their_order_over_restarts(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    wanted = {"capture": {"messages": True}}
    daemon = capture.running(wanted)

    capture.sql("select pg_logical_emit_message(false, 'alone', 'one')")
    capture.transaction(
        "select pg_logical_emit_message(true, 'inside', '\\x00ff'::bytea)",
        "insert into t values (1)",
        "select pg_logical_emit_message(true, 'inside', 'two')",
    )
    capture.transaction("select pg_logical_emit_message(true, 'rolled back', '')", "rollback")
    assert [text for _, text in _messages(capture.settled(daemon), capture)] == [b"one", b"\x00\xff", b"two"]
    daemon.kill()
    capture.sql("select pg_logical_emit_message(false, 'alone', 'three')", "insert into t values (2)")
    log = capture.settled(capture.running(wanted))

    assert _messages(log, capture) == [
        ("alone", b"one"),
        ("inside", b"\x00\xff"),
        ("inside", b"two"),
        ("alone", b"three"),
    ]
    assert [event.source["ordinal"] for event in log.events_of(capture.topic("t"))] == [2, 1]
    assert [record.key for record in log.topic(f"{capture.name}.message")][:2] == [
        b'{"prefix":"alone"}',
        b'{"prefix":"inside"}',
    ]


def _collections(end: dict[str, Any]) -> dict[str, int]:
    return {one["data_collection"]: one["event_count"] for one in end["data_collections"]}


def _messages(log: TopicLog, capture: CaptureSite) -> list[tuple[str, bytes]]:
    found = [record.document["message"] for record in log.topic(f"{capture.name}.message")]
    return [(one["prefix"], base64.b64decode(one["content"])) for one in found]
