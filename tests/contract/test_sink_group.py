"""The runner of a sink and its group on a real broker, with the store in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

import pytest

from cdc.errors import ProducerFenced, SinkGap, SinkStale, SinkUnreachable, TopicMismatch
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.group_member import CommittedOffset
from cdc.kafka.group_offsets import GroupAdmin
from sinks.contract import Change, Outcome, TopicPartition, Verdict
from tests.fixtures.servers.running_servers import KafkaServer
from tests.fixtures.servers.waiting import holds_for, until
from tests.fixtures.sinks.memory_target import MemoryTarget
from tests.fixtures.sinks.sink_logs import live
from tests.fixtures.sinks.sink_rig import MemoryLetters, SinkRig, key_bytes


@pytest.fixture
def rig(kafka: KafkaServer, topic_prefix: str) -> SinkRig:
    return SinkRig(kafka.bootstrap, f"{topic_prefix}.public.t")


def held(rig: SinkRig, target: MemoryTarget) -> Mapping[bytes | None, Mapping[str, object]]:
    return live(target.stored_keys(rig.topic))


class Slow(MemoryTarget):
    """A store in which one key takes until it is let go, in whatever request it comes."""

    def __init__(self, key: object) -> None:
        super().__init__()
        self.slow = key_bytes(key)
        self.let_go = threading.Event()
        self.entered = threading.Event()

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        if any(change.key == self.slow for change in changes):
            self.entered.set()
            assert self.let_go.wait(60)
        return super().apply(changes)


class Stormy(MemoryTarget):
    """A store without room for most of what it is asked, again and again."""

    def __init__(self, *, refusals: int) -> None:
        super().__init__()
        self.left: dict[bytes, int] = {}
        self.refusals = refusals
        self.sizes: list[int] = []

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        self.sizes.append(len(changes))
        found = []
        for change in changes:
            left = self.left.setdefault(change.key, self.refusals)
            self.left[change.key] = max(0, left - 1)
            found.append(Outcome(Verdict.LATER, "busy") if left else super().apply([change])[0])
        return found


class Failing(MemoryTarget):
    """A store that is away for a while, and has lost what came after a position when it is back."""

    def __init__(self) -> None:
        super().__init__()
        self.away = threading.Event()
        self.kept: dict[TopicPartition, int] = {}
        self.lossy = False
        self.asked = 0

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        if self.away.is_set():
            raise SinkUnreachable("the store is away")
        return super().apply(changes)

    def save_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        self.kept.update(positions)

    def saved_positions(self) -> Mapping[TopicPartition, int] | None:
        self.asked += 1
        if self.away.is_set():
            raise SinkUnreachable("the store is away")
        return dict(self.kept) if self.lossy else None


class Refusing(MemoryTarget):
    """A store that will never take some keys, until it will."""

    def __init__(self, *keys: object) -> None:
        super().__init__()
        self.never = {key_bytes(key) for key in keys}

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        take = super().apply
        return [
            Outcome(Verdict.REFUSED, "mapping", "no") if change.key in self.never else take([change])[0]
            for change in changes
        ]


def test_store_equals_the_fold_of_the_log_and_offsets_reach_its_end(rig: SinkRig) -> None:
    rig.fill(3000, keys=100)
    rig.write([(3, None), (5, None)])
    target = MemoryTarget()
    with rig.worker(target) as worker:
        rig.until_level()
        rig.fill(500, keys=50, begin=9000)
        rig.until_level()

    assert worker.error is None
    assert held(rig, target) == rig.rows
    assert [schema.topic for schema in target.schemas] == [rig.topic]


def test_protocol_of_kafka_4_is_taken_when_it_is_asked_for(rig: SinkRig) -> None:
    target, options = MemoryTarget(), {"group__protocol": "consumer"}
    rig.fill(300)
    with rig.worker(target, options=options) as one:
        rig.until_level()
        with rig.worker(target, options=options) as two:
            until(lambda: len(one.places) == len(two.places) == 2, "both have two")
            rig.fill(300, begin=1000)
            rig.until_level()
        until(lambda: len(one.places) == 4, "the first has all again")

    assert held(rig, target) == rig.rows
    assert one.told.records + two.told.records == 600


def test_restarted_worker_continues_where_it_stopped(rig: SinkRig) -> None:
    rig.fill(500)
    with rig.worker(MemoryTarget()):
        rig.until_level()
    rig.fill(10, begin=5000)
    with rig.worker(MemoryTarget()) as again:
        rig.until_level()
        until(lambda: again.told.levels, "level")

    assert again.told.records == 10


def test_partitions_are_shared_by_workers_that_come_and_go(rig: SinkRig) -> None:
    target = MemoryTarget()
    stop, wrote = threading.Event(), 0

    def load() -> None:
        nonlocal wrote
        while not stop.wait(0.01):
            rig.fill(20, keys=40, begin=wrote)
            wrote += 20

    writer = threading.Thread(target=load)
    writer.start()
    try:
        with rig.worker(target) as one:
            until(lambda: len(one.places) == 4, "the first has all")
            with rig.worker(target) as two:
                until(lambda: len(one.places) == 2 and len(two.places) == 2, "both have two")
                with rig.worker(target) as three:
                    until(
                        lambda: sorted(map(len, (one.places, two.places, three.places))) == [1, 1, 2], "all have some"
                    )
                assert not one.places & two.places
            until(lambda: len(one.places) == 4, "the first has all again")
            stop.set()
            writer.join()
            rig.until_level()
    finally:
        stop.set()
        writer.join()

    assert [worker.error for worker in (one, two, three)] == [None] * 3
    assert held(rig, target) == rig.rows
    # Who hands a partition over has finished and committed what was under way: nothing was applied twice.
    assert sum(worker.told.records for worker in (one, two, three)) == wrote


def test_slow_key_holds_up_no_other_and_nothing_behind_it_is_committed(rig: SinkRig) -> None:
    place = rig.place(1)
    others = [key for key in range(200) if rig.place(key) == place and key != 1]
    target = Slow(1)
    with rig.worker(target, settings={"request_records": 1}) as worker:
        rig.write([(1, {"id": 1, "v": 0})])
        assert target.entered.wait(90)
        rig.write([(key, {"id": key, "v": 7}) for key in others] + [(1, {"id": 1, "v": 9})])
        until(lambda: len(held(rig, target)) == len(others), "all others are there")

        assert worker.runner.positions[place] == 0
        holds_for(lambda: rig.committed().get(place, 0) == 0, "nothing is committed", seconds=0.5)
        target.let_go.set()
        rig.until_level()

    assert held(rig, target) == rig.rows


def test_store_without_room_is_asked_of_those_keys_alone_and_with_fewer(rig: SinkRig) -> None:
    target = Stormy(refusals=3)
    rig.fill(400, keys=200)
    with rig.worker(target, settings={"parallel": 2}) as worker:
        rig.until_level()

    assert held(rig, target) == rig.rows
    assert worker.told.later == 600
    assert worker.told.waited == []


def test_store_that_is_away_is_waited_for_and_says_so(rig: SinkRig) -> None:
    target = Failing()
    with rig.worker(target) as worker:
        rig.fill(100)
        rig.until_level()
        target.away.set()
        rig.fill(100, begin=1000)
        until(lambda: worker.told.waiting == "store", "it waits for the store")
        before = rig.committed()
        target.away.clear()
        rig.until_level()
        until(lambda: worker.told.waiting == "", "it says that it goes on")

    assert before != rig.committed()
    assert held(rig, target) == rig.rows


def test_store_that_lost_what_it_acknowledged_is_written_again(rig: SinkRig) -> None:
    target = Failing()
    target.lossy = True
    with rig.worker(target) as worker:
        rig.fill(100, keys=100)
        rig.until_level()
        remembered, kept = dict(target._keys), dict(target.kept)
        rig.fill(100, keys=50, begin=1000)
        rig.until_level()
        target.away.set()
        rig.fill(1, begin=5000)
        until(lambda: worker.told.waiting == "store", "it waits for the store")
        target._keys, target.kept = remembered, kept
        target.away.clear()
        rig.until_level()
        until(lambda: held(rig, target) == rig.rows, "all of it is there again")

    assert worker.error is None


def test_refused_key_is_parked_with_all_that_follows_until_it_is_tried_again(rig: SinkRig) -> None:
    target, letters = Refusing(1), MemoryLetters()
    with rig.worker(target, letters=letters) as worker:
        rig.write([(1, {"id": 1, "v": 1}), (2, {"id": 2, "v": 1})])
        rig.until_level()
        rig.write([(1, {"id": 1, "v": 2}), (1, {"id": 1, "v": 3}), (2, {"id": 2, "v": 2})])
        rig.until_level()
        (name,) = letters.parked
        assert len(letters.parked[name]) == 3

        letters.wanted.append(name)
        until(lambda: letters.outcomes, "it was tried")
        assert letters.outcomes[0].verdict is Verdict.REFUSED
        target.never.clear()
        letters.wanted.append(name)
        until(lambda: not letters.parked, "it is no longer blocked")
        rig.write([(1, {"id": 1, "v": 4})])
        rig.until_level()

    assert worker.error is None
    assert held(rig, target) == rig.rows


def test_memory_is_bounded_by_pausing_and_all_is_applied(rig: SinkRig) -> None:
    from sinks.runner.key_queues import Bounds

    rig.fill(6000, keys=3000)
    target = Slow(-1)
    most = 0
    with rig.worker(target, bounds=Bounds(records_max=400, bytes_max=1 << 20), settings={"request_records": 50}) as one:
        while not one.told.levels:
            most = max(most, sum(load.record_count for load in one.runner._queues.held.values()))
            time.sleep(0.001)
        rig.until_level()

    assert held(rig, target) == rig.rows
    assert most <= 400 + 2000, "one batch beyond the bound at most"


def test_topic_made_again_is_stale_at_the_start_and_writes_nothing(rig: SinkRig) -> None:
    rig.fill(50)
    with rig.worker(MemoryTarget()):
        rig.until_level()
    _make_again(rig)
    rig.fill(500)
    target = MemoryTarget()
    with rig.worker(target) as worker:
        error = worker.ended()

    assert isinstance(error, SinkStale)
    assert "recreated" in error.message
    assert error.command == "cdc sink rebuild s"
    assert held(rig, target) == {}


def test_topic_recreated_at_runtime_is_detected_and_nothing_of_it_is_written(rig: SinkRig) -> None:
    rig.fill(50)
    target = MemoryTarget()
    with rig.worker(target, watch_s=0.5) as worker:
        rig.until_level()
        before = held(rig, target)
        _make_again(rig)
        rig.write([(n, {"id": n, "v": "of another history"}) for n in range(5)])
        error = worker.ended()

    assert isinstance(error, (SinkStale, TopicMismatch)), "gone or made again, by the moment it looked"
    assert held(rig, target) == before


def test_sleeper_beyond_the_life_of_deletes_is_stale_unless_it_missed_nothing(
    kafka: KafkaServer, topic_prefix: str
) -> None:
    configs = {"min.compaction.lag.ms": "500", "delete.retention.ms": "500"}
    rig = SinkRig(kafka.bootstrap, f"{topic_prefix}.public.t", configs=configs)
    rig.fill(50)
    with rig.worker(MemoryTarget()):
        rig.until_level()
    time.sleep(2.1)
    with rig.worker(MemoryTarget()) as awake:
        until(lambda: awake.told.levels, "nothing was missed")
    time.sleep(2.1)
    rig.fill(50)
    with rig.worker(MemoryTarget()) as worker:
        error = worker.ended()

    assert awake.error is None
    assert isinstance(error, SinkStale)
    assert "may have missed some" in error.message


def test_group_whose_offsets_kafka_has_forgotten_is_stale(rig: SinkRig) -> None:
    rig.fill(50)
    with rig.worker(MemoryTarget()):
        rig.until_level()
    GroupAdmin(rig.kafka).delete(rig.group)
    with rig.worker(MemoryTarget()) as worker:
        error = worker.ended()

    assert isinstance(error, SinkStale)
    assert "has lost its committed offset" in error.message


def test_offset_that_is_gone_is_a_gap(kafka: KafkaServer, topic_prefix: str) -> None:
    # Kafka deletes no records of a topic that is only compacted; one that was adopted may have this.
    rig = SinkRig(kafka.bootstrap, f"{topic_prefix}.public.t", configs={"cleanup.policy": "compact,delete"})
    rig.fill(200)
    with rig.worker(MemoryTarget()):
        rig.until_level()
    ends = rig.ends()
    rig.fill(200)
    _delete_records(rig, {place: end + 5 for place, end in ends.items()})
    target = MemoryTarget()
    with rig.worker(target) as worker:
        error = worker.ended()

    assert isinstance(error, SinkGap)
    assert "Kafka removed records" in error.hint
    assert held(rig, target) == {}


def test_offset_of_another_topic_id_is_not_used_though_it_fits(rig: SinkRig) -> None:
    rig.fill(200)
    ends = rig.ends()
    foreign = {place: CommittedOffset(1, '{"topic_id":"somebody-elses","at_s":9999999999}') for place in ends}
    GroupAdmin(rig.kafka).alter(rig.group, foreign)
    with rig.worker(MemoryTarget()) as worker:
        assert isinstance(worker.ended(), SinkStale)
    GroupAdmin(rig.kafka).alter(rig.group, {place: CommittedOffset(0, "") for place in ends})
    target = MemoryTarget()
    with rig.worker(target):
        rig.until_level()

    assert held(rig, target) == rig.rows


def test_worker_with_an_instance_id_keeps_its_partitions_over_a_restart(rig: SinkRig) -> None:
    rig.fill(50)
    target = MemoryTarget()
    with rig.worker(target, instance="b") as other:
        with rig.worker(target, instance="a") as first:
            until(lambda: len(first.places) == len(other.places) == 2, "both have two")
            places = first.places
        with rig.worker(target, instance="a") as again:
            until(lambda: len(again.places) == 2, "it has two again")
            assert again.places == places
            with rig.worker(target, instance="a"):
                error = again.ended()

    assert isinstance(error, ProducerFenced)
    assert other.error is None


def _make_again(rig: SinkRig) -> None:
    client = TopicAdmin(rig.kafka)._client
    client.delete_topics([rig.topic])[rig.topic].result(90)
    until(lambda: TopicAdmin(rig.kafka).describe([rig.topic])[rig.topic] is None, "the topic is gone")
    rig.make()
    rig.rows.clear()


def _delete_records(rig: SinkRig, before: Mapping[TopicPartition, int]) -> None:
    from confluent_kafka import TopicPartition

    client = TopicAdmin(rig.kafka)._client
    for future in client.delete_records([TopicPartition(*place, offset) for place, offset in before.items()]).values():
        future.result(90)
