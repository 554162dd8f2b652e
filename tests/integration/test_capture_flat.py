"""`encode.format = "flat"`: the last record of every key in a topic gives the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fixtures.capture.type_tables import (
    MAKE_OWN,
    OWN,
    Columns,
    arrays,
    create,
    exact,
    fill,
    said_by_server,
    scalars,
)

if TYPE_CHECKING:
    from tests.fixtures.capture.topic_log import LogRecord, TopicLog
    from tests.fixtures.servers.daemon import CaptureSite

FLAT: Final = {"encode": {"format": "flat"}}


def test_topic_is_the_table_after_every_kind_of_change(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id int primary key, v int, body text)",
        "alter table t alter column body set storage external",
        "create table f (id int primary key, body text)",
        "alter table f replica identity full",
    )
    daemon = capture.running(FLAT)

    capture.sql(
        "insert into t select n, 0, repeat(chr(96 + n), 3000) from generate_series(1, 9) n",
        "truncate t",
        "insert into t select n, 0, repeat(chr(96 + n), 3000) from generate_series(1, 6) n",
        "update t set v = 1 where id < 4",
        "update t set id = 20, v = 2 where id = 2",
        "delete from t where id = 3",
        "insert into f values (1, repeat('a', 3000)), (2, null)",
        "update f set id = 3 where id = 1",
        "delete from f where id = 2",
    )
    log = capture.settled(daemon)

    for table in ("t", "f"):
        assert folded(log, capture.topic(table)) == rows(capture, table)
    assert ids_are_unique_and_in_order(log)


def test_every_change_has_an_operation_and_its_place(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v int)")
    daemon = capture.running({**FLAT, "capture": {"transactions": True}, "kafka": {"partitions": 1}})

    capture.transaction("insert into t values (1, 0)", "update t set v = 1", "update t set id = 2", "delete from t")
    records = capture.settled(daemon).topic(capture.topic("t"))

    assert [(record.headers["__op"], record.headers["__ordinal"]) for record in records] == [
        (b"c", b"1"),
        (b"u", b"2"),
        (b"d", b"3"),
        (b"c", b"3"),
        (b"d", b"4"),
    ]
    orders = [json.loads(record.headers["__transaction"])["total_order"] for record in records]
    assert orders == [1, 2, 3, 3, 4]


def test_truncate_leaves_no_key(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running(FLAT)

    capture.sql("insert into t select generate_series(1, 500)", "delete from t where id = 7", "truncate t")
    log = capture.settled(daemon)

    assert folded(log, capture.topic("t")) == {}
    removed = [record for record in log.topic(capture.topic("t")) if record.value is None]
    assert len(removed) == 500, "one for each key, not a second one for the key that was gone"


@pytest.mark.parametrize("columns", [scalars(), arrays(), OWN], ids=["scalars", "arrays", "own"])
def test_values_are_what_the_server_says(capture: CaptureSite, columns: Columns) -> None:
    with capture.connect() as session:
        if columns is OWN:
            capture.sql(*MAKE_OWN)
        there = create(session, columns)
    daemon = capture.running(FLAT)
    with capture.connect() as session:
        row_count = fill(session, there)
        expected = said_by_server(session, there)

    records = capture.settled(daemon).topic(capture.topic("t"))

    assert len(records) == row_count
    for record in records:
        assert record.value is not None
        row = exact(record.value)
        assert row == {"id": row["id"], **expected[int(row["id"])]}


def test_another_format_is_refused_by_topics_that_have_one(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()
    capture.settled(daemon)
    daemon.stop()

    stop = capture.daemon(FLAT).stopped_with()

    assert stop["exit_code"] == 3
    assert "the topic of public.t has records in the format 'json'; encode.format is 'flat' now" in stop["message"]


def folded(log: TopicLog, topic: str) -> dict[int, dict[str, Any]]:
    """The topic as any reader of tables takes it: the last value of each key."""
    last: dict[bytes, LogRecord] = {}
    for record in log.topic(topic):
        assert record.key is not None
        last[record.key] = record
    return {json.loads(key)["id"]: json.loads(record.value) for key, record in last.items() if record.value is not None}


def rows(capture: CaptureSite, table: str) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for (row,) in capture.query(f"select to_jsonb(x) from {table} x")}


def ids_are_unique_and_in_order(log: TopicLog) -> bool:
    """Each event id once (G3), positions never going back in a partition (G2)."""
    seen: set[tuple[str, bytes | None, tuple[int, ...]]] = set()
    for (topic, _), records in log.records.items():
        if topic not in log.data_topics:
            continue
        before: tuple[int, ...] = (0, 0, 0)
        for record in records:
            place = tuple(int(record.headers[name]) for name in ("__epoch", "__commit_lsn", "__ordinal"))
            event = (topic, record.key, place)
            if event in seen or place < before:
                return False
            seen.add(event)
            before = place
    return True
