"""Scenarios that random races rarely produce, each with and without the clause that it needs."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from tests.faults.test_snapshot_keyless import hanging, lonely
from tests.fixtures.capture.snapshot_waits import INITIAL, complete, differences
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.running_servers import fresh_database
from tests.fixtures.servers.waiting import holds_for, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Daemon
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack

__all__ = ["lonely"]

_QUIET: Final = {"snapshot": {"mode": "initial", "commit_latency_max_ms": 0}}
"""Without the commits of the load guard, which are newer than the hidden one."""


def test_commit_that_was_streamed_before_and_is_hidden_is_waited_for_on_a_quiet_server(
    lonely: list[CaptureSite],
) -> None:
    """The snapshot of a quiet server does not list it: it is the newest of all."""
    right, wrong = lonely
    assert not differences_after_hidden_commit(right)
    assert differences_after_hidden_commit(wrong, "suspect_running_only")


def differences_after_hidden_commit(capture: CaptureSite, mutant: str = "") -> bool:
    capture.sql("create table t (id int primary key, v text)", "insert into t values (1, 'old'), (2, 'old')")
    first = capture.running({"snapshot": {"mode": "never"}})
    with hanging(capture, "update t set v = 'new' where id = 1") as release:
        first.until_position(capture.wal())
        first.stop()
        daemon = capture.running(_QUIET, mutant=mutant)
        until(lambda: daemon.events("snapshot_begun"), "it begins")
        if not mutant:
            holds_for(lambda: not daemon.events("snapshot_complete"), "it waits", seconds=0.5)
            release()
        complete(capture, daemon, "public.t")
    return differences(capture, capture.settled(daemon), "t").any


def test_large_value_of_a_row_that_took_a_deleted_ones_key_is_its_own(lonely: list[CaptureSite]) -> None:
    """The chunk has the deleted row under that key, and the stream has no value for the one that moved there."""
    capture = lonely[0]
    capture.sql(
        "create table other (id int primary key)",
        "create table t (id int primary key, n int, pad text)",
        "alter table t alter pad set storage external",
        "insert into t values (1, 1, repeat('one', 1000)), (2, 2, repeat('two', 1000))",
    )
    omit: dict[str, dict[str, Any]] = {"toast": {"mode": "omit"}}
    capture.running({"snapshot": {"mode": "never"}, **omit}).stop()
    with psycopg.connect(capture.dsn) as open_one:
        open_one.execute("insert into other values (1)")
        daemon = capture.running({**INITIAL, **omit})
        until(lambda: daemon.events("snapshot_begun"), "it waits for the open one")
        with hanging(capture, "delete from t where id = 2; update t set id = 2 where id = 1"):
            open_one.commit()
            until(lambda: keys_left(daemon) == 1, "the row is to be read by its key")
        complete(capture, daemon, "public.t")
    log = capture.settled(daemon)

    of_key = [record.after for record in log.topic(capture.topic("t")) if record.key == b'{"id":2}' and is_row(record)]
    assert "pad" not in of_key[0]
    assert of_key[-1] == {"id": 2, "n": 1, "pad": "one" * 1000}
    assert {row.get("pad") for row in of_key} <= {None, "one" * 1000}, "never the one of the row that is gone"


def test_rewrite_waits_while_a_chunk_has_its_snapshot_and_not_its_rows(capture: CaptureSite) -> None:
    """Rewritten in between, the table would be empty in that snapshot, under the file node that was seen with it."""
    capture.sql("create table t (id int primary key)", "insert into t select generate_series(1, 100)")
    gate = capture.folder / "go"
    daemon = capture.running(INITIAL, mutant=f"hold_chunk:{gate}")
    until(lambda: daemon.events("chunk_held"), "a chunk has its snapshot")
    with ThreadPoolExecutor(1) as others:
        rewritten = others.submit(capture.sql, "vacuum full t")
        until(lambda: rewritten.done() or capture.query(_WAITING), "the rewrite waits")
        in_between = rewritten.done()
        gate.touch()
        rewritten.result()
    log = complete(capture, daemon, "public.t")

    assert not in_between
    assert not differences(capture, log, "t").any


def test_commit_that_a_crash_takes_back_is_never_in_the_log_although_a_chunk_saw_it(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    """It is visible before it is flushed, so its rows wait until the stream is there, which only has what is."""
    source = make_stack("postgres", postgres={"wal_writer_delay": "10s", "autovacuum": "off"}).postgres
    if getattr(source, "pid", None) is None:
        pytest.skip("the server's processes cannot be stopped from here")
    with fresh_database(source) as base, capture_site(topic_prefix, base.dsn, kafka.bootstrap, tmp_path) as capture:
        capture.sql("create table t (id int primary key, v text)", "insert into t values (1, 'old'), (2, 'old')")
        gate = capture.folder / "go"
        capture.running({"snapshot": {"mode": "never"}}).stop()
        with psycopg.connect(capture.dsn) as open_one:
            open_one.execute("update t set v = 'other' where id = 2")
            daemon = capture.running(INITIAL, mutant=f"hold_chunk:{gate}")
            until(lambda: daemon.events("snapshot_begun"), "it waits for the open one")
            ((writer,),) = capture.query("select pid from pg_stat_activity where backend_type = 'walwriter'")
            os.kill(writer, signal.SIGSTOP)  # nobody flushes from here on
            with capture.connect() as session:
                session.execute("set synchronous_commit = off")
                session.execute("update t set v = 'new' where id = 1")
            open_one.rollback()
            until(lambda: daemon.events("chunk_held"), "a chunk has its snapshot")
            gate.touch()
            until(lambda: waiting(daemon) or daemon.events("snapshot_complete"), "its rows are there")
        source.stop("immediate")
        source.start()
        capture.sql("insert into t values (3, 'old')")
        log = complete(capture, daemon, "public.t")

        assert capture.query("select v from t where id = 1") == [("old",)]
        assert {record.after["v"] for record in log.topic(capture.topic("t")) if record.after} == {"old"}
        assert not differences(capture, log, "t").any


def waiting(daemon: Daemon) -> int:
    """Chunks whose rows wait for the stream."""
    return sum(one["chunks_waiting"] or 0 for one in daemon.status().get("snapshots", []))


_WAITING: Final = "select from pg_stat_activity where query = 'vacuum full t' and wait_event_type = 'Lock'"


def keys_left(daemon: Daemon) -> int:
    """Keys of `t` that are to be read."""
    return sum(one["keys_left"] for one in daemon.status().get("snapshots", []) if one["table"] == "public.t")


def is_row(record: Any) -> bool:
    """Whether there is a row after it."""
    return record.value is not None and record.op != "d"
