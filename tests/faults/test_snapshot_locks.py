"""Locks and timeouts in the way of a chunk: it waits, retries in smaller pieces, and leaves out no row.

Another session writes meanwhile: on an idle server the WAL of a read is flushed late, and the snapshot waits for it.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import psycopg

from tests.faults.test_snapshot_kill import read_count
from tests.fixtures.capture.snapshot_waits import INITIAL, RACED, complete, differences, racing
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

LOCKED: Final[Sections] = {"snapshot": {"mode": "initial", "chunk_bytes": 65_536, "workers": 2}}
_OURS: Final = "relation in ('t'::regclass, 'u'::regclass)"
_BLOCKS = re.compile(r"ctid >= '\((\d+),0\)'(?: AND ctid < '\((\d+),0\)')?", re.IGNORECASE)


def test_chunk_gives_way_to_a_locker_says_so_and_leaves_no_gap(capture: CaptureSite) -> None:
    capture.sql(*RACED)
    daemon = capture.daemon(LOCKED, mutant="tell_soon:60")
    until(lambda: read_count(capture) > 0, "it reads")
    with psycopg.connect(capture.dsn) as locker:
        locker.execute("lock table t in access exclusive mode")
        assert_told(daemon)
        locker.execute("update t set n = n + 1 where id % 3 = 0")
        locker.commit()
    with racing(capture.dsn, seed(), writers=1):
        complete(capture, daemon, "public.t")
    log = capture.settled(daemon)

    assert [event["table"] for event in daemon.events("snapshot_goes_on")] == ["public.t"]
    assert not differences(capture, log, "t").any


def test_table_that_is_locked_when_its_leaves_are_looked_at_is_read_later(capture: CaptureSite) -> None:
    capture.sql(*RACED, "create table u (id int primary key)")
    capture.running({"snapshot": {"mode": "never"}}).stop()  # a slot is made when nobody is open
    with psycopg.connect(capture.dsn) as open_one, psycopg.connect(capture.dsn) as locker:
        open_one.execute("insert into u values (2)")
        daemon = capture.daemon(LOCKED, mutant="tell_soon:0")
        until(lambda: daemon.events("snapshot_begun"), "it waits for the open transaction")
        locker.execute("lock table t in access exclusive mode")
        open_one.commit()
        assert_told(daemon)
        locker.execute("update t set n = n + 1 where id % 3 = 0")
        locker.commit()
    with racing(capture.dsn, seed(), writers=1):
        complete(capture, daemon, "public.t", "public.u")
    log = capture.settled(daemon)

    assert not differences(capture, log, "t").any
    assert daemon.events("snapshot_interrupted") == []


def test_chunk_gives_way_before_a_deadlock_ends_another_session(capture: CaptureSite, tmp_path: Path) -> None:
    """A chunk has its table; somebody who has another published one wants that; the chunk asks what is published."""
    capture.sql(*RACED, "create table u (id int primary key)", "insert into u values (1)")
    go_on = tmp_path / "go on"
    daemon = capture.running({"snapshot": {**LOCKED["snapshot"], "workers": 1}}, mutant=f"hold_locked:{go_on}")
    until(lambda: daemon.events("chunk_held"), "a chunk has its lock")
    (held,) = capture.query("select relation::regclass::text from pg_locks where mode = 'AccessShareLock' and " + _OURS)
    other = {"t": "u", "u": "t"}[held[0]]

    with psycopg.connect(capture.dsn) as locker, ThreadPoolExecutor(1) as beside:
        locker.execute(f"lock table {other} in access exclusive mode".encode())
        waiting = beside.submit(locker.execute, f"lock table {held[0]} in access exclusive mode".encode())
        until(lambda: capture.query("select from pg_locks where not granted and " + _OURS), "it waits for the chunk")
        go_on.touch()
        waiting.result(90)
        locker.execute("update t set n = n + 1 where id % 3 = 0")
        locker.commit()
    with racing(capture.dsn, seed(), writers=1):
        complete(capture, daemon, "public.t", "public.u")
    log = capture.settled(daemon)

    (deadlocks,) = capture.query("select deadlocks from pg_stat_database where datname = current_database()")
    assert deadlocks == (0,)
    assert daemon.events("snapshot_interrupted") == []
    assert not differences(capture, log, "t").any


def assert_told(daemon: Daemon) -> None:
    """The log and /status say that somebody has locked `t`."""

    def shown() -> list[str]:
        found = daemon.status().get("snapshots", [])
        return [why for one in found if one["table"] == "public.t" for why in one["waits_for"]]

    told = until(lambda: daemon.events("snapshot_hindered"), "the lock is logged")
    assert "public.t" in {one["table"] for one in told}
    assert "55P03" in told[0]["reason"]
    until(lambda: any("55P03" in why for why in shown()), "/status says so")


def test_chunk_that_is_cancelled_is_read_in_smaller_pieces_and_leaves_no_gap(capture: CaptureSite) -> None:
    """As by statement_timeout, which has the same SQLSTATE."""
    capture.sql("create table t (id int primary key, n int, pad text)")
    capture.sql("insert into t select n, 0, repeat('x', 700) from generate_series(1, 60000) n")
    whole = {"snapshot": {**INITIAL["snapshot"], "chunk_bytes": 64 << 20, "workers": 1}}
    ranges: list[tuple[str | None, ...]] = []
    cancel = (
        "select query from pg_stat_activity, lateral (select pg_cancel_backend(pid)) c where state = 'active'"
        " and datname = current_database() and application_name = 'cdc snapshot-1' and query ilike 'copy%'"
    )

    def a_part_cancelled() -> bool:
        """A busy server runs a query for a while after it was cancelled, so the whole table may be seen repeatedly."""
        found = (_BLOCKS.search(query) for (query,) in capture.query(cancel))
        ranges.extend(one.groups() for one in found if one)
        return bool(ranges) and ranges[-1][1] is not None

    with racing(capture.dsn, seed(), writers=2):
        daemon = capture.running(whole)
        until(a_part_cancelled, "the whole table and a part of it are cancelled", every_s=0)
        complete(capture, daemon, "public.t")
    log = capture.settled(daemon)

    assert ranges[0] == ("0", None), "the whole table at first"
    assert not differences(capture, log, "t").any
