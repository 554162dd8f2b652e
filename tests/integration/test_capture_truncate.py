"""TRUNCATE deletes every key of the topic, in the right order among other events (B5)."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from tests.fixtures.servers.group_workers import Worker
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.capture.topic_log import LogRecord, TopicLog
    from tests.fixtures.servers.daemon import CaptureSite

KEYS: Final = int(os.environ.get("TAILRACE_TRUNCATE_KEYS", "60000"))
RSS_BYTES: Final = 120 << 20
LONG_S: Final = 60 + KEYS / 5000


def test_truncate_is_a_delete_and_a_tombstone_for_every_live_key(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v int)")
    daemon = capture.running()

    capture.sql(
        "insert into t select n, 0 from generate_series(1, 5) n",
        "update t set v = 1 where id = 2",
        "update t set id = 30 where id = 3",
        "delete from t where id = 4",
        "truncate t",
        "insert into t values (5, 2)",
    )
    log = capture.settled(daemon)

    removed = [event for event in log.events if event.op == "d"][2:]
    assert sorted(event.document["before"]["id"] for event in removed) == [1, 2, 5, 30]
    assert len({event.position for event in removed}) == 1
    assert all(removed[0].source["ordinal"] == 1 and event.document["after"] is None for event in removed)
    assert list(log.fold(capture.topic("t")).values()) == [{"id": 5, "v": 2}]
    assert log.faults() == []
    assert daemon.events("truncated")[0]["keys"] == 4


def test_truncate_inside_a_transaction_takes_what_it_inserted_and_leaves_what_follows(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", "create table other (id int primary key)")
    daemon = capture.running()

    capture.sql("insert into t values (1)", "insert into other values (1)")
    capture.transaction("insert into t values (2)", "truncate t", "insert into t values (2), (3)")
    capture.transaction("truncate t", "truncate t, other", "insert into other values (7)")
    capture.transaction("insert into t values (9)", "truncate t")
    log = capture.settled(daemon)

    assert list(log.fold(capture.topic("t"))) == []
    assert [row["id"] for row in log.fold(capture.topic("other")).values()] == [7]
    assert log.faults() == []
    assert _ordinals(log, capture.topic("t")) == [
        *[("c", 1, 1)],
        *[("c", 2, 1), ("d", 1, 2), ("d", 2, 2), ("c", 2, 3), ("c", 3, 4)],
        *[("d", 2, 1), ("d", 3, 1)],
        *[("c", 9, 1), ("d", 9, 2)],
    ]


def test_truncate_that_is_rolled_back_removes_nothing(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()

    capture.sql(
        "insert into t values (1)",
        "begin; truncate t; rollback",
        "begin; savepoint a; truncate t; rollback to a; commit",
    )

    assert [row["id"] for row in capture.settled(daemon).fold(capture.topic("t")).values()] == [1]


def test_cascade_and_partitions_empty_what_the_database_empties(capture: CaptureSite) -> None:
    capture.sql(
        "create table parent (id int primary key)",
        "create table child (id int primary key, parent int references parent)",
        "create table parts (id int primary key) partition by range (id)",
        "create table parts_low partition of parts for values from (0) to (10)",
        "create table parts_high partition of parts for values from (10) to (20)",
    )
    sections: dict[str, dict[str, Any]] = {"source": {"tables": ["public.*"]}}
    daemon = capture.running(sections)

    capture.sql(
        "insert into parent values (1)",
        "insert into child values (1, 1)",
        "insert into parts values (1), (11)",
        "truncate parent cascade",
        "truncate parts",
        "insert into parts values (2)",
    )
    log = capture.settled(daemon)

    assert log.fold(capture.topic("parent")) == log.fold(capture.topic("child")) == {}
    assert [row["id"] for row in log.fold(capture.topic("parts")).values()] == [2]


def test_truncate_of_a_table_without_a_key_leaves_its_topic(capture: CaptureSite) -> None:
    capture.sql("create table t (id int)")
    daemon = capture.running({"source": {"keyless": ["public.t"]}})

    capture.sql("insert into t values (1)", "truncate t", "insert into t values (2)")
    log = capture.settled(daemon)

    assert [event.after["id"] for event in log.events] == [1, 2]


def test_truncate_stops_capture_before_it_when_asked(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running({"source": {"on_truncate": "stop"}})

    capture.sql("insert into t values (1)", "truncate t", "insert into t values (2)")
    stop = daemon.stopped_with()

    assert (stop["state"], stop["exit_code"]) == ("MISCONFIGURED", 3)
    assert "public.t" in stop["message"]
    assert "on_truncate" in stop["command"]
    assert [event.after["id"] for event in capture.log().events] == [1]


def test_truncate_is_passed_over_when_asked_and_counts_as_an_ordinal(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running({"source": {"on_truncate": "ignore"}})

    capture.transaction("insert into t values (1)", "truncate t", "insert into t values (2)")
    log = capture.settled(daemon)

    assert [(event.after["id"], event.source["ordinal"]) for event in log.events] == [(1, 1), (2, 3)]


def test_many_keys_are_removed_once_each_over_kills_and_within_bounded_memory(capture: CaptureSite) -> None:
    small = {"capture": {"batch_rows_max": 2000}, "kafka": {"partitions": 4}}
    capture.sql("create table t (id int primary key)")
    daemon = capture.running(small)
    capture.sql(f"insert into t select n from generate_series(1, {KEYS}) n")
    daemon.until_position(capture.wal(), LONG_S)

    lsn = capture.transaction("truncate t", "insert into t values (7)")
    until(
        lambda: daemon.status().get("next_ordinal") or daemon.events("truncated"),
        "the first keys are removed",
        within_s=LONG_S,
    )
    peaks_bytes = [daemon.rss_peak_bytes()]
    daemon.kill()
    daemon = capture.running(small)
    until(lambda: daemon.status().get("rows", 0) > KEYS // 5, "more keys are removed", within_s=LONG_S)
    peaks_bytes.append(daemon.rss_peak_bytes())
    daemon.kill()
    daemon = capture.running(small)
    daemon.until_position(lsn, LONG_S)
    log = capture.log()

    topic = capture.topic("t")
    gone = [record.key for record in log.topic(topic) if record.op == "d"]
    assert len(gone) == len(set(gone)) == KEYS
    assert [row["id"] for row in log.fold(topic).values()] == [7]
    assert log.faults() == []
    assert len([cut for cut in log.cuts if cut["next_ordinal"] == 1]) > 3, "it was not spread; the test is weak"
    assert max(peaks_bytes) < RSS_BYTES


def test_four_workers_with_a_partition_each_end_with_the_table(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v int)")
    daemon = capture.running({"kafka": {"partitions": 4}, "capture": {"batch_rows_max": 50}})
    topic = capture.topic("t")

    with ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(capture.bootstrap, topic, f"{topic}.workers", pause_s))
            for pause_s in (0.0, 0.0005, 0.001, 0.002)
        ]
        until(lambda: [worker.assigned for worker in workers] == [1] * 4, "each has a partition", within_s=60)
        capture.sql("insert into t select n, 0 from generate_series(1, 200) n")
        capture.sql("update t set id = id + 1000 where id % 2 = 0", "truncate t")
        capture.transaction(
            "insert into t select n, 1 from generate_series(100, 300) n",
            "truncate t",
            "insert into t select n, 2 from generate_series(250, 290) n",
        )
        daemon.until_position(capture.wal())
        rows = dict(capture.query("select id, v from t"))

        def folded() -> dict[int, int]:
            return {row["id"]: row["v"] for worker in workers for row in list(worker.rows.values())}

        until(lambda: folded() == rows, "the workers have the table", within_s=60)

    assert sum(len(worker.rows) for worker in workers) == len(rows) == 41
    assert [len(worker.partitions) for worker in workers] == [1] * 4
    assert all(worker.deleted > 30 for worker in workers)
    assert sum(worker.deleted for worker in workers) == 100 + 200 + 201


def _ordinals(log: TopicLog, topic: str) -> list[tuple[str, int, int]]:
    """(op, id, ordinal) of a topic's events in total order."""
    events: list[LogRecord] = sorted((e for e in log.events if e.topic == topic), key=_total_order)
    return [(e.op, (e.document["after"] or e.document["before"])["id"], e.source["ordinal"]) for e in events]


def _total_order(event: LogRecord) -> tuple[object, ...]:
    return (*event.position, (event.document["after"] or event.document["before"])["id"])
