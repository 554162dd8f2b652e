"""Two daemons on one slot: the second waits without side effects and takes over; a zombie writes nothing (C5, A6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.servers.first_cause import first_cause, listening, newest_config
from tests.fixtures.servers.waiting import holds_for, until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Daemon

KEYS: Final = {"public.t": ["id"]}
_WATCHED_S: Final = 6.0
_CAPTURES: Final = ("RUNNING", "CATCHING_UP")  # the second on a machine that is busy


def test_second_daemon_waits_and_never_disturbs_the_first(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    oracle = capture.oracle()
    first = capture.running()
    reader = walsender(capture)

    second = capture.daemon()
    status = second.until_state("WAITING")
    written = iter(range(1_000_000))

    def first_goes_on() -> bool:
        lsn = capture.sql(f"insert into t values ({next(written)})")
        first.until_position(lsn)
        return first.state() in _CAPTURES and second.state() == "WAITING"

    holds_for(first_goes_on, "the first captures, the second waits", seconds=_WATCHED_S)
    assert status["reason"] == "slot"
    assert "cdc_" in status["error"]["message"]
    assert walsender(capture) == reader
    assert not first.events("capture_waiting")
    assert not second.events("capture_started")
    assert history_faults(oracle.changes(), capture.settled(first), KEYS) == []


def test_two_daemons_started_at_once_are_one_that_captures_and_one_that_waits(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    pair = [capture.daemon(), capture.daemon()]

    until(
        lambda: one_captures(pair),
        "one captures, one waits",
        within_s=120,
    )
    oracle = capture.oracle()
    capture.sql("insert into t select generate_series(1, 100)")
    captures = next(daemon for daemon in pair if daemon.state() in _CAPTURES)

    assert history_faults(oracle.changes(), capture.settled(captures), KEYS) == []
    assert one_captures(pair)


def test_daemon_that_comes_while_the_slot_is_being_made_waits_for_it(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    with psycopg.connect(capture.dsn) as writer:
        writer.execute("insert into t values (0)")  # until this ends, a slot cannot be made
        first = capture.daemon()
        until(lambda: first.events("slot_creating"), "the first makes the slot")
        slots = "select confirmed_flush_lsn from pg_replication_slots where database = current_database()"
        until(lambda: capture.query(slots) == [(None,)], "it is there, half")
        second = capture.daemon()
        assert second.until_state("WAITING")["reason"] == "slot"
    first.until_running()

    holds_for(lambda: second.state() == "WAITING", "the second goes on to wait", seconds=_WATCHED_S / 3)


def test_second_daemon_takes_over_when_the_first_is_killed(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    oracle = capture.oracle()
    first = capture.running()
    second = capture.daemon()
    second.until_state("WAITING")
    capture.sql("insert into t select generate_series(1, 100)")

    first.kill()
    capture.sql("insert into t select generate_series(101, 200)")
    second.until_running()

    assert history_faults(oracle.changes(), capture.settled(second), KEYS) == []
    assert len(second.events("capture_waiting")) == 1, "a wait is logged once, not once a retry"


def test_zombie_frozen_before_its_commit_is_fenced_and_nothing_of_it_is_visible(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", *short_wal_sender_timeout(capture))
    oracle = capture.oracle()
    zombie = capture.daemon(listening(), mutant="freeze_before_commit:rows").until_running()
    zombies_config = newest_config(capture)
    capture.sql(usual_wal_sender_timeout(capture))
    second = capture.daemon(listening())
    second.until_state("WAITING")

    capture.sql("insert into t values (1)")
    until(lambda: stopped(zombie), "the zombie is frozen with its commit before it")
    second.until_running()
    capture.sql("insert into t values (2)")
    before = capture.settled(second)
    zombie.thaw()
    end = zombie.stopped_with()

    assert end["state"] == "FENCED"
    assert end["exit_code"] == 3
    after = capture.settled(second)
    assert [event.position for event in after.events] == [event.position for event in before.events]
    assert history_faults(oracle.changes(), after, KEYS) == []
    assert second.state() in _CAPTURES
    for path in (zombies_config, newest_config(capture)):  # asked beside the zombie, and beside the one that took over
        found = first_cause(path)
        assert (found["code"], found["part"], found["healthy"]) == ("capture-fenced", "capture", True), found["all"]
        assert "was fenced" in found["says"]


def test_zombie_frozen_while_idle_waits_as_second_afterwards(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", *short_wal_sender_timeout(capture))
    oracle = capture.oracle()
    zombie = capture.running()
    capture.sql(usual_wal_sender_timeout(capture))

    zombie.freeze()
    second = capture.running()
    capture.sql("insert into t values (1)")
    capture.settled(second)
    zombie.thaw()

    assert zombie.until_state("WAITING", "FENCED")["reason"] in {"slot", "source", ""}
    until(lambda: zombie.state() == "WAITING" and zombie.status()["reason"] == "slot", "the zombie waits as second")
    capture.sql("insert into t values (2)")
    assert history_faults(oracle.changes(), capture.settled(second), KEYS) == []
    assert not second.events("capture_waiting")[1:]


def one_captures(pair: list[Daemon]) -> bool:
    """Whether one of two captures and the other waits."""
    captures, waits = sorted(daemon.state() for daemon in pair)
    return captures in _CAPTURES and waits == "WAITING"


def walsender(capture: CaptureSite) -> int:
    """The pid of the process that streams from our slot."""
    return int(capture.query("select active_pid from pg_replication_slots where slot_name = %s", capture.slot)[0][0])


def short_wal_sender_timeout(capture: CaptureSite) -> list[str]:
    """Have the server give up on a silent reader of this database after 2 s."""
    return [f"alter database {capture.dsn.rsplit('/', 1)[1]} set wal_sender_timeout = '2s'"]


def usual_wal_sender_timeout(capture: CaptureSite) -> str:
    """Give readers that connect from now on the usual timeout: a busy machine may take longer than 2 s to answer."""
    return f"alter database {capture.dsn.rsplit('/', 1)[1]} reset wal_sender_timeout"


def stopped(daemon: Daemon) -> bool:
    """Whether it is in the state that SIGSTOP leaves a process in."""
    return daemon.scheduler_state() == "T"
