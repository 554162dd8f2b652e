"""Heartbeats: readers see that capture runs, and the slot advances while captured tables are idle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.fixtures.servers import http_probe
from tests.fixtures.servers.http_probe import ask
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

_INTERVAL: Final = {"catalog_check_s": 0.2, "heartbeat_interval_s": 1}
_MESSAGE: Final = "select pg_logical_emit_message(true, 'heartbeat', '')"


def beating(**capture_settings: object) -> Sections:
    return {"capture": {**_INTERVAL, **capture_settings}}


def beats(capture: CaptureSite) -> list[dict[str, Any]]:
    return [record.document for record in capture.log().topic(f"{capture.name}.heartbeat")]


def metric(daemon: Daemon, name: str) -> float:
    page = ask("127.0.0.1", daemon.events("http_listening")[0]["port"], "/metrics")[2].decode()
    return http_probe.metric(page, name)


def test_idle_capture_says_again_and_again_how_far_it_is(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running(beating())
    capture.sql("insert into t values (1)")
    end = capture.wal()
    daemon.until_position(end)
    count = len(beats(capture))

    until(lambda: len(beats(capture)) >= count + 3, "three more, with nothing to capture")
    log = capture.log()

    records = log.topic(f"{capture.name}.heartbeat")
    assert {record.key for record in records} == {
        json.dumps({"serverName": capture.name}, separators=(",", ":")).encode()
    }
    found = [record.document for record in records]
    assert found[-1]["end_lsn"] >= int(end)
    assert [one["ts_ms"] for one in found] == sorted(one["ts_ms"] for one in found)
    reached = {(one["end_lsn"], one["commit_lsn"], one["next_ordinal"]) for one in log.progress}
    assert {(one["end_lsn"], one["commit_lsn"], one["next_ordinal"]) for one in found} <= reached
    assert len(log.events) == 1
    counted = [
        cut["changed"][f"{log.name}.heartbeat-0"][1] for cut in log.cuts if f"{log.name}.heartbeat-0" in cut["changed"]
    ]
    assert counted[-1] == len(found), "cuts count them as they count everything"


def test_heartbeats_go_on_after_a_kill_and_never_go_back(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running(beating())
    until(lambda: len(beats(capture)) >= 2, "two")
    capture.sql("insert into t select generate_series(1, 500)")
    daemon.kill()

    count = len(beats(capture))
    capture.running(beating())
    until(lambda: len(beats(capture)) >= count + 2, "two more")

    found = [(one["end_lsn"], one["commit_lsn"]) for one in beats(capture)]
    assert found == sorted(found)
    assert capture.log().faults() == []


def test_without_the_setting_there_is_no_topic(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()
    log = capture.settled(daemon)

    assert f"{capture.name}.heartbeat" not in {topic for topic, _ in log.records}


def test_statement_moves_the_slot_of_an_idle_database_and_shows_the_lag(capture: CaptureSite) -> None:
    """No table is needed, and no right but to connect."""
    capture.sql("create table t (id int primary key)")
    daemon = capture.running(beating(heartbeat_query=_MESSAGE))

    for _ in range(3):
        slot_moves_on(capture)
    until(lambda: metric(daemon, "cdc_heartbeat_seconds_count") >= 3, "three are back")

    assert metric(daemon, "cdc_heartbeat_failures_total") == 0
    assert metric(daemon, "cdc_heartbeat_seconds_sum") > 0
    assert capture.log().events == []


def test_statement_may_write_to_a_table_that_is_captured(capture: CaptureSite) -> None:
    capture.sql("create table beat (id int primary key, n bigint)", "insert into beat values (1, 0)")
    query = "update public.beat set n = n + 1 where id = 1"
    capture.running(beating(heartbeat_query=query))

    until(lambda: len(capture.log().events) >= 3, "three updates")
    events = capture.log().events

    assert [event.after["n"] for event in events] == list(
        range(events[0].after["n"], events[0].after["n"] + len(events))
    )


def test_statement_that_cannot_be_run_stops_the_start_by_name(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")

    stop = capture.daemon(beating(heartbeat_query="update beat set n = 1")).stopped_with()

    assert (stop["state"], stop["exit_code"]) == ("MISCONFIGURED", 3)
    assert "capture.heartbeat_query" in stop["message"]
    assert "qualify" in stop["hint"]


def test_statement_that_waits_for_a_lock_does_not_keep_capture_from_running(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", "create table beat (n int)", "insert into beat values (1)")
    settings = {**beating(heartbeat_query="update public.beat set n = n + 1"), "source": {"tables": ["public.t"]}}

    capture.running(settings).stop()  # a slot is not made while such a transaction is open

    with capture.connect() as locker:
        locker.execute("begin; lock table beat")
        daemon = capture.running(settings)
        capture.sql("insert into t values (1)")
        log = capture.settled(daemon)
        until(lambda: metric(daemon, "cdc_heartbeat_failures_total") >= 1, "a failed heartbeat is counted")
    until(lambda: daemon.events("heartbeat_recovered"), "it runs again")

    assert [event.after["id"] for event in log.events] == [1]


def test_statement_that_fails_later_is_logged_once_and_capture_continues(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", "create table beat (n int)")
    daemon = capture.running(
        {**beating(heartbeat_query="insert into public.beat values (1)"), "source": {"tables": ["public.t"]}}
    )

    capture.sql("alter table beat rename to gone")
    until(lambda: metric(daemon, "cdc_heartbeat_failures_total") >= 2, "it has failed twice")
    capture.sql("insert into t values (1)")
    log = capture.settled(daemon)
    capture.sql("alter table gone rename to beat")
    until(lambda: daemon.events("heartbeat_recovered"), "it runs again")

    assert len(daemon.events("heartbeat_failed")) == 1
    assert [event.after["id"] for event in log.events] == [1]
    assert daemon.state() in {"RUNNING", "CATCHING_UP"}


def slot_moves_on(capture: CaptureSite) -> None:
    before = capture.confirmed()
    until(lambda: capture.confirmed() > before, "the slot has moved on by itself")
