"""Snapshots on a real server: rows from before capture are in the log, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from tests.fixtures.capture.snapshot_waits import INITIAL, RACED, SMALL_CHUNKS, complete, differences, racing
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import holds_for, until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite


def test_rows_from_before_capture_are_in_the_log(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id int primary key, v text, b bool)",
        "insert into t select n, 'row ' || n || e'\\t\\\\', n % 2 = 0 from generate_series(1, 3000) n",
        "update t set v = null where id % 7 = 0",
        "create table empty (id int primary key)",
    )

    daemon = capture.running(INITIAL)
    log = complete(capture, daemon, "public.t", "public.empty")

    assert not differences(capture, log, "t").any
    assert {record.op for record in log.topic(capture.topic("t"))} == {"r"}
    assert {record.source["snapshot"] for record in log.topic(capture.topic("t"))} == {"incremental"}
    told = [cut["tables"]["public.t"] for cut in log.cuts if "public.t" in cut["tables"]]
    assert (told[0], told[-1]) == ("snapshotting", "complete")


def test_row_filter_columns_and_generated_columns_are_those_of_the_stream(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id int primary key, v text, hidden text, twice int generated always as (id * 2) stored)",
        "insert into t select n, 'row', 'secret' from generate_series(1, 100) n",
        f"create publication {capture.slot} for table only t (id, v) where (id > 50)",
    )

    daemon = capture.running({**INITIAL, "source": {"create": True}})
    complete(capture, daemon, "public.t")
    capture.sql("insert into t values (101, 'new', 'secret')", "update t set v = 'later' where id = 60")
    log = capture.settled(daemon)

    fold = log.fold(capture.topic("t"))
    assert fold == {b'{"id":%d}' % n: {"id": n, "v": {60: "later", 101: "new"}.get(n, "row")} for n in range(51, 102)}
    assert len({event.source["schema_id"] for event in log.events}) == 1


def test_partitions_and_children_are_read_as_the_stream_has_them(capture: CaptureSite) -> None:
    capture.sql(
        "create table p (id int primary key, v text) partition by range (id)",
        "create table p1 partition of p for values from (0) to (100)",
        "create table p2 (v text, id int not null)",
        "alter table p attach partition p2 for values from (100) to (200)",
        "insert into p select n, 'row ' || n from generate_series(1, 150) n",
        "create table parent (id int primary key, v text)",
        "create table child (extra int, primary key (id)) inherits (parent)",
        "insert into parent values (1, 'parent')",
        "insert into child values (2, 'child', 3)",
    )

    daemon = capture.running(INITIAL)
    log = complete(capture, daemon, "public.p", "public.parent", "public.child")

    assert log.data_topics == [capture.topic(name) for name in ("child", "p", "parent")]
    assert not differences(capture, log, "p").any
    assert log.fold(capture.topic("parent")) == {b'{"id":1}': {"id": 1, "v": "parent"}}
    assert log.fold(capture.topic("child")) == {b'{"id":2}': {"id": 2, "v": "child", "extra": 3}}


def test_table_that_may_not_be_read_whole_is_named_with_the_statement_and_not_read(capture: CaptureSite) -> None:
    role = f"{capture.name}_poor"
    capture.sql("create table t (id int primary key)", "insert into t values (1)")
    capture.running({"snapshot": {"mode": "never"}}).stop()
    capture.sql(
        f"create role {role} login replication",
        f"grant pg_monitor to {role}",
        f"grant select on t to {role}",
        "alter table t enable row level security",
    )
    try:
        dsn = psycopg.conninfo.make_conninfo(capture.dsn, user=role)
        daemon = capture.running({**INITIAL, "source": {"dsn": dsn}})
        until(lambda: daemon.status()["left_out"], "it is named")
        (found,) = daemon.status()["left_out"]

        assert (found["table"], found["reason"]) == ("public.t", "not_readable")
        assert found["statement"] == f'alter role "{role}" bypassrls;'
        assert capture.log().events == []
    finally:
        capture.end()
        capture.sql(f"drop owned by {role}", f"drop role {role}")


def test_transaction_that_was_open_before_is_waited_for(capture: CaptureSite) -> None:
    """It may commit in the stream or before it; its rows must be neither lost nor stale."""
    capture.sql("create table t (id int primary key, v text)", "insert into t values (1, 'old'), (2, 'old')")
    capture.running({"snapshot": {"mode": "never"}}).stop()
    with psycopg.connect(capture.dsn) as open_one:
        open_one.execute("update t set v = 'new' where id = 1")
        daemon = capture.running(INITIAL)
        until(lambda: daemon.events("snapshot_begun"), "it begins")
        assert daemon.events("snapshot_begun")[0]["transactions_waited_for"] >= 1
        holds_for(lambda: not daemon.events("snapshot_complete"), "it waits", seconds=1.0)
        open_one.commit()
    log = complete(capture, daemon, "public.t")

    assert not differences(capture, log, "t").any
    assert [record.op for record in log.topic(capture.topic("t")) if record.key == b'{"id":1}'] == ["u", "r"]


def test_large_values_left_out_of_the_stream_are_read_in_the_end(capture: CaptureSite) -> None:
    """With `omit` the log lacks them in an update; a row that was updated meanwhile must be whole all the same."""
    capture.sql(*RACED, "alter table t alter pad set storage external", "update t set pad = repeat('z', 5000)")
    with racing(capture.dsn, seed(), writers=4, values_only=True):
        daemon = capture.running({**SMALL_CHUNKS, "toast": {"mode": "omit"}}, mutant="slow_chunks:5")
        until(lambda: bool(daemon.events("snapshot_complete")), "it ends", within_s=120)
    log = capture.settled(daemon)

    whole: dict[bytes, set[str]] = {}
    for record in log.topic(capture.topic("t")):
        assert record.key is not None
        if record.value is not None:
            columns = whole.setdefault(record.key, set())
            columns.update(record.document["after"] or {})
    assert set(map(frozenset, whole.values())) == {frozenset({"id", "n", "pad"})}
    assert any("unchanged" in event.source for event in log.events)
