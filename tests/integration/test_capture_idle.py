"""An idle publication on a busy server: WAL of other tables is released, and nothing more."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite


def test_foreign_wal_is_released_with_at_most_a_progress_record_a_second(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", "create table other (n int)")
    daemon = capture.running({"source": {"tables": ["public.t"]}, "capture": {"catalog_check_s": 0.2}})
    capture.settled(daemon)
    began_s, before = time.monotonic(), len(capture.log().progress)

    stop = threading.Event()
    writer = threading.Thread(target=keep_writing, args=(capture, stop))
    writer.start()
    try:
        for _ in range(3):
            foreign_wal_is_acknowledged(capture)
    finally:
        stop.set()
        writer.join()
    count = len(capture.log().progress) - before

    assert count <= time.monotonic() - began_s + 2
    assert capture.log().events == []


def test_quiet_server_gets_no_progress_records(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()
    log = capture.settled(daemon)

    # The positions that are left to say: a running-xacts record now and then, never a record without a new position.
    until(lambda: daemon.status().get("state_seconds", 0) > 2, "two seconds of nothing")

    ends = [record["end_lsn"] for record in capture.log().progress[len(log.progress) :]]
    assert ends == sorted(set(ends))


def test_nothing_is_acknowledged_before_it_is_in_the_log(capture: CaptureSite) -> None:
    """Obligation P2: confirmed_flush_lsn is never above the end_lsn of a committed progress record."""
    capture.sql("create table t (id int primary key)")
    daemon = capture.running({"capture": {"catalog_check_s": 0.1}})
    faults = []

    for number in range(40):
        capture.sql(f"insert into t values ({number})")
        confirmed = capture.confirmed()
        if number % 10 == 0:
            reached = capture.log().progress[-1]["end_lsn"]
            if confirmed > reached:
                faults.append(f"acknowledged {confirmed}, the log reaches {reached}")
    capture.settled(daemon)

    assert faults == []


def test_filtered_out_transactions_move_the_position_without_records(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", "create table other (n int)")
    daemon = capture.running({"source": {"tables": ["public.t"]}})

    end = capture.sql("insert into other values (1)", "insert into t values (1)", "insert into other values (2)")
    daemon.until_position(end)

    assert [event.after["id"] for event in capture.log().events] == [1]


def foreign_wal_is_acknowledged(capture: CaptureSite) -> None:
    """Wait until what is in the WAL now is acknowledged."""
    written = capture.wal()
    until(lambda: capture.confirmed() >= written, "WAL that is not ours is acknowledged")


def keep_writing(capture: CaptureSite, stop: threading.Event) -> None:
    """Write to a table nobody captures until told to stop."""
    with capture.connect() as session:
        while not stop.is_set():
            session.execute("insert into other select generate_series(1, 50)")
