"""A lake on a Spark standalone cluster and an S3 server, with faults of the cluster and the store under load.

One lake lives through all of them. After each fault every cut since the last one is compared with the database at its
LSN, and the mirrors with PostgreSQL. `make cluster` repeats them.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from sinks.warehouse.spark.executor_watch import GONE_S
from tests.fixtures.lake.cluster_lake import ClusterLake, cluster_lake
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.freezing import freeze
from tests.fixtures.servers.running_servers import fresh_database
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sinks.warehouse.spark.spark_session import SparkOptions
    from tests.fixtures.servers.object_store import ObjectStore
    from tests.fixtures.servers.running_servers import KafkaServer, PostgresServer
    from tests.fixtures.servers.spark_cluster import SparkCluster

ROUNDS: Final = int(os.environ.get("TAILRACE_CLUSTER_ROUNDS", "1"))
pytestmark = pytest.mark.timeout(1500)
_TRANSACTIONS: Final = 60  # before each fault, and again after it
_LOST_S: Final = 300.0


@pytest.fixture(scope="module")
def bank(
    spark_cluster: SparkCluster,
    spark_options: SparkOptions,
    postgres: PostgresServer,
    kafka: KafkaServer,
    object_store: ObjectStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ClusterLake]:
    folder = tmp_path_factory.mktemp("lake")
    with (
        fresh_database(postgres) as database,
        capture_site(database.name, database.dsn, kafka.bootstrap, folder) as site,
        cluster_lake(spark_cluster, site, object_store, spark_options.options["spark.jars"]) as lake,
    ):
        yield lake


@pytest.fixture
def lake(bank: ClusterLake) -> ClusterLake:
    """The lake, undisturbed, with a driver and two workers."""
    bank.repair()
    return bank


@pytest.fixture(params=range(ROUNDS))
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(f"{seed()}/{request.param}")


@contextmanager
def under_load(lake: ClusterLake) -> Iterator[None]:
    """Writers run before and after what a test does."""
    with lake.work.writing():
        lake.work.allow(_TRANSACTIONS)
        yield
        lake.work.allow(_TRANSACTIONS)
        until(lambda: lake.work.is_done, "the writers are done")


def in_a_cut(lake: ClusterLake, chance: random.Random) -> int:
    """Wait until executors work at a cut, then a moment; returns the number of the cut."""
    until(lake.cluster.executors, "executors have started", within_s=_LOST_S)
    cut = lake.until_in_cut()
    time.sleep(chance.uniform(0, 1.5))  # the moment is what the tests are about
    return cut


def test_killed_executor_is_replaced_and_the_lake_is_exact(lake: ClusterLake, chance: random.Random) -> None:
    with under_load(lake):
        in_a_cut(lake, chance)
        os.kill(chance.choice(lake.cluster.executors()), signal.SIGKILL)
    assert lake.faults() == []


def test_killed_worker_and_a_new_one_leave_an_exact_lake(lake: ClusterLake, chance: random.Random) -> None:
    with under_load(lake):
        in_a_cut(lake, chance)
        lake.cluster.kill_worker(chance.choice(lake.cluster.workers))
        lake.cluster.add_worker()
    assert lake.faults() == []


def test_killed_driver_is_followed_by_one_that_finishes_its_cut(lake: ClusterLake, chance: random.Random) -> None:
    with under_load(lake):
        cut = in_a_cut(lake, chance)
        lake.kill_driver()
        lake.start()
    assert lake.faults() == []
    assert len(lake.store.cuts()) >= cut


def test_cut_between_driver_and_executors_is_survived(lake: ClusterLake, chance: random.Random) -> None:
    with under_load(lake):
        in_a_cut(lake, chance)
        assert sum(link.silence() for link in lake.links) > 0
    assert lake.faults() == []


@pytest.mark.skipif(ROUNDS == 1, reason="takes a minute: make cluster runs it")
def test_frozen_executor_is_replaced(lake: ClusterLake, chance: random.Random) -> None:
    with under_load(lake):
        in_a_cut(lake, chance)
        victim = chance.choice(lake.cluster.executors())
        freeze(victim)
        until(lambda: victim not in lake.cluster.executors(), "the cluster has killed it", within_s=_LOST_S)
    assert lake.faults() == []


def test_busy_and_slow_store_leaves_an_exact_lake(lake: ClusterLake, chance: random.Random) -> None:
    lake.front.seen.clear()
    lake.front.busy, lake.front.delay_s = 0.1, 0.05
    with under_load(lake):
        in_a_cut(lake, chance)
    assert lake.faults() == []
    assert any(name.endswith("refused") for name in lake.front.seen)


def test_store_that_is_away_is_named_and_waited_for(lake: ClusterLake, chance: random.Random) -> None:
    with under_load(lake):
        in_a_cut(lake, chance)
        jvms = lake.sink.children()
        lake.front.busy = 1.0
        waiting = until(lambda: waits(lake), "the sink waits", within_s=_LOST_S)
        lake.front.busy = 0.0
    assert lake.faults() == []
    assert "S3" in str(waiting["error"]), waiting
    assert lake.sink.children() == jvms, "Spark and its executors stay while the store is away"


@pytest.mark.skipif(ROUNDS == 1, reason="takes two minutes: make cluster runs it")
def test_cluster_without_workers_is_named_and_waited_for(lake: ClusterLake, chance: random.Random) -> None:
    with under_load(lake):
        in_a_cut(lake, chance)
        for worker in list(lake.cluster.workers):
            lake.cluster.kill_worker(worker)
        waiting = until(lambda: waits(lake), "the sink waits", within_s=GONE_S + _LOST_S)
        lake.cluster.repair()
    assert lake.faults() == []
    assert "the cluster has had no executor" in str(waiting["error"])


def waits(lake: ClusterLake) -> dict[str, object]:
    """The document of /status if the sink waits."""
    document = lake.status()
    return document if document.get("state") == "WAITING" else {}
