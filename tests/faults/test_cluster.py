"""Three brokers, replication 3, min in-sync 2: leaders and coordinators are shut down and killed (C6)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tests.faults.test_kill import acknowledged_early
from tests.faults.test_why import assert_first
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.tally import LONG_ONLY, tally
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.first_cause import first_cause, listening, newest_config, until_healthy, why
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.faults.cluster import Cluster
    from tests.fixtures.servers.running_servers import Database

pytestmark = LONG_ONLY
ROUNDS: Final = int(os.environ.get("TAILRACE_CLUSTER_ROUNDS", "2"))
_REPLICATED: Final = {"replication_factor": 3, "allow_unreplicated": False}


def test_brokers_that_shut_down_and_die_in_turn_lose_and_double_nothing(
    cluster: Cluster, database: Database, topic_prefix: str, tmp_path: Path
) -> None:
    with capture_site(topic_prefix, database.dsn, cluster.bootstrap, tmp_path) as capture:
        capture.sql(*SCHEMA)
        oracle = capture.oracle()
        daemon = capture.running({"kafka": _REPLICATED})
        capture.sql("insert into bulk (n) values (0)")
        capture.settled(daemon)
        gone = 0

        with writing(capture.dsn, seed()) as work:
            for number in range(ROUNDS):
                for topic in (capture.topic("bulk"), "__transaction_state", f"{capture.name}.__progress"):
                    count = work.transactions
                    until(lambda: work.transactions > count + 30, "the writers write")  # noqa: B023 - called at once
                    cluster.leader_of(topic).stop("kill" if (gone + number) % 2 else "fast")
                    gone += 1
                    # Nobody starts it again until the two that are left have taken what was written meanwhile.
                    daemon.until_position(capture.wal(), within_s=180)
                    assert acknowledged_early(capture) == []
                    cluster.start()
        log = capture.settled(daemon, within_s=180)

        assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
        assert daemon.alive
        tally("brokers of three gone", times=gone, waits=len(daemon.events("capture_waiting")), events=len(log.events))


def test_brokers_that_are_down_are_named_first(
    cluster: Cluster, database: Database, topic_prefix: str, tmp_path: Path
) -> None:
    """One of three down is a risk, two stop capture; the third one still answers."""
    with capture_site(topic_prefix, database.dsn, cluster.bootstrap, tmp_path) as capture:
        capture.sql("create table t (id int primary key)")
        daemon = capture.running(listening({"kafka": _REPLICATED}))
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
        found = first_cause(path)
        assert_first(found, "partition-offline", "kafka")
        assert not found["healthy"], found["all"]
        cluster.start()
        daemon.until_position(capture.wal(), within_s=180)
