"""Too few replicas in sync, or only such that lag, while the controller works: capture waits and says why (C6)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc.errors import EXIT_FAILED
from tests.faults.test_cluster import REPLICATED
from tests.faults.test_kill import acknowledged_early
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.tally import tally
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.first_cause import listening, newest_config, until_healthy
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.capture.referee import Oracle
    from tests.fixtures.faults.cluster import Cluster
    from tests.fixtures.servers.daemon import CaptureSite, Daemon
    from tests.fixtures.servers.running_servers import Database

_WITHIN_S: Final = 180.0
# A request that Kafka cannot serve is given up after 10 s, not 50 s.
_SECTIONS: Final[dict[str, dict[str, Any]]] = {
    "kafka": {**REPLICATED, "options": {"transaction.timeout.ms": "12000"}},
}


@pytest.fixture
def site(controlled_cluster: Cluster, database: Database, topic_prefix: str, tmp_path: Path) -> Iterator[CaptureSite]:
    """The tables of the workload, and a capture on the cluster that is not started yet."""
    with capture_site(topic_prefix, database.dsn, controlled_cluster.bootstrap, tmp_path) as made:
        made.sql(*SCHEMA)
        yield made


def waits_for_kafka(site: CaptureSite, daemon: Daemon, says: str) -> None:
    """Wait until capture waits; log, status, cause and exit codes agree that Kafka is why, and no operator must act."""
    document = daemon.until_state("WAITING", within_s=_WITHIN_S)
    assert document["reason"] == "broker", document
    assert_never_refused(daemon)
    config = newest_config(site)
    status = cdc("status", "-c", config)
    assert "WAITING (broker)" in status.out, status.out
    assert "MISCONFIGURED" not in status.out, status.out
    why = cdc("why", "--json", "-c", config)
    found = json.loads(why.out)
    assert [one["code"] for one in found["causes"]] == ["partition-offline"], why.out
    assert says in found["causes"][0]["says"], why.out
    assert found["causes"][0]["level"] == "stopped", why.out
    assert why.code == EXIT_FAILED, why.out


def assert_never_refused(daemon: Daemon) -> None:
    """It has waited for Kafka only, never for a topic that it took for missing: that would end in MISCONFIGURED."""
    errors = {one["error"] for one in daemon.events("capture_waiting")}
    assert errors <= {"BrokerUnreachable", "OutcomeUnknown"}, errors


def exact_again(site: CaptureSite, daemon: Daemon, oracle: Oracle) -> int:
    """Wait until the log has everything; it is exactly what PostgreSQL committed. Returns its number of events."""
    log = site.settled(daemon, within_s=_WITHIN_S)
    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
    assert acknowledged_early(site) == []
    return len(log.events)


@pytest.mark.timeout(600)
def test_capture_goes_on_with_two_brokers_and_waits_with_one(controlled_cluster: Cluster, site: CaptureSite) -> None:
    cluster, oracle = controlled_cluster, site.oracle()
    daemon = site.running(listening(_SECTIONS))
    with writing(site.dsn, seed()) as work:
        cluster.leader_of(site.topic("bulk")).stop("fast")
        until(lambda: work.transactions > 100, "the writers write")
        daemon.until_position(site.wal(), within_s=_WITHIN_S)
        daemon.until_running()

        cluster.leader_of(site.topic("bulk")).stop("fast")
        waits_for_kafka(site, daemon, "too few replicas in sync")
        confirmed = site.confirmed()
        cluster.start()
    events = exact_again(site, daemon, oracle)
    assert site.confirmed() >= confirmed
    until_healthy(newest_config(site))
    tally("one of three brokers left", events=events)


@pytest.mark.timeout(600)
def test_replica_that_lags_never_leads_so_nothing_acknowledged_is_lost(
    controlled_cluster: Cluster, site: CaptureSite
) -> None:
    """The two brokers in sync die; only the third one, which lacks the newest records, is there."""
    cluster, oracle = controlled_cluster, site.oracle()
    daemon = site.running(listening(_SECTIONS))
    *others, lagging = cluster.brokers
    lagging.stop("fast")
    began = site.wal()
    with writing(site.dsn, seed()) as work:
        until(lambda: work.transactions > 100, "the writers write")
        daemon.until_position(site.wal(), within_s=_WITHIN_S)
        until(lambda: site.confirmed() > began, "what only two brokers have is acknowledged")
        for broker in others:
            broker.stop("kill")
    lagging.start()

    waits_for_kafka(site, daemon, "no leader")
    assert cluster.leader(site.topic("bulk")) == -1
    # An operator may try this first: the next process waits, too, for the same reason.
    daemon.kill()
    daemon = site.daemon(listening(_SECTIONS))
    assert daemon.until_state("WAITING", within_s=_WITHIN_S)["reason"] == "broker"
    assert_never_refused(daemon)
    cluster.start()  # what the hint of the cause asks for
    tally("only a replica that lags", events=exact_again(site, daemon, oracle))
