"""Signals on real servers: each takes effect once, also across crashes, and none stops capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.capture.signal_records import answered, answers, read_again, signal, snapshot_record, until_record
from tests.fixtures.capture.snapshot_waits import INITIAL, SMALL_CHUNKS, complete, differences
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Daemon

ROWS = 400
TABLE = (
    "create table t (id int primary key, status text, at timestamptz, pad text not null default repeat('x', 700))",
    (
        "insert into t select n, case when n % 4 = 0 then 'open' else 'it''s \\ done' end, "
        f"'2026-01-01 00:00+00'::timestamptz + n * interval '1 day' from generate_series(1, {ROWS}) n"
    ),
)
START: dict[str, Any] = {"command": "start", "tables": ["public.t"]}


def _complete(capture: CaptureSite, sections: Any = INITIAL) -> Daemon:
    """A running capture of the table, whose first snapshot is complete."""
    capture.sql(*TABLE)
    daemon = capture.running(sections)
    complete(capture, daemon, "public.t")
    return daemon


def test_table_is_read_again_once_and_stays_complete_meanwhile(capture: CaptureSite) -> None:
    daemon = _complete(capture)

    offset = signal(capture, {**START, "id": "a"})
    log = until_record(capture, "public.t", number=2, state="complete")

    assert answers(log)[offset] == {"offset": offset, "id": "a", "action": "start", "done": ["public.t"], "refused": {}}
    assert len(read_again(log, capture.topic("t"))) == 2 * ROWS
    assert not differences(capture, log, "t").any
    told = [cut["tables"]["public.t"] for cut in log.cuts if "public.t" in cut["tables"]]
    assert told[told.index("complete") :] == ["complete"] * (len(told) - told.index("complete"))
    assert daemon.alive


def test_table_that_joined_after_the_start_is_read_when_a_signal_names_it(capture: CaptureSite) -> None:
    capture.sql(*TABLE, "create publication by_hand for table t")
    source = {"tables": ["public.*"], "publication": "by_hand"}
    capture.running({"source": source}).stop()
    capture.running({"source": {**source, "create": False}})  # else capture would publish and read it

    capture.sql("create table late (id int primary key)", "insert into late select generate_series(1, 9)")
    unpublished = signal(capture, {**START, "tables": ["public.late"]})
    answered(capture, unpublished)
    capture.sql("alter publication by_hand add table late", "insert into late values (10)")
    offset = signal(capture, {**START, "tables": ["public.late"]})
    log = until_record(capture, "public.late", number=1, state="complete")

    assert answers(log)[unpublished]["refused"] == {"public.late": "it is not published"}
    assert answers(log)[offset]["done"] == ["public.late"]
    assert {row["id"] for row in read_again(log, capture.topic("late"))} >= set(range(1, 10))
    assert not differences(capture, log, "late").any


@pytest.mark.parametrize(
    "where",
    [
        "id >= 100 and status = 'open'",
        "id in (1, 2, 3) or id between 390 and 395 and not status = 'open'",
        "status <> 'open' and status = 'it''s \\ done' and id < 9",
        "at > '2026-06-01 00:00+00' and \"pad\" is not null",
        "pad is null",
    ],
)
def test_condition_chooses_the_rows_that_the_same_words_choose_in_sql(capture: CaptureSite, where: str) -> None:
    _complete(capture)
    wanted = [row for (row,) in capture.query(f"select id from t where {where} order by id")]

    offset = signal(capture, {**START, "where": where})
    log = until_record(capture, "public.t", number=2, state="complete")

    assert answers(log)[offset]["done"] == ["public.t"]
    read = [row["id"] for row in read_again(log, capture.topic("t"))]
    assert sorted(read) == sorted([*range(1, ROWS + 1), *wanted])
    assert snapshot_record(log, "public.t")["row_count"] == len(wanted)
    assert not differences(capture, log, "t").any


def test_rows_of_keys_are_read_again_whatever_the_type_of_the_key(capture: CaptureSite) -> None:
    capture.sql(
        "create table k (name text, id int8, at date, n numeric, primary key (id, name, at, n))",
        "insert into k select 'ü\"' || n, n, '2026-01-01', n + 0.50 from generate_series(1, 50) n",
    )
    daemon = capture.running(INITIAL)
    complete(capture, daemon, "public.k")
    keys = [{"at": "2026-01-01", "n": f"{n}.50", "name": f'ü"{n}', "id": n} for n in (7, 9, 51)]

    offset = signal(capture, {"command": "start", "tables": ["public.k"], "keys": [*keys, keys[0]]})
    log = until_record(capture, "public.k", number=2, state="complete")

    assert answers(log)[offset]["done"] == ["public.k"]
    read = [row["id"] for row in read_again(log, capture.topic("k"))]
    assert sorted(read) == sorted([*range(1, 51), 7, 9])


def test_debezium_starts_a_snapshot_with_a_filter(capture: CaptureSite) -> None:
    _complete(capture)

    data = {
        "type": "INCREMENTAL",
        "data-collections": [r"public\.[st]"],
        "additional-conditions": [{"data-collection": "public.t", "filter": "id<=10"}],
    }
    signal(capture, {"type": "execute-snapshot", "data": data})
    log = until_record(capture, "public.t", number=2, state="complete")

    assert len(read_again(log, capture.topic("t"))) == ROWS + 10


def test_paused_snapshot_reads_nothing_until_it_goes_on_and_misses_nothing(capture: CaptureSite) -> None:
    capture.sql(*TABLE)
    slow = {"snapshot": {**SMALL_CHUNKS["snapshot"], "rows_per_s_max": 10}}
    daemon = capture.running(slow)
    assert answered(capture, signal(capture, {"type": "pause-snapshot", "data": {}}))["done"] == ["public.t"]
    before = snapshot_record(until_record(capture, "public.t", hold="paused"), "public.t")

    capture.sql("update t set status = 'new' where id % 3 = 0", "delete from t where id % 5 = 0")
    daemon.kill()
    daemon = capture.running({"snapshot": SMALL_CHUNKS["snapshot"]})
    until(lambda: daemon.status().get("snapshots"), "it is shown")
    (shown,) = daemon.status()["snapshots"]

    assert (shown["state"], shown["waits_for"]) == ("paused", [])
    log = capture.settled(daemon)
    assert snapshot_record(log, "public.t")["state"] == "running"
    assert before["state"] == "running"
    assert answered(capture, signal(capture, {"command": "resume"}))["done"] == ["public.t"]
    log = complete(capture, daemon, "public.t")
    assert not differences(capture, log, "t").any


def test_stopped_first_snapshot_stays_stopped_until_it_is_started_again(capture: CaptureSite) -> None:
    capture.sql(*TABLE)
    capture.running({"snapshot": {**SMALL_CHUNKS["snapshot"], "rows_per_s_max": 1}})
    assert answered(capture, signal(capture, {"command": "stop", "tables": ["public.*"]}))["done"] == ["public.t"]
    capture.sql("update t set status = 'moved' where id % 7 = 0")
    capture.daemons[-1].kill()
    daemon = capture.running(SMALL_CHUNKS)
    log = capture.settled(daemon)

    assert snapshot_record(log, "public.t")["hold"] == "stopped"
    assert daemon.status()["snapshots"][0]["state"] == "stopped"
    assert [cut["tables"]["public.t"] for cut in log.cuts if cut["full"]][-1] == "snapshotting"
    refused = answered(capture, signal(capture, {**START, "where": "id = 1"}))["refused"]
    assert "first snapshot is complete" in refused["public.t"]

    signal(capture, START)
    log = complete(capture, daemon, "public.t")

    assert not differences(capture, log, "t").any
    assert [cut["tables"]["public.t"] for cut in log.cuts if "public.t" in cut["tables"]][-1] == "complete"


def test_stopped_second_snapshot_leaves_the_table_complete(capture: CaptureSite) -> None:
    _complete(capture).stop()
    daemon = capture.running({"snapshot": {**SMALL_CHUNKS["snapshot"], "rows_per_s_max": 1}})
    assert answered(capture, signal(capture, START))["done"] == ["public.t"]
    assert "already" in answered(capture, signal(capture, START))["refused"]["public.t"]

    assert answered(capture, signal(capture, {"command": "stop"}))["done"] == ["public.t"]
    log = capture.settled(daemon)

    assert snapshot_record(log, "public.t")["state"] == "complete"
    assert {cut["tables"]["public.t"] for cut in log.cuts if cut["full"]} >= {"complete"}
    assert not differences(capture, log, "t").any


def test_signal_sent_while_the_daemon_is_down_is_acted_on_at_its_next_start(capture: CaptureSite) -> None:
    _complete(capture).stop()

    offset = signal(capture, START)
    capture.running(INITIAL)
    log = until_record(capture, "public.t", number=2, state="complete")

    assert answers(log)[offset]["done"] == ["public.t"]


def test_signal_is_acted_on_once_over_kill_9(capture: CaptureSite) -> None:
    daemon = _complete(capture, SMALL_CHUNKS)
    offsets = []

    for _ in range(4):
        offsets.append(signal(capture, {**START, "where": "id <= 100"}))
        daemon.kill()
        daemon = capture.running(SMALL_CHUNKS)
        until_record(capture, "public.t", number=1 + len(offsets), state="complete")
    log = capture.settled(daemon)

    assert [answers(log)[offset]["done"] for offset in offsets] == [["public.t"]] * 4
    assert snapshot_record(log, "public.t")["number"] == 5
    assert not differences(capture, log, "t").any
    assert len(read_again(log, capture.topic("t"))) == ROWS + 4 * 100, "chunks that are done are not read again"


def test_signals_that_cannot_be_done_are_answered_and_capture_goes_on(capture: CaptureSite) -> None:
    capture.sql("create table bare (v int)", "create table j (id int primary key, doc json)")
    daemon = _complete(capture, {**INITIAL, "source": {"keyless": ["public.bare"]}})
    refused: list[tuple[Any, str, str]] = [
        (b"\xff{", "", "not JSON"),
        ({"command": "start", "tables": ["public.nobody"]}, "public.nobody", "no captured table"),
        ({"command": "start", "tables": ["public.bare"]}, "public.bare", "no key"),
        ({**START, "where": "id = "}, "public.t", "cannot be read"),
        ({**START, "where": "nothing = 1"}, "public.t", "no captured column"),
        ({**START, "where": "id = 'x'"}, "public.t", "does not fit"),
        ({"command": "start", "tables": ["public.j"], "where": "doc = '{}'"}, "public.j", "does not fit"),
        ({"command": "start", "tables": ["public.t", "public.j"], "keys": [{"id": 1}]}, "", "of one table"),
        ({**START, "keys": [{"nr": 1}]}, "public.t", "have the columns id"),
        ({"type": "schema-changes", "data": {}}, "", "unsupported signal type"),
        ({"command": "pause"}, "", "nothing to do"),
        ({"command": "resume", "tables": ["public.t"]}, "public.t", "it is complete"),
    ]
    offsets = [signal(capture, value) for value, _, _ in refused]
    foreign = signal(capture, {"command": "stop"}, key="somebody")
    last = signal(capture, {"type": "log", "data": {"message": "hello at {}"}})

    assert answered(capture, last)["action"] == "log"
    found = answers(capture.log())
    for offset, (_, where, why) in zip(offsets, refused, strict=True):
        assert why in found[offset]["refused"][where], found[offset]
    assert foreign not in found
    assert [event["message"] for event in daemon.events("signal_log")] == [f"hello at {last}"]
    capture.sql("insert into t values (100000)")
    assert not differences(capture, capture.settled(daemon), "t").any


def test_table_that_the_role_may_not_read_is_refused_and_capture_goes_on(capture: CaptureSite) -> None:
    role = f"reader_{capture.name}"
    capture.sql(
        f"create role {role} login replication",
        "create table t (id int primary key)",
        f"grant create on database {capture.query('select current_database()')[0][0]} to {role}",
        f"create publication cdc_{capture.name} for table t",
    )
    try:
        source = {"dsn": _as(capture.dsn, role), "create": False}
        sections: Any = {"source": source, "snapshot": {"mode": "never"}, "toast": {"mode": "omit"}}
        capture.query("select pg_create_logical_replication_slot(%s, 'pgoutput')", capture.slot)
        daemon = capture.running(sections)

        refused = answered(capture, signal(capture, START))["refused"]

        assert "may not read all rows" in refused["public.t"]
        capture.sql("insert into t values (1)")
        assert capture.settled(daemon).fold(capture.topic("t")) == {b'{"id":1}': {"id": 1}}
    finally:
        capture.end()
        capture.sql(f"drop owned by {role}", f"drop role {role}")


def _as(dsn: str, role: str) -> str:
    before, _, after = dsn.partition("://")
    return f"{before}://{role}@{after.rpartition('@')[2]}"


def test_column_of_a_condition_that_changes_its_type_ends_the_snapshot_and_not_capture(capture: CaptureSite) -> None:
    _complete(capture).stop()
    throttled = {"snapshot": {**SMALL_CHUNKS["snapshot"], "rows_per_s_max": 20}}
    daemon = capture.running({**throttled, "ddl": {"policy": "warn"}})
    assert answered(capture, signal(capture, {**START, "where": "status <> 'x'"}))["done"] == ["public.t"]

    capture.sql("alter table t alter status type int using 1")
    log = until_record(capture, "public.t", number=2, state="complete")

    until(lambda: daemon.events("snapshot_stopped"), "its end is logged")
    assert [event["table"] for event in daemon.events("snapshot_stopped")] == ["public.t"]
    capture.sql("insert into t (id, status) values (100000, 5)")
    log = capture.settled(daemon)
    assert log.fold(capture.topic("t"))[b'{"id":100000}']["status"] == 5
    assert daemon.alive


def test_ddl_under_a_snapshot_of_some_rows_has_the_whole_table_read(capture: CaptureSite) -> None:
    _complete(capture).stop()
    with capture.connect() as writer:
        daemon = capture.running({**SMALL_CHUNKS, "capture": {"catalog_check_s": 0.1}})
        capture.sql("create table other (id int primary key)")
        writer.execute("begin; insert into other values (1)")
        assert answered(capture, signal(capture, {**START, "where": "id < 10"}))["done"] == ["public.t"]
        until_record(capture, "public.t", number=2, state="running", begun=False)

        capture.sql("alter table t add d int default 7")
        until_record(capture, "public.t", number=3)
        writer.execute("commit")
        until_record(capture, "public.t", number=3, state="complete")

    assert not differences(capture, capture.settled(daemon), "t").any_but_stale


def test_status_names_who_a_snapshot_waits_for(capture: CaptureSite) -> None:
    capture.sql(*TABLE)
    capture.sql("create table other (id int primary key)")
    with capture.connect() as session, capture.connect() as writer:
        daemon = capture.running({"snapshot": {"mode": "never"}})
        session.execute("set application_name = 'nightly'")
        session.execute("begin; insert into other values (1)")

        signal(capture, START)
        shown = _until_shown(daemon, "nightly")
        writer.execute("insert into t values (5000)")
        session.execute("commit")
        log = complete(capture, daemon, "public.t")

    assert shown["state"] == "waiting"
    assert not differences(capture, log, "t").any


def _until_shown(daemon: Daemon, words: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = daemon.status().get("snapshots", [])
        return next((one for one in found if any(words in why for why in one["waits_for"])), None)

    shown = until(look, f"/status says {words}")
    assert shown is not None
    return shown
