"""Pausing a sink on a real broker, and its state as other processes see it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from cdc.clock import SystemClock
from cdc.config.load import parse
from cdc.config.settings import Config
from cdc.errors import SinkBehind, SinkBusy, SinkUnreachable
from cdc.model.topic_names import sink_group
from sinks.contract import Change, Outcome, Topic
from sinks.operate.sink_view import SinkViewer
from sinks.runner.key_queues import Bounds
from sinks.state.exclusive import claimed
from sinks.state.pause import pause_sink, resume_sink
from sinks.state.pause_records import WorkerPause
from sinks.state.state_topic import StateTopic
from tests.fixtures.servers.running_servers import KafkaServer
from tests.fixtures.servers.waiting import holds_for, until
from tests.fixtures.sinks.memory_target import MemoryTarget
from tests.fixtures.sinks.sink_logs import live
from tests.fixtures.sinks.sink_rig import SinkRig, Worker

CONFIG = """
name = "{name}"
[source]
dsn = "postgresql://db/shop"
[kafka]
bootstrap = "{bootstrap}"
replication_factor = 1
allow_unreplicated = true
[sinks.s]
kind = "search"
url = "http://localhost:9200"
"""


@pytest.fixture
def config(kafka: KafkaServer, topic_prefix: str) -> Config:
    return parse(CONFIG.format(name=topic_prefix, bootstrap=kafka.bootstrap), {})


@pytest.fixture
def rig(config: Config) -> SinkRig:
    return SinkRig(config.kafka.bootstrap, f"{config.name}.public.t", group=sink_group(config.name, "s"))


def test_paused_sink_stands_still_over_restarts_until_it_goes_on(rig: SinkRig, config: Config) -> None:
    clock, target = SystemClock(), MemoryTarget()

    def worker(closing: ExitStack) -> Worker:
        state = StateTopic(config, "s")
        closing.callback(state.close)
        return closing.enter_context(rig.worker(target, control=WorkerPause(state, SystemClock())))

    with ExitStack() as closing:
        one, two = worker(closing), worker(closing)
        rig.fill(200)
        rig.until_level()

        assert pause_sink(config, "s", clock, timeout_s=90) == 2
        before, applied = rig.committed(), one.told.records + two.told.records
        rig.fill(100, begin=5000)
        holds_for(lambda: one.told.records + two.told.records == applied, "nothing is applied", seconds=1.5)
        assert rig.committed() == before
        assert {one.told.waiting, two.told.waiting} == {"paused"}
        until(lambda: one.told.lag.records + two.told.lag.records >= 100, "the lag counts what a pause holds up")
    with ExitStack() as closing:
        again = worker(closing)
        until(lambda: again.told.waiting == "paused", "it comes up paused")
        assert pause_sink(config, "s", clock, timeout_s=90) == 1
        assert again.told.records == 0
        assert resume_sink(config, "s")
        rig.until_level()
        assert not resume_sink(config, "s")

    assert live(target.stored_keys(rig.topic)) == rig.rows


def test_lag_of_a_slow_sink_counts_the_records_that_it_has_not_read_yet(rig: SinkRig) -> None:
    store = _HeldStore()
    with rig.worker(store, settings={"parallel": 1, "request_records": 10}, bounds=Bounds(records_max=40)) as worker:
        until(lambda: len(worker.places) == rig.partitions, "it has all partitions, which are empty")
        rig.fill(200)
        until(lambda: worker.told.lag.records >= 150, "the lag is that of the whole backlog")
        store.goes_on.set()
        rig.until_level()
        until(lambda: worker.told.lag.records == 0, "nothing is left")


def test_lag_is_unknown_and_not_0_while_a_worker_cannot_take_its_partitions(rig: SinkRig) -> None:
    rig.fill(50)

    with rig.worker(_ClosedStore()) as worker:
        assert isinstance(worker.ended(), SinkUnreachable)

    assert worker.told.history == []


class _ClosedStore(MemoryTarget):
    """Cannot be opened."""

    def open(self, topics: Sequence[Topic]) -> None:
        raise SinkUnreachable("the store does not answer")


class _HeldStore(MemoryTarget):
    """Answers no request before `goes_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        assert self.goes_on.wait(60)
        return super().apply(changes)


def test_pause_of_a_sink_that_does_not_run_holds_and_one_that_does_not_answer_is_named(
    rig: SinkRig, config: Config
) -> None:
    assert pause_sink(config, "s", SystemClock(), timeout_s=90) == 0
    rig.fill(10)
    # This one never hears of it.
    with rig.worker(MemoryTarget()):
        rig.until_level()
        with pytest.raises(SinkBehind, match="1 of 1 workers"):
            pause_sink(config, "s", SystemClock(), timeout_s=0.5)


def test_two_rebuilds_of_a_sink_exclude_each_other_and_the_running_one_is_shown(config: Config) -> None:
    clock = SystemClock()
    viewer = SinkViewer(config, clock)
    with claimed(config, "s", "rebuild", clock):
        who = f"a rebuild of sink 's' is already running: process {os.getpid()} on "
        with pytest.raises(SinkBusy, match=who), claimed(config, "s", "rollback", clock):
            pytest.fail("both are at it")
        assert viewer.busy("s").startswith(f"rebuild: process {os.getpid()} on ")
    assert viewer.busy("s") == ""
    viewer.close()

    with claimed(config, "s", "rollback", clock):
        pass
