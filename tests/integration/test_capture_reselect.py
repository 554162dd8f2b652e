"""Unchanged large values are read again: records are complete, and never have a value of another row or time."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from tests.fixtures.capture.snapshot_waits import INITIAL, complete
from tests.fixtures.servers import http_probe
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.http_probe import ask
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.capture.topic_log import LogRecord
    from tests.fixtures.servers.daemon import CaptureSite, Daemon
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack

# Long, and stored as it is: otherwise it would be compressed and stay in the row.
_TABLE: Final = (
    "create table t (id int primary key, n int, body text)",
    "alter table t alter column body set storage external",
)


def body(letter: str) -> str:
    return letter * 3000


def metric(daemon: Daemon, name: str) -> float:
    port = daemon.events("http_listening")[0]["port"]
    page = ask("127.0.0.1", port, "/metrics")[2].decode()
    return http_probe.metric(page, name)


def read_later(event: LogRecord) -> list[str]:
    assert "unchanged" not in event.source
    return list(event.source.get("reselected", []))


def test_records_are_complete_and_name_what_was_read_later(capture: CaptureSite) -> None:
    capture.sql(*_TABLE)
    daemon = capture.running()

    for statement in (
        "insert into t values (1, 1, repeat('a', 3000))",
        "update t set n = 2",
        "update t set id = 2",
        "update t set body = 'short'",
    ):
        daemon.until_position(capture.sql(statement))
    log = capture.log()

    created, updated, _, moved, shortened = log.events
    assert updated.after == {"id": 1, "n": 2, "body": body("a")}
    assert (moved.op, moved.after, read_later(moved)) == ("c", {"id": 2, "n": 2, "body": body("a")}, ["body"])
    assert (read_later(created), read_later(updated), read_later(shortened)) == ([], ["body"], [])
    assert log.faults() == []


def test_every_kind_of_value_and_key_is_that_of_the_table(capture: CaptureSite) -> None:
    """An update that leaves all of them alone shows them as the insert did."""
    large = "repeat('0123456789', 400)"
    columns = {
        "y": ("bytea", f"{large}::bytea"),
        "j": ("json", f"""('{{"a":  "' || {large} || '"}}')::json"""),
        "b": ("jsonb", f"""('{{"a":  "' || {large} || '"}}')::jsonb"""),
        "a": ("text[]", f"array[{large}, null, 'x']"),
        "c": ("bpchar(5000)", large),
        "n": ("numeric", f"('1.' || {large})::numeric"),
        "p": ("pair", f"(1, {large})::pair"),
    }
    capture.sql(
        "create type pair as (a int, b text)",
        'create table t (k bpchar(4), m timestamptz, "100% s" int, primary key (m, k))',
        *[f"alter table t add {name} {kind}" for name, (kind, _) in columns.items()],
        *[f"alter table t alter column {name} set storage external" for name in columns],
    )
    daemon = capture.running()

    values = ", ".join(value for _, value in columns.values())
    capture.sql(f"insert into t values ('ab', '2020-01-02 03:04:05.6789+02', 1, {values})", 'update t set "100% s" = 2')
    created, updated = capture.settled(daemon).events

    assert updated.after == {**created.after, "100% s": 2}
    assert read_later(updated) == list(columns)


def test_what_happened_to_the_row_since_is_what_the_stream_says_next(capture: CaptureSite) -> None:
    """Capture was away: rows were changed, then deleted, moved, or another one took their key."""
    capture.sql(*_TABLE)
    capture.running().stop()
    capture.sql(
        "insert into t select g, 1, repeat(chr(96 + g), 3000) from generate_series(1, 5) g",
        "update t set n = 2",
        "delete from t where id = 1",
        "update t set id = 12, n = 3 where id = 2",
        "delete from t where id = 3",
        "update t set id = 3, n = 3 where id = 4",
        "update t set body = 'late' where id = 5",
    )

    log = capture.settled(capture.running())

    changed = {event.after["id"]: event for event in log.events if event.op == "u" and event.after["n"] == 2}
    for key in (1, 2, 4):
        assert changed[key].source["unchanged"] == ["body"], "there is no such row any more"
        assert "body" not in changed[key].after
    assert changed[3].after["body"] == body("d"), "of the row that has the key now; a delete of the key comes first"
    assert {key: row["body"] for key, row in folded(log.fold(capture.topic("t"))).items()} == {
        12: body("b"),
        3: body("d"),
        5: "late",
    }
    assert log.faults() == []


def test_a_batch_asks_once_for_each_table(capture: CaptureSite) -> None:
    capture.sql(*_TABLE, "create table u (like t including all)")
    daemon = capture.running({"capture": {"batch_age_max_s": 30}})  # a busy machine takes seconds for a transaction

    capture.transaction(
        *[f"insert into {table} select g, 1, repeat('x', 3000) from generate_series(1, 50) g" for table in "tu"],
        *[f"update {table} set n = n + 1" for table in "tutu"],
    )
    log = capture.settled(daemon)

    assert metric(daemon, "cdc_reselect_queries_total") == 2
    assert metric(daemon, "cdc_reselected_rows_total") == 200
    assert metric(daemon, "cdc_reselect_gone_rows_total") == 0
    assert all(event.after["body"] == body("x") for event in log.events)


def test_large_transaction_is_spread_where_values_must_be_read_again(capture: CaptureSite) -> None:
    """A slice of it is in an open Kafka transaction by then, and none may be open while the table is read."""
    capture.sql(*_TABLE, "insert into t values (0, 1, repeat('x', 3000))")
    daemon = capture.running()

    capture.transaction(
        "insert into t select g, 1, 's' from generate_series(1, 9000) g",
        "update t set n = 2 where id = 0",
        "insert into t select g, 1, 's' from generate_series(9001, 9100) g",
    )
    log = capture.settled(daemon)

    assert log.faults() == []
    assert [event.source["ordinal"] for event in log.events] == list(range(1, 9102))
    assert folded(log.fold(capture.topic("t")))[0]["body"] == body("x")
    assert any(cut["next_ordinal"] for cut in log.cuts), "it was never handed over in slices; the test is weaker"
    assert log.cuts[-1]["next_ordinal"] == 0


def test_right_that_is_missing_stops_capture_by_name_with_the_grant(capture: CaptureSite) -> None:
    role = f"{capture.name}_poor"
    capture.sql(*_TABLE, "insert into t values (1, 1, repeat('x', 3000))")
    capture.running().stop()
    capture.sql(f"create role {role} login replication", f"grant pg_monitor to {role}")
    try:
        poor = {"source": {"dsn": psycopg.conninfo.make_conninfo(capture.dsn, user=role)}}
        capture.sql("update t set n = 2")

        stopped = capture.daemon(poor).stopped_with()

        assert (stopped["state"], stopped["exit_code"], stopped["table"]) == ("MISCONFIGURED", 3, "public.t")
        assert f'grant select on "public"."t" to "{role}"' in stopped["command"]
        assert capture.log().events == []
    finally:
        capture.end()
        capture.sql(f"drop owned by {role}", f"drop role {role}")


@pytest.fixture
def lonely(make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[CaptureSite]:
    """A server whose synchronous standby does not exist: who commits with synchronous_commit = on hangs.

    Row 2 is deleted and row 1 moved in its place before a commit that hangs.
    """
    settings = {"synchronous_standby_names": "nobody", "synchronous_commit": "local"}
    source = make_stack("postgres", postgres=settings).postgres
    with capture_site(topic_prefix, source.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql(*_TABLE, "insert into t values (1, 1, repeat('a', 3000)), (2, 1, repeat('b', 3000))")
        yield site


_MOVED: Final = ("delete from t where id = 2", "update t set id = 2 where id = 1")


def test_stream_goes_on_under_a_commit_that_stays_invisible_and_its_row_follows(lonely: CaptureSite) -> None:
    """Killed in between: what is owed is in the log with the record that lacks it."""
    lonely.sql("create table other (id int primary key)")
    daemon = lonely.running(INITIAL)
    complete(lonely, daemon, "public.t", "public.other")
    with pending(lonely, *_MOVED):
        daemon.until_position(lonely.sql("insert into other values (1)"))
        assert daemon.events("reselect_waiting") == []
        assert metric(daemon, "cdc_reselect_owed_rows_total") == 1
        assert told(lonely)["public.t"] == "snapshotting"

        daemon.kill()
        daemon = lonely.running(INITIAL)
        until(lambda: waits_for(daemon), "what is owed waits for the transaction")
        assert lonely.log().topic(lonely.topic("t"))[-1].source["unchanged"] == ["body"]
        lonely.sql("alter system set synchronous_standby_names = ''", "select pg_reload_conf()")
    log = complete(lonely, daemon, "public.t")

    of_table = [event for event in log.events if event.topic == lonely.topic("t") and event.source["commit_lsn"]]
    assert [(event.op, event.key) for event in of_table[2:]] == [
        ("d", b'{"id":2}'),
        ("d", b'{"id":1}'),
        ("c", b'{"id":2}'),
        ("r", b'{"id":2}'),
    ]
    assert folded(log.fold(lonely.topic("t"))) == {2: {"id": 2, "n": 1, "body": body("a")}}
    assert told(lonely)["public.t"] == "complete"
    assert log.faults() == []


def told(site: CaptureSite) -> dict[str, str]:
    """What the cuts say of each table."""
    found: dict[str, str] = {}
    for cut in site.log().cuts:
        found |= cut["tables"]
    return found


def waits_for(daemon: Daemon) -> list[str]:
    return [reason for table in daemon.status().get("snapshots", ()) for reason in table["waits_for"]]


def test_commit_that_is_not_visible_yet_is_waited_for_where_no_rows_are_read(lonely: CaptureSite) -> None:
    daemon = lonely.running()
    with pending(lonely, *_MOVED):
        waiting = daemon.until_state("WAITING")
        assert waiting["reason"] == "reselect"
        assert "not yet visible" in waiting["error"]["message"]
        assert "synchronous_standby_names" in waiting["error"]["hint"]
        assert len(daemon.events("reselect_waiting")) == 1
        assert lonely.log().events == []
        assert daemon.stop() == 0
        assert lonely.log().events == []

        daemon = lonely.daemon()
        daemon.until_state("WAITING")
        lonely.sql("alter system set synchronous_standby_names = ''", "select pg_reload_conf()")
        log = lonely.settled(daemon)

    daemon.until_running()
    until(lambda: daemon.events("reselect_resumed"), "its end is logged")
    assert len(daemon.events("reselect_resumed")) == 1
    assert metric(daemon, "cdc_reselect_waits_total") == 1
    assert [(event.op, event.key) for event in log.events] == [
        ("d", b'{"id":2}'),
        ("d", b'{"id":1}'),
        ("c", b'{"id":2}'),
    ]
    assert log.events[-1].after["body"] == body("a")
    assert log.faults() == []


def test_capture_without_the_visibility_check_is_seen_to_be_wrong(lonely: CaptureSite) -> None:
    """The row that has the key is still the one that this very transaction deletes."""
    daemon = lonely.running(mutant="see_everything")

    with pending(lonely, *_MOVED):
        until(lambda: lonely.log().events, "it publishes what it cannot know")
        lonely.sql("alter system set synchronous_standby_names = ''", "select pg_reload_conf()")

    assert lonely.settled(daemon).events[-1].after["body"] == body("b")


@contextmanager
def pending(site: CaptureSite, *statements: str) -> Iterator[None]:
    """Statements of one transaction whose commit hangs, at the latest until the end of the block."""

    def commit() -> None:
        with psycopg.connect(site.dsn) as session:
            session.execute("set synchronous_commit = on")
            for statement in statements:
                session.execute(statement.encode())

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        hangs = "select from pg_stat_activity where wait_event = 'SyncRep'"
        until(lambda: site.query(hangs), "the commit hangs")
        yield
    finally:
        site.query("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")
        thread.join()


def folded(rows: dict[bytes, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {json.loads(key)["id"]: row for key, row in rows.items()}
