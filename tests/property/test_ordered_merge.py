"""An ordered read returns the plain sort of all records, in bounded memory, and resumes at exactly the next event."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc.cutindex.log_start import AtLsn, Beginning
from cdc.errors import TopicMismatch, UsageError
from cdc.inspect.ordered_range import OrderedStart, RangeFinder
from cdc.inspect.ordered_reader import OrderedEvent, OrderedReader
from cdc.inspect.resume_token import LogIdentity, decode_token
from cdc.lsn import Lsn
from tests.fixtures.capture.ordered_world import NAME, Name, OrderedWorld
from tests.fixtures.servers.manual_clock import ManualClock

LOG = LogIdentity(NAME, "id-of-cuts")
HELD_MAX = 8
BATCH_MAX = 5  # of the world

seeds = st.integers(0, 1 << 32)


def grown(seed: int, transactions: int = 12, *, end_lsn: int = 100) -> OrderedWorld:
    """A log of three topics with six partitions in all, from an LSN on, finished at a boundary."""
    dice = random.Random(seed)
    partitions = [(f"{NAME}.public.{table}", index) for table, count in (("a", 3), ("b", 2)) for index in range(count)]
    world = OrderedWorld(dice, partitions, end_lsn=end_lsn)
    grow(world, transactions)
    world.add_topic(f"{NAME}.public.c", 1)
    grow(world, transactions)
    return world


def grow(world: OrderedWorld, transactions: int) -> None:
    for _ in range(transactions):
        world.transaction(world.dice.randrange(1, 12), spread=world.dice.random() < 0.4)
        if world.dice.random() < 0.3:
            world.snapshot_rows(world.dice.randrange(1, 9))
        if world.dice.random() < 0.05:
            world.repair()
    world.finish()


def compacted(world: OrderedWorld) -> None:
    """Compact each partition up to a random offset."""
    world.compact({at: world.dice.randrange(end + 1) for at, end in world.ends.items()})


def reader(world: OrderedWorld, start: OrderedStart | str, until: Lsn | None = None) -> OrderedReader:
    begin = decode_token(start, LOG) if isinstance(start, str) else start
    finder = RangeFinder(world, NAME, ManualClock())
    topics = {topic for topic, _ in world.partitions}
    reading = finder.range(begin, finder.target(until, 0), topics, until)
    return OrderedReader(world, world, LOG, reading, records_max=HELD_MAX)


def named(events: Sequence[OrderedEvent]) -> list[Name]:
    return [(*event.record.topic_partition, event.record.offset) for event in events]


def bounded(reading: OrderedReader, partition_count: int) -> list[OrderedEvent]:
    """Read to the end; memory may never exceed the limit and one batch of each partition that is waited for."""
    found = []
    for event in reading:
        found.append(event)
        assert reading.held_count <= HELD_MAX + BATCH_MAX * partition_count
    assert reading.held_count <= HELD_MAX + BATCH_MAX * partition_count
    return found


@given(seed=seeds)
def test_events_come_in_the_order_of_a_plain_sort(seed: int) -> None:
    world = grown(seed)

    found = bounded(reader(world, Beginning()), len(world.partitions))

    assert named(found) == world.expected()


@given(seed=seeds)
def test_compacted_log_gives_what_is_left_in_the_same_order(seed: int) -> None:
    world = grown(seed)
    compacted(world)

    found = bounded(reader(world, Beginning()), len(world.partitions))

    assert named(found) == world.expected()


@given(seed=seeds)
def test_index_that_has_lost_its_beginning_gives_the_older_records_first(seed: int) -> None:
    world = grown(seed)
    compacted(world)
    world.expire_cuts(world.dice.choice(world.boundaries[: len(world.boundaries) // 2]).offset + 1)

    found = bounded(reader(world, Beginning()), len(world.partitions))

    assert named(found) == world.expected()


@settings(max_examples=200)
@given(seed=seeds, kills=st.integers(1, 5), compacts=st.booleans(), grows=st.booleans())
def test_read_killed_at_any_event_resumes_at_the_next_one(seed: int, kills: int, compacts: bool, grows: bool) -> None:
    world = grown(seed)
    read: list[Name] = []
    start: OrderedStart | str = Beginning()
    for _ in range(kills):
        due = world.expected(read)
        reading = reader(world, start)
        part = [next(reading) for _ in range(world.dice.randrange(len(due) + 1))]
        assert named(part) == due[: len(part)]
        read += named(part)
        if part:
            # The token of an event stays that of this event, however far the read has come.
            chosen = world.dice.randrange(len(part))
            read = read[: len(read) - len(part) + chosen + 1]
            start = part[chosen].token
        if compacts:
            compacted(world)
        if grows:
            grow(world, 3)
            world.add_topic(f"{NAME}.public.more{len(world.partitions)}", 2)
            grow(world, 3)

    rest = bounded(reader(world, start), len(world.partitions))

    assert named(rest) == world.expected(read)


@given(seed=seeds, cuts=st.integers(1, 6))
def test_order_does_not_depend_on_the_cuts_at_which_a_read_ended(seed: int, cuts: int) -> None:
    world = grown(seed)
    last = [one for one in world.boundaries if one.epoch == world.epoch]
    untils = sorted(world.dice.randrange(last[0].end_lsn, world.end_lsn + 1) for _ in range(cuts))
    read: list[Name] = []
    start: OrderedStart | str = Beginning()
    for until in (*map(Lsn, untils), None):
        reading = reader(world, start, until)
        read += named(bounded(reading, len(world.partitions)))
        start = reading.token

    assert read == world.expected()


@given(seed=seeds)
def test_until_an_lsn_has_everything_committed_before_it_and_nothing_else(seed: int) -> None:
    world = grown(seed)
    last = [one for one in world.boundaries if one.epoch == world.epoch]
    until = world.dice.randrange(last[0].end_lsn, world.end_lsn + 1)

    found = bounded(reader(world, Beginning(), Lsn(until)), len(world.partitions))

    target = next(one.offset for one in last if one.end_lsn >= until)
    assert named(found) == world.expected(target=target, lsn=until)


@given(seed=seeds)
@example(seed=2806)  # begins where rows of a snapshot joined behind the first boundary
def test_from_an_lsn_has_everything_committed_there_or_later(seed: int) -> None:
    world = grown(seed)
    last = [one for one in world.boundaries if one.epoch == world.epoch]
    begin = world.dice.randrange(last[0].end_lsn, world.end_lsn + 1)
    everything = bounded(reader(world, Beginning()), len(world.partitions))

    found = bounded(reader(world, AtLsn(Lsn(begin))), len(world.partitions))

    wanted = [one for one in everything if (one.epoch, one.commit_lsn) >= (world.epoch, begin)]
    assert named(found) == named(wanted)


@given(seed=seeds, at=st.integers(0, 1 << 20))
def test_mistyped_token_is_refused(seed: int, at: int) -> None:
    token = reader(grown(seed, 2), Beginning()).token
    at %= len(token)
    wrong = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]

    with pytest.raises(UsageError, match="invalid resume token"):
        decode_token(wrong, LOG)
    with pytest.raises(UsageError, match="invalid resume token"):
        decode_token(token[:at], LOG)


def test_token_of_another_log_is_refused() -> None:
    world = grown(1)
    reading = reader(world, Beginning())
    for _ in reading:
        pass

    with pytest.raises(UsageError, match="is of pipeline 'shop'; this one is 'other'"):
        decode_token(reading.token, LogIdentity("other", "id-of-cuts"))
    with pytest.raises(UsageError, match="the topics of the pipeline were recreated"):
        decode_token(reading.token, LogIdentity(NAME, "another-id"))
    with pytest.raises(UsageError, match="is of all tables; this read is of public"):
        decode_token(reading.token, LogIdentity(NAME, "id-of-cuts", ("public.a",)))
    with pytest.raises(UsageError, match="is not in the cut index; the topics were recreated"):
        reader(grown(2), reading.token)
    with pytest.raises(UsageError, match="is not in the cut index; the topics were recreated"):
        reader(grown(1, end_lsn=10_000), reading.token)  # the same offsets, other positions
    with pytest.raises(UsageError, match="the resume token is behind the end of the read"):
        reader(world, reading.token, Lsn(world.boundaries[-1].end_lsn - 30))


def test_token_that_is_older_than_the_cut_index_is_refused() -> None:
    world = grown(3)
    token = reader(world, AtLsn(Lsn(world.boundaries[2].end_lsn))).token

    world.expire_cuts(world.boundaries[-3].offset)

    with pytest.raises(UsageError, match="is no longer in the cut index, which begins at"):
        reader(world, token)


def test_token_whose_offsets_are_no_longer_in_the_index_is_refused() -> None:
    world = grown(3)
    full = [one.offset for one in world.cuts if one.value is not None and json.loads(one.value)["full"]]
    tokens = [reader(world, AtLsn(Lsn(one.end_lsn))).token for one in world.boundaries if one.epoch == world.epoch]
    boundaries = [(token, decode_token(token, LOG).boundary) for token in tokens]
    token, offset = next((token, one.offset) for token, one in boundaries if one is not None and one.offset not in full)

    world.expire_cuts(offset)

    with pytest.raises(UsageError, match="has no full map up to its cut"):
        reader(world, token)


def test_recreated_and_shortened_topics_are_named() -> None:
    world = grown(4)
    token = reader(world, AtLsn(Lsn(world.boundaries[-2].end_lsn))).token
    at = max(world.partitions, key=lambda one: world.ends[one])
    world.ends[at] = 1

    with pytest.raises(TopicMismatch, match="is not the partition of the cut index: it ends at offset 1"):
        reader(world, token)
