"""If changes are no longer available, capture stops in state GAP and names the range; it never continues silently.

Faults A1, A4, A5 and A7 of docs/reference/faults.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from cdc.lsn import Lsn
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.running_servers import needs_major
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack

# Fault A7: within one poll interval, which is at most 10 s and 0.5 s here. The rest is for a busy machine: without the
# check, capture would not stop at all.
_NOTICED_S: Final = 90.0
_TABLES: Final = ("create table t (id int primary key, v text)", "create table other (id int primary key)")


def test_slot_dropped_while_stopped_is_a_gap_that_names_the_range(capture: CaptureSite) -> None:
    known_to = run_once(capture)
    capture.sql(f"select pg_drop_replication_slot('{capture.slot}')", "insert into t values (2)")

    stop = capture.daemon().stopped_with()

    assert_gap(stop, known_to)
    assert capture.slot in stop["message"]
    assert stop["hint"]


def test_slot_dropped_while_running_is_a_gap(capture: CaptureSite) -> None:
    capture.sql(*_TABLES)
    daemon = capture.running()
    known_to = capture.sql("insert into t values (1)")
    daemon.until_position(known_to)

    until(lambda: dropped(capture), "the slot is dropped between two connections of the daemon")
    capture.sql("insert into t values (2)")
    stop = daemon.stopped_with()

    assert_gap(stop, known_to)


def test_slot_advanced_by_another_session_is_a_gap(capture: CaptureSite) -> None:
    known_to = run_once(capture)
    capture.sql("insert into t values (2)")
    capture.sql(f"select pg_replication_slot_advance('{capture.slot}', pg_current_wal_lsn())")

    stop = capture.daemon().stopped_with()

    assert_gap(stop, known_to)
    assert Lsn.parse(stop["resumes_at"]) == capture.confirmed()


def test_slot_recreated_under_the_same_name_is_a_gap(capture: CaptureSite) -> None:
    known_to = run_once(capture)
    capture.sql(
        "insert into t values (2)",
        f"select pg_drop_replication_slot('{capture.slot}')",
        f"select pg_create_logical_replication_slot('{capture.slot}', 'pgoutput')",
    )

    assert_gap(capture.daemon().stopped_with(), known_to)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}, "wal_removed"),
        ({"idle_replication_slot_timeout": "1s"}, "idle_timeout"),
    ],
    ids=["wal_removed", "idle_timeout"],
)
def test_invalidated_slot_is_a_gap_that_names_the_reason(
    make_stack: MakeStack,
    kafka: KafkaServer,
    topic_prefix: str,
    tmp_path: Path,
    settings: dict[str, str],
    reason: str,
) -> None:
    if reason == "idle_timeout":
        needs_major(18, "slots that are idle are invalidated")
    source = make_stack("postgres", postgres=settings).postgres
    with capture_site(topic_prefix, source.dsn, kafka.bootstrap, tmp_path) as capture:
        known_to = run_once(capture)

        def invalidated() -> bool:
            capture.sql("insert into t select g, 'lost' from generate_series(3, 2000) g on conflict do nothing")
            capture.sql("select pg_switch_wal()", "checkpoint")
            query = "select wal_status from pg_replication_slots where slot_name = %s"
            return capture.query(query, capture.slot) == [("lost",)]

        until(invalidated, f"the slot is invalidated: {reason}", every_s=0.2)
        stop = capture.daemon().stopped_with()

        assert_gap(stop, known_to)
        assert reason in stop["message"]


def test_range_of_a_gap_holds_every_change_that_is_not_in_the_log(capture: CaptureSite) -> None:
    known_to = run_once(capture)
    first_lost = capture.sql("insert into t values (2)")
    capture.sql(f"select pg_replication_slot_advance('{capture.slot}', pg_current_wal_lsn())")

    stop = capture.daemon().stopped_with()

    assert Lsn.parse(stop["known_to"]) <= known_to < first_lost <= Lsn.parse(stop["resumes_at"])
    assert [event.after["id"] for event in capture.log().events] == [1]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("drop publication {p}", "is gone"),
        ("drop publication {p}; create publication {p} for table t, other", "created again"),
        ("alter publication {p} drop table t", "public.t"),
        ("alter publication {p} set (publish = 'insert')", "inserts, updates and deletes"),
        ("drop publication {p}; create publication {p} for table other", "created again"),
    ],
    ids=["dropped", "made again", "table removed", "updates off", "made again without the table"],
)
def test_publication_changed_while_running_stops_capture_within_10_s(
    capture: CaptureSite, change: str, named: str
) -> None:
    capture.sql(*_TABLES)
    daemon = capture.running()
    published = capture.sql("insert into t values (1)")
    daemon.until_position(published)

    capture.transaction(change.format(p=capture.slot))
    before_change = capture.wal()
    capture.sql("insert into t values (2)")
    stop = daemon.stopped_with(_NOTICED_S)

    assert stop["state"] == "GAP"
    assert stop["exit_code"] == 3
    assert named in stop["message"]
    assert Lsn.parse(stop["known_to"]) <= before_change
    assert capture.confirmed() <= before_change, "nothing is acknowledged that was not published"


@pytest.mark.parametrize(
    "change",
    [
        "drop publication {p}",
        "drop publication {p}; create publication {p} for table t, other",
        "alter publication {p} drop table t",
        "alter publication {p} drop table t; insert into t values (3); alter publication {p} add table t",
    ],
    ids=["dropped", "made again", "table removed", "table removed and added again"],
)
def test_publication_changed_while_stopped_is_a_gap(capture: CaptureSite, change: str) -> None:
    known_to = run_once(capture)
    capture.transaction(change.format(p=capture.slot))
    capture.sql("insert into t values (2)")

    stop = capture.daemon().stopped_with()

    assert stop["state"] == "GAP"
    assert stop["exit_code"] == 3
    assert Lsn.parse(stop["known_to"]) <= known_to


def test_table_dropped_while_running_is_no_gap(capture: CaptureSite) -> None:
    capture.sql(*_TABLES)
    daemon = capture.running()

    capture.sql("insert into t values (1)", "drop table t", "insert into other values (1)")
    log = capture.settled(daemon)

    assert [event.topic for event in log.events] == [capture.topic("t"), capture.topic("other")]
    assert daemon.stop() == 0
    assert capture.running().state() in {"RUNNING", "CATCHING_UP"}


def run_once(capture: CaptureSite) -> Lsn:
    """Capture one row and stop; returns how far the log is."""
    capture.sql(*_TABLES)
    daemon = capture.running()
    daemon.until_position(capture.sql("insert into t values (1)"))
    assert daemon.stop() == 0
    return Lsn(capture.log().progress[-1]["end_lsn"])


def dropped(capture: CaptureSite) -> bool:
    """Cut the daemon off and drop the slot before it is back; whether that worked."""
    with capture.connect() as session:
        session.execute(
            "select pg_terminate_backend(active_pid, 1000) from pg_replication_slots where slot_name = %s",
            (capture.slot,),
        )
        try:
            session.execute("select pg_drop_replication_slot(%s)", (capture.slot,))
        except psycopg.errors.ObjectInUse:
            return False
    return True


def assert_gap(stop: dict[str, Any], known_to: Lsn) -> None:
    """State, exit code, and a range that begins where the log ends."""
    assert stop["state"] == "GAP"
    assert stop["exit_code"] == 3
    assert Lsn.parse(stop["known_to"]) >= known_to
    assert Lsn.parse(stop["resumes_at"]) > Lsn.parse(stop["known_to"])
    assert stop["known_to"] in stop["message"]
