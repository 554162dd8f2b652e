"""The cut index describes the log correctly after any writes, aborts and restarts; G3 and G8 depend on it.

The publisher runs against a broker in memory that knows offsets, markers and aborted records; every cut is then
compared with what a read_committed reader finds up to it. Markers may come late, among records of later transactions.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from cdc.errors import OutcomeUnknown
from cdc.lsn import Lsn
from cdc.model.change_records import Record, StreamPosition, TopicBuffer
from cdc.model.progress_record import Cut
from cdc.progress.record_format import decode
from cdc.progress.restore import restore
from cdc.publish.ledger import Ledger, Partition
from cdc.publish.publisher import KafkaPublisher
from tests.fixtures.capture.memory_log import MemoryLog, Stored, ring
from tests.fixtures.servers.executors import Scripted
from tests.fixtures.servers.identities import identity
from tests.fixtures.servers.manual_clock import ManualClock

_TOPICS = {"shop.public.a": 2, "shop.public.b": 1}
_IDENTITY = identity(_TOPICS)
_RING_MAX = 4

records = st.tuples(st.one_of(st.none(), st.binary(max_size=3)), st.one_of(st.none(), st.binary(max_size=3)), st.none())
writes = st.lists(
    st.tuples(st.sampled_from(["shop.public.a", "shop.public.b"]), st.integers(0, 1), st.lists(records, max_size=3)),
    max_size=3,
)
steps = st.lists(st.one_of(st.just("restart"), st.just("wait"), st.lists(writes, max_size=2)), max_size=12)


@dataclass(slots=True)
class Writer:
    """Publishes to a log, and starts over like the daemon: a new producer, accounts from the cut index."""

    log: MemoryLog = field(default_factory=lambda: MemoryLog(partition_counts=dict(_TOPICS)))
    clock: ManualClock = field(default_factory=ManualClock)
    end_lsn: int = 100
    size: int = 3
    publisher: KafkaPublisher = field(init=False)

    def start(self) -> None:
        self.publisher = KafkaPublisher(
            "shop", ring(self.log, _RING_MAX), self.clock, epoch=1, ring=self.size, executor=Scripted()
        )
        self.publisher.fence()
        self.publisher.write_sentinel(b"nonce")
        restored = restore(self.log, "shop")
        for partition, (_, high) in self.log.end_offsets(_TOPICS).items():
            before = restored.accounts.get(f"{partition[0]}-{partition[1]}")
            self.publisher.ledger.open(partition, end_offset=high, before=before)
        self.publisher.introduce(_IDENTITY, restored.since_lsn)
        self.commit()

    def write(self, batch: list[tuple[str, int, list[Record]]]) -> None:
        for topic, index, new in batch:
            buffer = TopicBuffer(topic, _TOPICS[topic])
            buffer.partitions[index % _TOPICS[topic]] += new
            self.publisher.write([buffer], [])

    def commit(self) -> None:
        self.end_lsn += 1
        self.publisher.commit(StreamPosition(Lsn(self.end_lsn)), Lsn(0))


@given(steps, st.integers(1, _RING_MAX), st.one_of(st.none(), st.randoms(use_true_random=False)))
def test_every_cut_says_how_far_each_partition_is_and_what_is_in_it(
    drawn: list[str | list[object]], size: int, dice: random.Random | None
) -> None:
    writer = Writer(size=size)
    writer.log.dice = dice
    writer.start()
    for step in drawn:
        if step == "wait":
            writer.clock.now_s += 60.0
        elif step == "restart":
            writer.write([("shop.public.a", 0, [(b"k", b"never committed", None)] * 2)])
            writer.publisher.close()
            writer.start()
        else:
            for batch in step:
                writer.write(batch)  # type: ignore[arg-type]
            writer.commit()

    known: dict[str, tuple[int, int, str]] = {}
    for cut in _cuts(writer.log):
        if cut.full:
            assert cut.changed.keys() >= known.keys()
            assert len(cut.changed) == 3
        known.update(cut.changed)
        for name, account in known.items():
            assert account == _account(writer.log, name, account[0]), name
    for partition in writer.log.end_offsets(_TOPICS):
        name = f"{partition[0]}-{partition[1]}"
        assert known[name][1] == len(_committed(writer.log, name))


@given(steps, st.sampled_from(sorted((topic, index) for topic, count in _TOPICS.items() for index in range(count))))
def test_record_of_another_writer_is_found_before_the_commit(
    drawn: list[str | list[object]], partition: Partition
) -> None:
    writer = Writer()
    writer.start()
    for step in drawn:
        for batch in step if isinstance(step, list) else []:
            writer.write(batch)  # type: ignore[arg-type]
        writer.commit()
    seen = len(writer.log.committed)

    writer.log.append(partition, (b"x", b"foreign", None), transaction=-1)
    writer.write([(*partition, [(b"k", b"v", None)])])

    with pytest.raises(OutcomeUnknown):
        writer.commit()
    assert len(writer.log.committed) == seen


@given(
    steps,
    st.integers(2, _RING_MAX),
    st.randoms(use_true_random=False),
    st.sampled_from(sorted((topic, index) for topic, count in _TOPICS.items() for index in range(count))),
)
def test_record_of_another_writer_is_found_at_the_latest_when_markers_have_caught_up(
    drawn: list[str | list[object]], size: int, dice: random.Random, partition: Partition
) -> None:
    """While a marker is missing, a foreign record can be taken for it; not for longer."""
    writer = Writer(size=size)
    writer.log.dice = dice
    writer.start()
    for step in drawn:
        for batch in step if isinstance(step, list) else []:
            writer.write(batch)  # type: ignore[arg-type]
        writer.commit()

    writer.log.append(partition, (b"x", b"foreign", None), transaction=-1)
    with suppress(OutcomeUnknown):
        writer.write([(*partition, [(b"k", b"v", None)])])
        writer.commit()
        writer.log.write_markers(lambda _: True)
        writer.write([(*partition, [(b"k", b"v", None)])])
        writer.commit()
        pytest.fail("nothing noticed the record")


@pytest.mark.parametrize("size", range(1, 5))
def test_markers_of_all_other_producers_may_be_missing_and_no_more(size: int) -> None:
    """A producer begins when the markers of its own transactions are written."""
    ledger = Ledger(size)
    ledger.open(("t", 0), end_offset=0, before=None)

    for offset in range(size + 1):
        ledger.write(("t", 0), [(b"k", b"v", None)])
        found = ledger.delivered({("t", 0): offset})  # no marker at all
        ledger.committed()

        assert (found is None) == (offset < size), offset


@pytest.mark.parametrize("missing", [0, 1])
def test_reach_is_never_beyond_what_the_log_will_have(missing: int) -> None:
    """A sweep waits until a topic has that many offsets, also while another thread learns of the delivery."""
    ledger, at = Ledger(2), ("t", 0)
    ledger.open(at, end_offset=0, before=None)
    ledger.write(at, [(b"k", b"v", None)])
    assert ledger.delivered({at: 0}) is None
    ledger.committed()
    ledger.write(at, [(b"k", b"v", None)])
    end = 3  # two records and the marker between or behind them
    reached = [ledger.reach("t")[at]]

    assert ledger.delivered({at: 2 - missing}) is None
    reached.append(ledger.reach("t")[at])
    ledger.committed()

    assert reached == [end, end]
    assert ledger.reach("t")[at] == end - missing


def _cuts(log: MemoryLog) -> list[Cut]:
    return [decode(stored.value, Cut, "cuts") for stored in log.records("shop.__cuts") if stored.value is not None]


def _committed(log: MemoryLog, name: str) -> list[Stored]:
    topic, _, index = name.rpartition("-")
    return [stored for stored in log.records(topic) if stored.partition == int(index)]


def _account(log: MemoryLog, name: str, next_offset: int) -> tuple[int, int, str]:
    """What an auditor computes of a partition up to an offset: the offset after the last record, count, hash."""
    found = [stored for stored in _committed(log, name) if stored.offset < next_offset]
    rolling = 0
    for stored in found:
        rolling = xxh3_64_intdigest((stored.key or b"") + (stored.value or b""), rolling)
    end = found[-1].offset + 1 if found else next_offset
    return end, len(found), f"{rolling:016x}"
