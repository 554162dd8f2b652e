"""Tables without a key: existing rows are copied once, and every row is in the topic once."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg

from tests.fixtures.capture.signal_records import answered, signal, snapshot_record
from tests.fixtures.capture.snapshot_waits import complete
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.waiting import holds_for, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.capture.topic_log import TopicLog
    from tests.fixtures.servers.daemon import CaptureSite, Sections

COPIED: Final[Sections] = {"snapshot": {"mode": "initial"}, "source": {"keyless": ["public.*"]}}
ROWS: Final = 6000
FILLED: Final = (
    "create table t (n int, v text)",
    "alter table t replica identity full",
    f"insert into t select n, 'row ' || n || e'\\t\\\\' from generate_series(1, {ROWS}) n",
)


def rows_of(log: TopicLog, topic: str) -> Counter[tuple[Any, ...]]:
    """The table as the topic tells it: what it adds and takes away."""
    found: Counter[tuple[Any, ...]] = Counter()
    for record in log.topic(topic):
        before, after = record.document["before"], record.document["after"]
        found.update([tuple(after.values())] if after else [])
        found.subtract([tuple(before.values())] if before else [])
    return +found


def same(capture: CaptureSite, log: TopicLog) -> bool:
    """Whether the topic of `t` has exactly its rows."""
    return rows_of(log, capture.topic("t")) == Counter(capture.query("select * from t"))


@contextmanager
def writing(dsn: str, writers: int = 4, commit: str = "local") -> Iterator[None]:
    """Sessions that insert, update and delete rows of `t`, which nothing tells apart."""
    with beside(*(partial(_write, dsn, number, commit) for number in range(writers))):
        yield


def _write(dsn: str, number: int, commit: str, stop: threading.Event) -> None:
    with psycopg.connect(dsn) as session:
        session.execute(f"set synchronous_commit = {commit}".encode())
        for count in range(1 << 30):
            if stop.is_set():
                return
            session.execute("insert into t values (%s, %s), (0, 'same')", (-1 - number, f"new {number}.{count}"))
            session.execute("update t set v = v || '+' where n = %s", (1 + (7 * count + number) % ROWS,))
            if count % 5 == 0:
                session.execute("delete from t where n = %s", (1 + (11 * count + number) % ROWS,))
            session.rollback() if count % 9 == 0 else session.commit()
            stop.wait(0.003)


def test_every_row_of_a_table_without_a_key_is_in_the_topic_once(capture: CaptureSite) -> None:
    capture.sql(*FILLED, "create table empty (n int)", "create table keyed (id int primary key)")
    with writing(capture.dsn):
        daemon = capture.running(COPIED)
        before = capture.wal()
        daemon.until_position(before)
    log = capture.settled(daemon)

    assert same(capture, log)
    records = log.topic(capture.topic("t"))
    copies = [record for record in records if record.op == "r"]
    assert len(copies) >= ROWS
    assert {record.op for record in records} == {"r", "c", "u", "d"}, "some came as copies, some as events"
    assert {record.key for record in records} == {None}
    assert log.faults() == []
    assert len({record.partition for record in copies}) == 2
    told = [cut["tables"]["public.t"] for cut in log.cuts if "public.t" in cut["tables"]]
    assert (told[0], told[-1]) == ("snapshotting", "complete")
    record = snapshot_record(log, "public.t")
    assert (record["state"], record["row_count"]) == ("complete", len(copies))


def test_copy_is_shown_while_it_is_made_and_cannot_be_made_again(capture: CaptureSite) -> None:
    capture.sql(*FILLED)

    daemon = capture.daemon(COPIED, mutant="slow_copy:400")
    found = until(lambda: [one for one in daemon.status().get("snapshots", []) if one["rows"]], "a part is copied")
    assert [(one["table"], one["state"]) for one in found] == [("public.t", "reading")]
    assert capture.log().topic(capture.topic("t")) == [], "nobody sees a part of it"
    daemon.until_running()
    answer = answered(
        capture, signal(capture, {"type": "execute-snapshot", "data": {"data-collections": ["public.t"]}})
    )

    assert "it has no key" in answer["refused"]["public.t"]
    log = capture.settled(daemon)
    assert [record.op for record in log.topic(capture.topic("t"))] == ["r"] * ROWS


def test_copy_that_takes_too_long_stops_capture_and_leaves_nothing(capture: CaptureSite) -> None:
    capture.sql(*FILLED)

    slow = {**COPIED, "snapshot": {"mode": "initial", "copy_max_s": 1}}
    stopped = capture.daemon(slow, mutant="slow_copy:700").stopped_with()

    assert (stopped["state"], stopped["exit_code"], stopped["table"]) == ("MISCONFIGURED", 3, "public.t")
    assert stopped["command"] == "[snapshot] copy_max_s = 4"
    log = capture.settled(capture.running(COPIED))
    assert same(capture, log)
    assert len(log.topic(capture.topic("t"))) == ROWS


def test_tables_whose_rows_are_not_wanted_have_their_changes_alone(capture: CaptureSite) -> None:
    capture.sql(*FILLED, "create table keyed (id int primary key)", "insert into keyed values (1)")
    capture.sql("create table read (id int primary key)", "insert into read values (1)")
    never = {"mode": "initial", "tables": {"public.t": "never", "public.keyed": "never"}}

    daemon = capture.running({**COPIED, "snapshot": never})
    capture.sql("insert into t select * from t limit 1", "insert into keyed values (2)")
    log = complete(capture, daemon, "public.read")

    ops = [[record.op for record in log.topic(capture.topic(table))] for table in ("t", "keyed", "read")]
    assert ops == [["c"], ["c"], ["r"]]
    assert log.cuts[-1]["tables"].get("public.t", "complete") == "complete"


def test_table_without_a_key_that_joins_later_is_copied_without_an_open_finding(capture: CaptureSite) -> None:
    capture.sql("create table first (n int)", "insert into first values (1), (1)")
    assert capture.running(COPIED).stop() == 0
    capture.sql(*FILLED)

    with writing(capture.dsn):
        daemon = capture.running(COPIED)
        until(lambda: daemon.events("ddl_accepted"), "what was found is settled")
    log = capture.settled(daemon)

    assert same(capture, log)
    assert [record.op for record in log.topic(capture.topic("first"))] == ["r", "r"], "it is not copied again"
    assert daemon.status()["ddl"] == []


def test_table_whose_topic_has_events_is_not_copied_and_that_is_said(capture: CaptureSite) -> None:
    capture.sql("create table t (n int, v text)", "insert into t values (1, 'before')")
    never: Sections = {"source": {"keyless": ["public.*"]}}
    daemon = capture.running(never)
    capture.sql("insert into t values (2, 'event')")
    capture.settled(daemon)
    assert daemon.stop() == 0

    daemon = capture.running(COPIED)
    capture.sql("insert into t values (3, 'event')")
    log = capture.settled(daemon)

    assert [warning["table"] for warning in daemon.events("keyless_not_copied")] == ["public.t"]
    assert [event.after["n"] for event in log.events] == [2, 3]


def test_partitions_row_filter_and_columns_are_copied_as_the_stream_has_them(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (n int, v text) partition by range (n)",
        "create table t1 partition of t for values from (0) to (10)",
        "create table t2 (hidden int, v text, n int)",
        "alter table t add hidden int",
        "alter table t attach partition t2 for values from (10) to (20)",
        "insert into t values (1, 'no', 0), (5, 'yes', 0), (15, 'yes', 0)",
        f"create publication {capture.slot} for table t (n, v) where (n > 2) with (publish_via_partition_root)",
    )
    daemon = capture.running({**COPIED, "encode": {"format": "flat"}})
    capture.sql("insert into t values (6, 'event', 0)", "insert into t values (2, 'no', 0)")
    log = capture.settled(daemon)

    rows = [(record.headers["__op"], record.document["n"], set(record.document)) for record in log.data]
    assert sorted(rows, key=lambda row: row[1]) == [
        (b"r", 5, {"n", "v"}),
        (b"c", 6, {"n", "v"}),
        (b"r", 15, {"n", "v"}),
    ]


def test_memory_does_not_depend_on_how_much_is_copied(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (n int, v text)",
        "insert into t select n, repeat(md5(n::text), 256) from generate_series(1, 40000) n",
    )

    daemon = capture.running(COPIED)

    assert daemon.rss_peak_bytes() < 160 << 20, "the table has 320 MB"
    assert len(capture.settled(daemon).topic(capture.topic("t"))) == 40_000


def test_transaction_that_was_open_before_is_waited_for_and_named(capture: CaptureSite) -> None:
    capture.sql("create table other (id int primary key)")
    capture.running({"snapshot": {"mode": "never"}}).stop()
    capture.sql(*FILLED)
    with psycopg.connect(capture.dsn) as open_one:
        open_one.execute("insert into t values (0, 'open before')")
        hasty = {**COPIED, "source": {**COPIED["source"], "slot_create_timeout_s": 1}}
        daemon = capture.daemon(hasty)
        waiting = until(lambda: daemon.events("capture_waiting"), "it is named")[0]
        assert f"pid {open_one.info.backend_pid}" in waiting["message"]
        holds_for(lambda: not daemon.events("keyless_copying"), "it waits", seconds=0.5)
        open_one.commit()
    daemon.until_running()
    log = capture.settled(daemon)

    assert same(capture, log)
    assert len(log.topic(capture.topic("t"))) == ROWS + 1
