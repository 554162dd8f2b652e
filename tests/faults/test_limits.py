"""Exhausted memory, files or disk: reported and waited for, or survived (E3, E4, E7)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from tests.faults.test_why import assert_first
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.limits import memory_limit, open_files, small_disk
from tests.fixtures.faults.tally import tally
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.first_cause import first_cause, listening, newest_config
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite

# Fault E3. A cgroup also counts cached file pages, which the kernel frees before it kills.
LIMIT_BYTES: Final = 150 << 20
LARGE_ROWS: Final = int(os.environ.get("TAILRACE_LIMITED_ROWS", "150000"))
# Enough for Python, for the source; all it needs are about thirty.
_FEW_FILES: Final = (8, 14)
_FILES_FOR_HTTP: Final = 19
_DISK_BYTES: Final = 4 << 20
_NAMED_S: Final = 120.0
_T: Final = {"public.t": ["id"]}


def test_large_transaction_and_wide_rows_fit_into_150_mb(capture: CaptureSite) -> None:
    """Its size alone never gets the daemon killed: the limit holds from its first instruction."""
    capture.sql("create table t (id int primary key, v text)")
    with memory_limit(LIMIT_BYTES) as limit:
        daemon = capture.daemon(wrap=limit.wrap).until_running()
        narrow = f"insert into t select g, 'row ' || g from generate_series(1, {LARGE_ROWS}) g"
        wide = "insert into t select -g, repeat('0123456789', 100000) from generate_series(1, 40) g"
        daemon.until_position(capture.sql(narrow, wide), within_s=600)
        peak_bytes, rows = daemon.rss_peak_bytes(), daemon.status()["rows"]
        kills = limit.oom_kills
        daemon.kill()

    assert kills == 0
    assert rows == LARGE_ROWS + 40
    tally("150 MB", rows_of_one_transaction=LARGE_ROWS, rss_peak_mb=peak_bytes >> 20)


def test_daemon_killed_for_its_memory_is_followed_by_one_that_is_exact(capture: CaptureSite) -> None:
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    with memory_limit(LIMIT_BYTES) as limit:
        daemon = capture.daemon(wrap=limit.wrap).until_running()
        with writing(capture.dsn, seed()) as work:
            until(lambda: work.transactions > 100, "the writers write")
            with limit.crowded(LIMIT_BYTES - daemon.rss_bytes() // 2, daemon.pid):
                code = daemon.exit_code()
        kills = limit.oom_kills
    log = capture.settled(capture.running())

    # What the daemon had is not always free at once, and then the neighbour is killed, too: nobody else is there.
    assert code == -9
    assert kills >= 1
    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


def test_full_temporary_folder_is_named_and_waited_for(capture: CaptureSite, tmp_path: Path) -> None:
    """The one thing capture keeps on a disk: the keys of a topic that a TRUNCATE deletes, when they are many."""
    capture.sql("create table t (id text primary key)")
    with small_disk(tmp_path / "disk", _DISK_BYTES) as disk:
        disk.fill()
        daemon = capture.daemon(environ={"SQLITE_TMPDIR": str(disk.folder)}).until_running()
        capture.sql("insert into t select repeat(md5(g::text), 30) || g from generate_series(1, 25000) g")
        before = capture.wal()
        capture.sql("truncate t", "insert into t values ('behind it')")
        waiting = daemon.until_state("WAITING", within_s=_NAMED_S)
        acknowledged = capture.confirmed()
        disk.free()
        disk.resize(_DISK_BYTES * 32)
        log = capture.settled(daemon, 120.0)

    assert waiting["reason"] == "disk"
    assert "temporary folder" in waiting["error"]["message"]
    assert "TMPDIR" in waiting["error"]["hint"]
    assert acknowledged <= before, "nothing behind the TRUNCATE is acknowledged before it is done"
    assert list(log.fold(capture.topic("t")).values()) == [{"id": "behind it"}]
    assert log.faults() == []


def test_log_that_cannot_be_written_does_not_stop_capture(capture: CaptureSite) -> None:
    """A disk that is full of logs is the commonest of all."""
    capture.sql("create table t (id int primary key)")
    oracle = capture.oracle()
    daemon = capture.daemon(wrap=["sh", "-c", 'exec "$@" > /dev/full 2>&1', "sh"])
    until(lambda: daemon.alive and capture.query("select 1 from pg_replication_slots where active"), "it streams")

    end = capture.sql("insert into t select generate_series(1, 100)")
    until(lambda: daemon.alive and capture.confirmed() >= end, "it is captured")

    assert history_faults(oracle.changes(), capture.log(), _T) == []


def test_process_without_files_to_open_is_named_first(capture: CaptureSite) -> None:
    """Enough of them to answer /status, and too few for connections to PostgreSQL."""
    capture.sql("create table t (id int primary key)")
    capture.running().kill()
    daemon = capture.daemon(listening(), wrap=open_files(_FILES_FOR_HTTP))
    until(lambda: daemon.events("capture_waiting"), "it waits", within_s=_NAMED_S)

    def named() -> dict[str, Any]:
        found = first_cause(newest_config(capture))
        return found if found["code"] == "machine-exhausted" else {}

    found = until(named, "the cause is named", within_s=_NAMED_S)

    assert_first(found, "machine-exhausted", "capture")
    assert "Too many open files" in found["says"]


def test_process_without_files_to_open_says_so_and_waits(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    capture.running().kill()
    oracle = capture.oracle()
    capture.sql("insert into t values (1)")
    daemons = [capture.daemon({"http": {"listen": ""}}, wrap=open_files(count)) for count in _FEW_FILES]

    for daemon in daemons:
        until(lambda: not daemon.alive or daemon.events("capture_waiting"), "it waits", within_s=_NAMED_S)  # noqa: B023 - called at once
        assert "Too many open files" in daemon.log_text()
        assert "Traceback" not in daemon.log_text()
        assert daemon.alive, "a limit may be raised, and others may close files"
        assert all(event["hint"] for event in daemon.events("capture_waiting"))
    for daemon in daemons:
        daemon.terminate()
    assert [daemon.exit_code(60) for daemon in daemons] == [0] * len(daemons)

    assert history_faults(oracle.changes(), capture.settled(capture.running()), _T) == []
