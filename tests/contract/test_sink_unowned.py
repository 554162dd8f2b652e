"""Partitions that a worker orphans when it is killed between the two rounds of a rebalance are assigned again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from cdc.kafka.group_offsets import GroupAssignmentReader
from tests.fixtures.servers.running_servers import KafkaServer
from tests.fixtures.servers.waiting import holds_for, until
from tests.fixtures.sinks.dying_member import dying_member
from tests.fixtures.sinks.memory_target import MemoryTarget
from tests.fixtures.sinks.sink_logs import live
from tests.fixtures.sinks.sink_rig import SinkRig, Worker


@pytest.fixture
def rig(kafka: KafkaServer, topic_prefix: str) -> SinkRig:
    return SinkRig(kafka.bootstrap, f"{topic_prefix}.public.t", partitions=2)


@contextmanager
def half_dealt(rig: SinkRig, target: MemoryTarget, *, looks: bool) -> Iterator[tuple[Worker, Worker]]:
    """Two workers with an instance id each, one of which came after one that was killed between two rounds."""
    with ExitStack() as ending:
        dying = ending.enter_context(dying_member(rig, "a"))
        ending.callback(dying.kill)
        assert dying.stdout is not None
        assert dying.stdout.readline() == "2\n"
        second = ending.enter_context(rig.worker(target, instance="b", looks=looks))
        assert dying.wait(60) == 9
        yield ending.enter_context(rig.worker(target, instance="a", looks=looks)), second


def test_partition_orphaned_by_a_killed_worker_is_read_again(rig: SinkRig) -> None:
    target = MemoryTarget()
    with half_dealt(rig, target, looks=True) as (first, second):
        rig.fill(100)
        rig.until_level()

        assert len(first.places) == len(second.places) == 1
        assert live(target.stored_keys(rig.topic)) == rig.rows


def test_broker_by_itself_leaves_such_a_partition_unread(rig: SinkRig) -> None:
    """If this fails, brokers do it themselves and `sinks.runner.orphaned_partitions` can be removed."""
    with half_dealt(rig, MemoryTarget(), looks=False) as (first, second):
        until(lambda: len(first.places) == 1, "it has what was left to it")
        holds_for(lambda: len(first.places) == 1 and not second.places, "the other one is nobody's", seconds=8.0)

        dealing = GroupAssignmentReader(rig.kafka, rig.group)
        dealt = until(dealing.look, "the coordinator answers")
        assert dealt is not None
        assert dealt.stable
        assert sorted(len(owner.places) for owner in dealt.owners) == [0, 1]
        assert {owner.instance for owner in dealt.owners} == {"a", "b"}
