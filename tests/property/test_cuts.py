"""The cut index returns, for every LSN, the latest position that precedes everything from there on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.cutindex.lookup import cut_before
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition, TopicBuffer
from cdc.model.progress_record import Cut
from cdc.publish.ledger import Partition
from cdc.publish.publisher import KafkaPublisher
from tests.fixtures.capture.memory_log import MemoryLog, ring
from tests.fixtures.servers.executors import Scripted
from tests.fixtures.servers.manual_clock import ManualClock

TOPIC = "shop.public.orders"
PARTITIONS = 3


@dataclass(frozen=True)
class Commit:
    """One source transaction: rows by partition, in `pieces` Kafka transactions; `alone` ends a batch."""

    rows: Sequence[int]
    distance: int
    pieces: int
    alone: bool
    pause_s: float


commits = st.lists(
    st.builds(
        Commit,
        rows=st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=4),
        distance=st.integers(0, 5),
        pieces=st.integers(1, 3),
        alone=st.booleans(),
        pause_s=st.sampled_from((0.0, 0.0, 11.0)),  # a full map comes every 10 s
    ),
    max_size=10,
)


def publish(script: Sequence[Commit]) -> MemoryLog:
    log, clock = MemoryLog(partition_counts={TOPIC: PARTITIONS}), ManualClock()
    publisher = KafkaPublisher("shop", ring(log), clock, epoch=1, executor=Scripted())
    publisher.fence()
    for index in range(PARTITIONS):
        publisher.ledger.open((TOPIC, index), end_offset=0, before=None)
    publisher.commit(StreamPosition(Lsn(10)), Lsn(10))
    buffer, end_lsn, commit_lsn = TopicBuffer(TOPIC, PARTITIONS), Lsn(10), Lsn(0)
    for commit in script:
        commit_lsn = Lsn(end_lsn + commit.distance)
        for ordinal, partition in enumerate(commit.rows, start=1):
            buffer.partitions[partition].append((b"k", b"%d" % commit_lsn, None))
            if ordinal < commit.pieces:
                publisher.write([buffer], [])
                publisher.commit(StreamPosition(end_lsn, commit_lsn, ordinal + 1), end_lsn)
        end_lsn = Lsn(commit_lsn + 2)
        clock.now_s += commit.pause_s
        if commit.alone:
            publisher.write([buffer], [])
            publisher.commit(StreamPosition(end_lsn, commit_lsn), end_lsn)
    publisher.write([buffer], [])
    publisher.commit(StreamPosition(end_lsn, commit_lsn), end_lsn)
    return log


def passed(log: MemoryLog, offsets: dict[Partition, int]) -> list[int]:
    """Commit LSNs of the events that a reader starting at `offsets` never sees."""
    return [
        int(stored.value or b"0")
        for stored in log.records(TOPIC)
        if stored.offset < offsets.get((TOPIC, stored.partition), 0)
    ]


@settings(max_examples=40)
@given(script=commits)
def test_position_precedes_everything_from_the_lsn_on_and_is_the_latest(script: Sequence[Commit]) -> None:
    log = publish(script)
    cuts = [msgspec.json.decode(stored.value, type=Cut) for stored in log.records("shop.__cuts") if stored.value]
    maps: list[dict[Partition, int]] = []
    for cut in cuts:
        changed = {(TOPIC, int(name.rpartition("-")[2])): account[0] for name, account in cut.changed.items()}
        maps.append({**(maps[-1] if maps else {}), **changed})

    for lsn in range(cuts[-1].end_lsn + 3):
        place = cut_before(log, "shop", Lsn(lsn))

        sound = [found for found in maps if all(commit_lsn < lsn for commit_lsn in passed(log, found))]
        assert place is not None
        missed = passed(log, place.offsets)
        assert all(commit_lsn < lsn for commit_lsn in missed)
        assert len(missed) == max((len(passed(log, found)) for found in sound), default=0)


def test_an_empty_index_has_no_position() -> None:
    assert cut_before(MemoryLog(), "shop", Lsn(1)) is None
