"""The load guard: snapshots slow down while the source suffers, recover with it, and stay exact (A15)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.fixtures.capture.snapshot_waits import RACED, complete, differences, racing
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.first_cause import first_cause, listening, newest_config
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections
    from tests.fixtures.servers.running_servers import KafkaServer
    from tests.fixtures.servers.standby_pair import MakePair, Pair

OFTEN: Final = "guard_often:200"
_SLOW: Final = 1 / 8
_SPAN_S: Final = 3.0
"""Time in which rows are counted, with and without load; only the two counts are compared."""


def guarded(**limits: float) -> Sections:
    """Small chunks, and only these limits."""
    off = {"commit_latency_max_ms": 0, "standby_lag_max_s": 0.0, "io_waits_max_percent": 0}
    return listening({"snapshot": {"mode": "initial", "chunk_bytes": 8192, "workers": 2, **off, **limits}})


def guard(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.status().get("load_guard") or {}
    return found


def rows_read(daemon: Daemon) -> int:
    return sum(one["rows"] for one in daemon.status()["snapshots"])


def rows_gained(daemon: Daemon) -> int:
    """Rows that are read within the same time each."""
    before = rows_read(daemon)
    time.sleep(_SPAN_S)
    return rows_read(daemon) - before


def test_snapshot_slows_down_while_commits_wait_for_a_standby_and_ends_exact(
    make_pair: MakePair, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    pair = make_pair()
    with capture_site(topic_prefix, pair.dsn, kafka.bootstrap, tmp_path) as site:
        filled(site)
        for setting in ("synchronous_standby_names = '*'", "synchronous_commit = 'remote_apply'"):
            pair.on_primary(f"alter system set {setting}")
        pair.on_primary("select pg_reload_conf()")
        daemon = site.running(guarded(commit_latency_max_ms=500), mutant=OFTEN)
        until(lambda: guard(daemon).get("commit_seconds") and rows_read(daemon), "it reads at full speed")
        full = rows_gained(daemon)
        with racing(site.dsn, seed(), writers=2):
            pair.on_standby("select pg_wal_replay_pause()")

            assert_slowed(daemon, site, "commit_latency", "a commit takes")
            assert rows_gained(daemon) < full / 2, "at an eighth of full speed or less"

            pair.on_standby("select pg_wal_replay_resume()")
            assert_recovers(daemon)
            log = complete(site, daemon, "public.t")
        log = site.settled(daemon)

        assert not differences(site, log, "t").any
        assert [event["signal"] for event in daemon.events("snapshot_slowed")][:1] == ["commit_latency"]


def test_snapshot_slows_down_while_a_standby_lags_unless_it_is_ignored(
    make_pair: MakePair, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    pair = make_pair()
    with capture_site(topic_prefix, pair.dsn, kafka.bootstrap, tmp_path) as site:
        filled(site)
        daemon = site.running(guarded(standby_lag_max_s=1.0), mutant=OFTEN)
        until(lambda: guard(daemon) and rows_read(daemon), "it reads at full speed")
        with racing(site.dsn, seed(), writers=1):
            pair.on_standby("select pg_wal_replay_pause()")

            assert_slowed(daemon, site, "standby_lag", "standby walreceiver is")

            daemon.stop()
            ignored = guarded(standby_lag_max_s=1.0) | {}
            ignored["snapshot"]["standbys_ignored"] = [name_of_standby(pair)]
            daemon = site.running(ignored, mutant=OFTEN)
            log = complete(site, daemon, "public.t")
        log = site.settled(daemon)

        assert daemon.events("snapshot_slowed") == []
        assert not differences(site, log, "t").any


def test_role_without_the_right_is_guarded_by_the_other_signal_and_is_told_once(capture: CaptureSite) -> None:
    """And with messages published: the guard's own never are."""
    capture.sql(*RACED)
    role = f"plain_{capture.name}"
    with capture.connect() as session:
        session.execute(sql.SQL("create role {} login replication password 'x'").format(sql.Identifier(role)))
        for grant in ("select on all tables in schema public", "usage on schema public"):
            session.execute(sql.SQL("grant {} to {}").format(sql.SQL(grant), sql.Identifier(role)))
    capture.running({"snapshot": {"mode": "never"}}).stop()  # the owner makes slot and publication
    owner = capture.dsn
    capture.dsn = make_conninfo(owner, user=role, password="x")
    capture.forget_topics()
    sections = guarded(commit_latency_max_ms=60_000, standby_lag_max_s=30.0, io_waits_max_percent=75)
    daemon = capture.running(sections | {"capture": {"messages": True}}, mutant=OFTEN)
    found = until(lambda: one if (one := guard(daemon)).get("commit_seconds") else {}, "the guard reads")
    capture.dsn = owner
    log = complete(capture, daemon, "public.t")

    assert set(found["unavailable"]) == {"io_waits", "standby_lag"}
    assert found["commit_seconds"] > 0
    (event,) = daemon.events("load_guard_forgoes")
    assert event["command"] == f"grant pg_read_all_stats to {role}"
    assert log.topic(f"{capture.name}.message") == []
    assert not differences(capture, log, "t").any
    until(lambda: daemon.status()["load_guard"] is None, "without a snapshot the guard rests")


def filled(site: CaptureSite) -> None:
    site.sql(*RACED)
    site.sql("insert into t select n, 0, repeat('x', 700) from generate_series(10001, 18000) n")


def name_of_standby(pair: Pair) -> str:
    with psycopg.connect(pair.primary.dsn) as session:
        row = session.execute("select application_name from pg_stat_replication where state = 'streaming'").fetchone()
    assert row is not None
    return str(row[0])


def assert_slowed(daemon: Daemon, site: CaptureSite, signal: str, says: str) -> None:
    """Its factor falls, the reason is shown everywhere, and rows are still read."""
    found = until(lambda: one if (one := guard(daemon)).get("speed", 1) <= _SLOW else {}, "it slows down")
    assert found["signal"] == signal
    assert found["reason"].startswith(says)
    (shown,) = (one for one in daemon.status()["snapshots"] if one["table"] == "public.t")
    assert any(why.startswith("the load guard, at ") for why in shown["waits_for"]), shown
    cause = first_cause(newest_config(site), "snapshot")
    assert (cause["code"], cause["part"]) == ("snapshot-throttled", "snapshot public.t"), cause["all"]
    assert says in cause["evidence"][0]
    before = rows_read(daemon)
    until(lambda: rows_read(daemon) > before, "it still reads")
    assert daemon.status()["snapshots"][0]["state"] == "reading"


def assert_recovers(daemon: Daemon) -> None:
    until(lambda: guard(daemon).get("speed", 1) == 1, "full speed again")
    assert daemon.events("snapshot_full_speed")
