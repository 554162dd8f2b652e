"""Jobs of a cluster without executors are cancelled; everything else is left alone."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from cdc.errors import LakeUnready
from sinks.warehouse.spark.executor_watch import SHUFFLE_PARTITIONS, ExecutorWatch, await_executors, follow_cores
from tests.fixtures.servers.waiting import holds_for, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Cluster:
    """A session as the watch sees it."""

    def __init__(self, *, executors: int, jobs: int, **settings: str) -> None:
        self.executors, self.jobs, self.stopped = executors, jobs, False
        self.cancelled = threading.Event()
        self.settings = settings
        self.own: dict[str, str] = {}
        self.master = "spark://head:7077"
        self.sparkContext = self
        self._jsc = SimpleNamespace(sc=lambda: self)

    def getExecutorMemoryStatus(self) -> Any:  # noqa: N802 - as Spark calls it
        return SimpleNamespace(size=lambda: self.executors + 1)

    def isStopped(self) -> bool:  # noqa: N802 - as Spark calls it
        return self.stopped

    def statusTracker(self) -> Any:  # noqa: N802 - as Spark calls it
        return SimpleNamespace(getActiveJobsIds=lambda: list(range(self.jobs)))

    def cancelAllJobs(self) -> None:  # noqa: N802 - as Spark calls it
        self.cancelled.set()

    @property
    def defaultParallelism(self) -> int:  # noqa: N802 - as Spark calls it
        return max(2, 3 * self.executors)

    @property
    def conf(self) -> Any:
        return SimpleNamespace(get=lambda name: self.own.get(name, "200"), set=self.own.__setitem__)

    def getConf(self) -> Any:  # noqa: N802 - as Spark calls it
        return SimpleNamespace(get=self.settings.get)


def session(cluster: Cluster) -> SparkSession:
    return cast("SparkSession", cluster)


def watching(cluster: Cluster) -> ExecutorWatch:
    return ExecutorWatch(session(cluster), gone_s=0.05, look_s=0.01)


def test_jobs_that_no_executor_is_left_to_run_are_cancelled_with_a_reason() -> None:
    cluster = Cluster(executors=0, jobs=1)
    watch = watching(cluster)

    assert cluster.cancelled.wait(30)
    assert "no executor" in watch.reason
    watch.stop()


@pytest.mark.parametrize(("executors", "jobs"), [(1, 1), (0, 0)], ids=["an executor is there", "no job waits"])
def test_jobs_are_left_alone_otherwise(executors: int, jobs: int) -> None:
    cluster = Cluster(executors=executors, jobs=jobs)
    watch = watching(cluster)

    holds_for(lambda: not cluster.cancelled.is_set() and not watch.reason, "nothing is cancelled", seconds=0.3)
    watch.stop()


def test_cluster_that_starts_no_executor_is_named_with_what_the_session_needs() -> None:
    wanted = {"spark.executor.memory": "8g", "spark.driver.host": "10.0.0.1", "spark.driver.port": "7078"}

    with pytest.raises(LakeUnready, match=r"spark://head:7077 has no executor: no executor has started") as raised:
        await_executors(session(Cluster(executors=0, jobs=0, **wanted)), within_s=0.0)

    assert "8g of memory" in str(raised.value.hint)
    assert "10.0.0.1:7078" in str(raised.value.hint)


def test_context_that_the_cluster_has_ended_is_not_waited_for() -> None:
    cluster = Cluster(executors=0, jobs=0)
    cluster.stopped = True

    with pytest.raises(LakeUnready, match="the cluster has ended the application"):
        await_executors(session(cluster))


def test_dynamic_allocation_may_begin_without_executors() -> None:
    await_executors(session(Cluster(executors=0, jobs=0, **{"spark.dynamicAllocation.enabled": "true"})))


def test_shuffles_follow_the_cores_of_the_executors() -> None:
    cluster = Cluster(executors=1, jobs=0)
    watch = watching(cluster)

    until(lambda: cluster.own == {SHUFFLE_PARTITIONS: "6"}, "shuffles fit one executor", within_s=30)
    cluster.executors = 4
    until(lambda: cluster.own == {SHUFFLE_PARTITIONS: "24"}, "shuffles fit four executors", within_s=30)
    watch.stop()


@pytest.mark.parametrize("setting", [(SHUFFLE_PARTITIONS, "50"), ("spark.dynamicAllocation.enabled", "true")])
def test_shuffles_that_the_user_set_or_whose_cores_are_not_known_stay(setting: tuple[str, str]) -> None:
    cluster = Cluster(executors=4, jobs=0, **dict([setting]))

    follow_cores(session(cluster))

    assert cluster.own == {}
