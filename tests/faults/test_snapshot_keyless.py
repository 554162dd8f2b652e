"""The copy of a table without a key: killed at every step, and with commits that are not visible yet."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.running_servers import fresh_database
from tests.fixtures.servers.waiting import until
from tests.integration.test_snapshot_keyless import COPIED, FILLED, ROWS, same, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Daemon
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack


def test_copy_killed_at_every_step_is_in_the_topic_once(capture: CaptureSite) -> None:
    capture.sql(*FILLED)
    with writing(capture.dsn, writers=2):
        for step in ("begun", "waited", "taken", "half", "read", "commit", "committed"):
            daemon = capture.daemon(COPIED, mutant=f"die_while_copying:{step}")
            assert daemon.exit_code() == -9
            seen = len(capture.log().topic(capture.topic("t")))
            assert seen >= ROWS if step == "committed" else seen == 0, "all of it, or nothing"
        daemon = capture.running(COPIED)
        daemon.until_position(capture.wal())
    log = capture.settled(daemon)

    assert same(capture, log)
    assert log.faults() == []
    assert daemon.events("keyless_copied") == []


@pytest.fixture
def lonely(make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[list[CaptureSite]]:
    """Sites on a server whose synchronous standby does not exist."""
    settings = {"synchronous_standby_names": "nobody", "synchronous_commit": "local"}
    source = make_stack("postgres", postgres=settings).postgres
    with fresh_database(source) as one, fresh_database(source) as two:
        sites = []
        for number, database in enumerate((one, two)):
            (folder := tmp_path / str(number)).mkdir()
            with capture_site(f"{topic_prefix}{number}", database.dsn, kafka.bootstrap, folder) as site:
                sites.append(site)
        yield sites
        for site in sites:
            site.end()


def test_hidden_commits_before_and_during_the_copy_are_in_the_topic_once(lonely: list[CaptureSite]) -> None:
    assert exact_beside_hidden_commits(lonely[0])


def test_copy_without_one_of_its_clauses_is_found_wrong_by_the_same_test(lonely: list[CaptureSite]) -> None:
    for site, mutant in zip(lonely, ("copy_without_waiting", "hide_by_lsn"), strict=True):
        assert not exact_beside_hidden_commits(site, mutant), mutant


def exact_beside_hidden_commits(capture: CaptureSite, mutant: str = "") -> bool:
    """One commits below the stream's begin and one during the copy, both hidden; one is visible during the copy."""
    capture.sql("create table other (id int primary key)", "create table t (n int, v text)")
    first = capture.running({"snapshot": {"mode": "never"}, "source": {"tables": ["public.other"]}})
    with hanging(capture, "insert into t values (1, 'hidden, below the begin')") as below:
        capture.sql("insert into other values (1)")
        first.until_position(capture.wal())
        first.stop()
        with psycopg.connect(capture.dsn) as open_one:
            open_one.execute("insert into other values (2)")
            daemon = capture.daemon(COPIED, mutant=mutant)
            until(lambda: waits_or_is_done(capture, daemon), "it waits")
            with hanging(capture, "insert into t values (2, 'hidden')"):
                capture.sql("insert into t values (3, 'visible')")
                open_one.commit()
                below()
                until(lambda: daemon.events("keyless_copied"), "it is copied")
    daemon.until_running()
    return same(capture, capture.settled(daemon))


def waits_or_is_done(capture: CaptureSite, daemon: Daemon) -> bool:
    """Whether it knows who was open and looks until they are not."""
    asks = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    looking = capture.query(f"{asks} and query like '%pg_postmaster_start_time%'")
    return bool(daemon.status().get("snapshots") and looking) or bool(daemon.events("keyless_copied"))


def test_commit_undone_by_a_crash_is_not_in_the_copy(
    unflushed: tuple[CaptureSite, Callable[[], None]],
) -> None:
    assert exact_over_a_crash(*unflushed)


def test_copy_that_is_committed_before_the_source_has_flushed_is_found_wrong_by_the_same_test(
    unflushed: tuple[CaptureSite, Callable[[], None]],
) -> None:
    assert not exact_over_a_crash(*unflushed, "copy_unflushed")


@pytest.fixture
def unflushed(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> Iterator[tuple[CaptureSite, Callable[[], None]]]:
    """A site on a server of its own, and how that crashes."""
    source = make_stack("postgres", postgres={"autovacuum": "off"}).postgres
    if getattr(source, "pid", None) is None:
        pytest.skip("the server's processes cannot be stopped from here")

    def crash() -> None:
        source.stop("immediate")
        source.start()

    with fresh_database(source) as base, capture_site(topic_prefix, base.dsn, kafka.bootstrap, tmp_path) as site:
        yield site, crash
        site.end()


def exact_over_a_crash(capture: CaptureSite, crash: Callable[[], None], mutant: str = "") -> bool:
    """An asynchronous commit is seen by the copy, and gone after a crash."""
    capture.sql("create table other (id int primary key)", "create table t (n int, v text)")
    capture.sql("insert into t values (1, 'flushed')")
    capture.running({"snapshot": {"mode": "never"}, "source": {"tables": ["public.other"]}}).stop()
    ((writer,),) = capture.query("select pid from pg_stat_activity where backend_type = 'walwriter'")
    with psycopg.connect(capture.dsn) as open_one:
        open_one.execute("insert into other values (1)")
        daemon = capture.daemon(COPIED, mutant=mutant)
        until(lambda: waits_or_is_done(capture, daemon), "it waits for the open one")
        os.kill(writer, signal.SIGSTOP)  # nobody flushes from here on
        with capture.connect() as session:
            session.execute("set synchronous_commit = off")
            session.execute("insert into t values (2, 'lost')")
        open_one.rollback()
        until(lambda: asks_for_flush(capture) or daemon.events("keyless_copied"), "it is copied, or waits")
    crash()
    daemon.until_running()
    assert capture.query("select n from t") == [(1,)], "nothing was lost; the test is weak"
    return same(capture, capture.settled(daemon))


def asks_for_flush(capture: CaptureSite) -> bool:
    """Whether it waits for the source to flush what its copy saw."""
    asks = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    return bool(capture.query(f"{asks} and query like '%pg_current_wal_flush_lsn%'"))


@contextmanager
def hanging(capture: CaptureSite, statement: str) -> Iterator[Callable[[], None]]:
    """Commit a statement that waits for the standby until what is handed out is called, or the block is left."""
    with psycopg.connect(capture.dsn) as session:
        session.execute("set synchronous_commit = on")
        session.execute(statement.encode())
        pid, committing = session.info.backend_pid, threading.Thread(target=session.commit)
        committing.start()
        hangs = f"select from pg_stat_activity where pid = {pid} and wait_event = 'SyncRep'"

        def release() -> None:
            if committing.is_alive():
                capture.sql(f"select pg_cancel_backend({pid})")
                committing.join()

        try:
            until(lambda: capture.query(hangs), "it hangs")
            yield release
        finally:
            release()
