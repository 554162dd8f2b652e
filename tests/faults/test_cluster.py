"""Three brokers that are also the controllers, replication 3, min.insync.replicas 2: they shut down and die (C6).

A short form in CI. `make faults-long` ends the process of every role in both ways and prints how long each took.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc.local.local_server import StopMode
from tests.faults.test_kill import acknowledged_early
from tests.faults.test_why import assert_first
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.tally import LONG_ONLY, tally
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.first_cause import first_cause, listening, newest_config, until_healthy, why
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.supervised_run import supervised
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdc.local.valkey_server import Valkey
    from tests.fixtures.faults.cluster import Cluster
    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.servers.running_servers import Database
    from tests.fixtures.servers.supervised_run import Supervised

ROUNDS: Final = int(os.environ.get("TAILRACE_CLUSTER_ROUNDS", "0"))  # 0: the short form
REPLICATED: Final[dict[str, Any]] = {"replication_factor": 3, "allow_unreplicated": False}
_WITHIN_S: Final = 180.0  # a bound for the test; how long it took is printed
_ROLES: Final = ("leader of a table", "coordinator of transactions", "leader of progress", "coordinator of groups")
_CONTROLLER: Final = "active controller"


@dataclass
class Loaded:
    """Capture and a cache on a cluster, under load."""

    site: CaptureSite
    cluster: Cluster
    daemon: Supervised

    def broker_of(self, role: str) -> Any:
        """The broker that has a role now."""
        if role == _CONTROLLER:
            return self.cluster.controller()
        topics = (self.site.topic("bulk"), "__transaction_state", f"{self.site.name}.__progress", "__consumer_offsets")
        return self.cluster.leader_of(topics[_ROLES.index(role)])

    def recovery_s(self) -> tuple[float, float]:
        """Seconds until a change that is committed now is in the log, and in the cache."""
        began_s = time.monotonic()
        lsn = self.site.sql("insert into bulk (n) values (0)")
        self.daemon.until_position(lsn, within_s=_WITHIN_S)
        log_s = time.monotonic() - began_s
        until(lambda: self.daemon.wait_for("fast", lsn)[0] == 200, "the cache catches up", within_s=_WITHIN_S)
        return round(log_s, 1), round(time.monotonic() - began_s, 1)


@contextmanager
def loaded(cluster: Cluster, database: Database, cache: Valkey, name: str, folder: Path) -> Iterator[Loaded]:
    """Leaving it compares everything: the log with PostgreSQL, the cache with the log, the slot with the log."""
    with capture_site(name, database.dsn, cluster.bootstrap, folder) as site:
        site.sql(*SCHEMA)
        oracle = site.oracle()
        sections: Sections = {"kafka": REPLICATED, "sinks.fast": {"kind": "cache", "url": cache.url}}
        with supervised(site, sections, "supervised") as daemon:
            made = Loaded(site, cluster, daemon)
            made.daemon.until_running(_WITHIN_S)
            made.recovery_s()
            before = site.confirmed()
            with writing(site.dsn, seed()) as work:
                until(lambda: work.transactions > 30, "the writers write")
                yield made
            made.recovery_s()
            log = site.settled(daemon, within_s=_WITHIN_S)

            assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
            verified = cdc("verify", "fast", "-c", folder / "cdc-0.toml", "--json")
            assert verified.code == 0, verified.out + verified.err
            until(lambda: site.confirmed() > before, "the slot advances")
            assert acknowledged_early(site) == []
            assert stops(daemon) == []
            tally("compared", events=len(log.events), waits=len(daemon.events("capture_waiting")))


def stops(daemon: Supervised) -> list[dict[str, Any]]:
    """Events after which an operator must act, and workers that stood still or ended."""
    return [one for one in daemon.events() if one["event"] in _STOPS]


_STOPS: Final = frozenset(
    {"capture_stopped", "sink_needs_operator", "sink_replaced", "sink_left", "sink_stopped", "sink_stuck", "sink_ended"}
)


@pytest.mark.timeout(600 + ROUNDS * 1200)
def test_brokers_that_shut_down_and_die_in_turn_lose_and_double_nothing(
    cluster: Cluster, database: Database, valkey: Valkey, topic_prefix: str, tmp_path: Path
) -> None:
    """The two that are left go on. The short form kills the active controller, which leads partitions, too."""
    modes: tuple[StopMode, ...] = ("kill", "fast")
    turns = [(role, mode) for role in (*_ROLES, _CONTROLLER) for mode in modes] * ROUNDS
    with loaded(cluster, database, valkey, topic_prefix, tmp_path) as one:
        for role, mode in turns or [(_CONTROLLER, "kill")]:
            one.broker_of(role).stop(mode)
            # The broker starts again only after the two that are left have taken what was written meanwhile.
            log_s, cache_s = one.recovery_s()
            assert acknowledged_early(one.site) == []
            cluster.start()
            tally(f"{role}, {mode}", log_s=log_s, cache_s=cache_s)


@pytest.mark.timeout(600 + ROUNDS * 300)
def test_rolling_restart_under_load_loses_and_doubles_nothing(
    cluster: Cluster, database: Database, valkey: Valkey, topic_prefix: str, tmp_path: Path
) -> None:
    with loaded(cluster, database, valkey, topic_prefix, tmp_path) as one:
        for _ in range(ROUNDS or 1):
            began_s = time.monotonic()
            with watched(one.daemon) as stalls:
                for broker in cluster.brokers:
                    broker.stop("fast")
                    cluster.start()
            log_s, cache_s = one.recovery_s()
            took_s = round(time.monotonic() - began_s, 1)
            tally("rolling restart", took_s=took_s, longest_stall_s=stalls.longest_s, log_s=log_s, cache_s=cache_s)
    assert [one for one in one.daemon.events("capture_waiting") if one["reason"] != "broker"] == []


@dataclass
class Stalls:
    """The times at which the position of the log was seen to move."""

    seen_s: list[float] = field(default_factory=list)

    @property
    def longest_s(self) -> float:
        """The longest time without a move."""
        return round(max(later - earlier for earlier, later in zip(self.seen_s, self.seen_s[1:], strict=False)), 1)


@contextmanager
def watched(daemon: Supervised) -> Iterator[Stalls]:
    """Watch the position of a daemon under load."""
    stalls = Stalls()

    def watch(stop: threading.Event) -> None:
        last = None
        while not stop.wait(0.1):
            now = daemon.status().get("position")
            if now != last:
                last = now
                stalls.seen_s.append(time.monotonic())

    with beside(watch):
        yield stalls


@LONG_ONLY
def test_brokers_that_are_down_are_named_first(
    cluster: Cluster, database: Database, topic_prefix: str, tmp_path: Path
) -> None:
    """One of three down is a risk, two stop capture; the third one still answers."""
    with capture_site(topic_prefix, database.dsn, cluster.bootstrap, tmp_path) as capture:
        capture.sql("create table t (id int primary key)")
        daemon = capture.running(listening({"kafka": REPLICATED}))
        daemon.until_position(capture.sql("insert into t values (1)"))
        path = newest_config(capture)
        until_healthy(path, within_s=60)

        cluster.brokers[0].stop("fast")
        until(lambda: why(path)["causes"], "the lost replicas are seen", within_s=60)
        found = first_cause(path)
        assert_first(found, "partition-offline", "kafka")
        assert (found["level"], found["healthy"]) == ("risk", True), found["all"]
        assert any(cluster.bootstrap.split(",")[0] in one for one in found["evidence"]), found["all"]

        cluster.brokers[1].stop("fast")
        capture.sql("insert into t values (2)")
        daemon.until_state("WAITING", within_s=120)
        found = first_cause(path)
        assert_first(found, "partition-offline", "kafka")
        assert (found["level"], found["healthy"]) == ("stopped", False), found["all"]
        cluster.start()
        daemon.until_position(capture.wal(), within_s=180)
        until_healthy(path, within_s=120)

        for broker in cluster.brokers[:2]:  # without a majority, the third one still reports the old leaders
            broker.stop("kill")
        capture.sql("insert into t values (3)")
        daemon.until_state("WAITING", within_s=120)
        # On a busy machine the one broker may not answer within the seconds that the command has.
        until(lambda: first_cause(path)["code"] == "partition-offline", "it is named first", within_s=60)
        assert not first_cause(path)["healthy"]
        cluster.start()
        daemon.until_position(capture.wal(), within_s=180)
