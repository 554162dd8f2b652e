"""Dead letters without a broker: what is durable when, and a worker that is killed between any two of its writes."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Sequence
from typing import Final

import pytest

from cdc.errors import BrokerUnreachable, SinkUnfit
from cdc.model.log_record import LogRecord
from sinks.contract import Change, Outcome, ParkedKey, Verdict
from sinks.deadletters.blocked_keys import (
    Block,
    BlockedKeys,
    KeyRequest,
    blocked_key,
    encode_block,
    encode_request,
    parse_key,
    request_key,
)
from sinks.deadletters.dead_letter_queue import GONE, LOOK_S
from sinks.deadletters.dead_letter_record import BEHIND, parse_dead_letter
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.sinks.dead_letter_topics import Broker, Killed, dead_letters
from tests.fixtures.sinks.memory_target import MemoryTarget
from tests.fixtures.sinks.parking_worker import PLACE, ParkingWorker
from tests.fixtures.sinks.sink_logs import LogBook, live

K1: Final = b'{"id":1}'
REFUSED: Final = Outcome(Verdict.REFUSED, "mapper_parsing_exception", "field [v] is no date")
DONE: Final = Outcome(Verdict.DONE)


class PickyTarget(MemoryTarget):
    """Takes no row whose `v` is among `bad`."""

    def __init__(self, bad: Sequence[object] = ()) -> None:
        super().__init__()
        self.bad = list(bad)
        self.applied: list[tuple[bytes, int]] = []

    def _apply(self, change: Change) -> Outcome:
        content = self.content(change)
        if content is not None and content["v"] in self.bad:
            return REFUSED
        self.applied.append((change.key, change.offset))
        return super()._apply(change)


def log() -> list[LogRecord]:
    """Two keys; the second row of key 1 is one that the store will not take."""
    book = LogBook()
    for key, v in ((1, "a"), (2, "b"), (1, "bad"), (2, "c"), (1, "d"), (1, "e"), (2, "f")):
        book.put(key, {"id": key, "v": v})
    return book.records


def wish(broker: Broker, key: bytes, action: str = "retry") -> None:
    broker.state.append(
        (request_key(PLACE, key), encode_request(KeyRequest("skip" if action == "skip" else "retry", "w")))
    )


def test_a_key_stays_behind_its_refused_record_and_others_flow() -> None:
    broker, target = Broker(), PickyTarget(["bad"])
    worker = ParkingWorker(dead_letters(broker), target)

    worker.read(log())

    assert {key: row["v"] for key, row in live(target.stored_keys(PLACE[0])).items() if row} == {
        K1: "a",
        b'{"id":2}': "f",
    }
    letters = [parse_dead_letter(record) for record in broker.letters]
    assert [(letter.record[2], letter.error) for letter in letters] == [
        (2, "mapper_parsing_exception"),
        (4, BEHIND),
        (5, BEHIND),
    ]
    assert [letter.record for letter in letters] == [log()[2], log()[4], log()[5]]
    assert letters[0].reason == "field [v] is no date"
    assert letters[0].position == "1/1024/1"


@pytest.mark.parametrize("again", [False, True], ids=["same worker", "next worker"])
def test_a_retry_applies_what_is_parked_and_then_the_key_flows(again: bool) -> None:
    broker, target, clock = Broker(), PickyTarget(["bad", "e"]), ManualClock()
    worker = ParkingWorker(dead_letters(broker, clock=clock), target)
    worker.read(log())
    wish(broker, K1)
    if again:
        worker = ParkingWorker(dead_letters(broker, clock=clock), target, worker.committed)

    clock.now_s += LOOK_S
    assert worker.retry() == 1  # and is refused again
    assert worker.letters.blocks(PLACE, K1)
    assert worker.retry() == 0
    target.bad.clear()
    wish(broker, K1)
    clock.now_s += LOOK_S
    assert worker.retry() == 1

    assert not worker.letters.blocks(PLACE, K1)
    assert broker.kept() == {}
    assert live(target.stored_keys(PLACE[0]))[K1]["v"] == "e"
    assert [offset for key, offset in target.applied if key == K1] == [0, 5]


def test_a_skipped_key_flows_on_with_its_next_record() -> None:
    broker, target, clock = Broker(), PickyTarget(["bad"]), ManualClock()
    worker = ParkingWorker(dead_letters(broker, clock=clock), target)
    worker.read(log())
    wish(broker, K1, "skip")
    clock.now_s += LOOK_S

    assert worker.retry() == 1

    assert live(target.stored_keys(PLACE[0]))[K1]["v"] == "a"
    book = LogBook(first=20)
    book.put(1, {"id": 1, "v": "next"})
    worker.read(book.records)
    assert live(target.stored_keys(PLACE[0]))[K1]["v"] == "next"


def test_a_worker_killed_between_any_two_writes_loses_nothing_and_applies_in_order() -> None:
    """Every write and every step in between is a place to die; after each the same end is reached."""
    deaths = 0
    while True:
        broker, target, clock = Broker(dies_at=deaths), PickyTarget(["bad"]), ManualClock()
        committed, died, wished = 0, False, False
        for _ in range(3):
            worker: ParkingWorker | None = None
            try:
                worker = ParkingWorker(dead_letters(broker, clock=clock), target, committed, step=broker.write)
                worker.read(log())
                target.bad.clear()
                if not wished:  # once: what is durable need not be said again
                    wish(broker, K1)
                    wished = True
                clock.now_s += LOOK_S
                worker.retry()
                committed = worker.committed
                break
            except Killed:
                died = True
                committed = worker.committed if worker else committed
                target.bad = ["bad"] if committed < 3 else []
        assert broker.kept() == {}, deaths
        assert live(target.stored_keys(PLACE[0]))[K1]["v"] == "e", deaths
        offsets = [offset for key, offset in target.applied if key == K1]
        assert offsets == sorted(offsets), deaths
        if not died:
            break
        deaths += 1
    assert deaths > 15


def test_a_block_names_letters_that_are_there_whenever_the_worker_dies() -> None:
    """The letters come first: a block without them could be retried to nothing."""
    for dies_at in range(8):
        broker = Broker(dies_at=dies_at)
        worker = dead_letters(broker)
        worker.assigned([PLACE])
        records = [record for record in log() if record[4] == K1][1:]
        with contextlib.suppress(Killed):
            worker.park(PLACE, K1, records, REFUSED)
        if broker.state:
            assert [parse_dead_letter(one).record for one in broker.letters[-len(records) :]] == records


def test_what_is_parked_already_is_not_parked_again() -> None:
    broker = Broker()
    worker = ParkingWorker(dead_letters(broker), PickyTarget(["bad"]))
    worker.read(log())
    before = len(broker.letters)

    worker.committed = 0
    worker.read(log())

    assert len(broker.letters) == before


def test_a_partition_with_too_many_blocked_keys_stops() -> None:
    worker = dead_letters(Broker(), keys_max=2)
    worker.assigned([PLACE, ("other", 0)])
    book = LogBook()
    for key in range(4):
        book.put(key, {"id": key, "v": "bad"})
    for record in book.records[:2]:
        worker.park(PLACE, record[4] or b"", [record], REFUSED)
    worker.park(("other", 0), b"k", [book.records[0]._replace(topic="other", partition=0)], REFUSED)

    with pytest.raises(SinkUnfit, match="2 keys of the partition are already blocked") as stop:
        worker.park(PLACE, b'{"id":3}', [book.records[3]], REFUSED)

    assert stop.value.command == "cdc dlq list s"


def test_on_refused_stop_parks_nothing() -> None:
    broker = Broker()
    worker = dead_letters(broker, stop=True)
    worker.assigned([PLACE])

    with pytest.raises(SinkUnfit, match="mapper_parsing_exception"):
        worker.park(PLACE, K1, [log()[2]], REFUSED)

    assert (broker.letters, broker.state) == ([], [])


def test_keys_of_partitions_that_are_not_assigned_are_forgotten() -> None:
    broker = Broker()
    worker = ParkingWorker(dead_letters(broker), PickyTarget(["bad"]))
    worker.read(log())
    assert worker.letters.blocks(PLACE, K1)

    worker.letters.assigned([("shop.public.t", 1)])
    assert not worker.letters.blocks(PLACE, K1)
    worker.letters.settled(ParkedKey(PLACE, K1, ()), DONE)
    assert blocked_key(PLACE, K1) in broker.kept()

    worker.letters.assigned([PLACE])
    assert worker.letters.blocks(PLACE, K1)


def test_an_owner_writes_its_block_again_when_a_worker_that_lost_the_partition_takes_it_away() -> None:
    broker, clock = Broker(), ManualClock()
    target = PickyTarget(["bad"])
    old = ParkingWorker(dead_letters(broker, clock=clock), target)
    old.read(log()[:3])
    wish(broker, K1)
    clock.now_s += LOOK_S
    (parked,) = old.letters.retries()
    owner = ParkingWorker(dead_letters(broker, clock=clock), target, old.committed)
    owner.read(log())

    old.letters.settled(parked, DONE)
    assert blocked_key(PLACE, K1) not in broker.kept()
    clock.now_s += LOOK_S
    owner.retry()

    assert blocked_key(PLACE, K1) in broker.kept()
    assert ParkingWorker(dead_letters(broker), target).letters.blocks(PLACE, K1)


def test_a_key_whose_letters_are_gone_is_not_taken_for_retried() -> None:
    broker, target, clock = Broker(), PickyTarget(["bad"]), ManualClock()
    worker = ParkingWorker(dead_letters(broker, clock=clock), target)
    worker.read(log())
    del broker.letters[0]
    broker.letters.insert(0, broker.letters[0])
    wish(broker, K1)
    clock.now_s += LOOK_S

    assert worker.retry() == 0

    assert worker.letters.blocks(PLACE, K1)
    (value,) = broker.kept().values()
    assert GONE.encode() in value


def test_a_wish_for_a_key_that_is_not_blocked_is_dropped() -> None:
    broker, clock = Broker(), ManualClock()
    worker = ParkingWorker(dead_letters(broker, clock=clock), PickyTarget())
    wish(broker, K1)
    broker.state.append((b'{"control":"pause"}', b"{}"))
    broker.state.append((b"no json", b"{}"))
    clock.now_s += LOOK_S

    assert worker.retry() == 0

    assert set(broker.kept()) == {b'{"control":"pause"}', b"no json"}


@pytest.mark.parametrize("key", [K1, "é☃".encode(), b"\xff\x00", b""])
def test_keys_of_the_state_are_read_back(key: bytes) -> None:
    assert parse_key(blocked_key(PLACE, key)) == ("blocked", (PLACE, key))
    assert parse_key(request_key(PLACE, key)) == ("retry", (PLACE, key))


def test_a_block_that_cannot_be_read_stops_the_worker() -> None:
    broker = Broker(state=[(blocked_key(PLACE, K1), b'{"version":99}')])

    with pytest.raises(SinkUnfit, match=r"shop\.__blocked\.s has version 99; this release reads version 1"):
        dead_letters(broker).assigned([PLACE])


def test_a_million_blocked_keys_take_less_than_350_mb() -> None:
    keys, count = BlockedKeys(), 20_000
    keys.assign([PLACE])
    block = Block(1 << 40, 1 << 41, 7, 1 << 40, 1_800_000_000_000, 0, "mapper_parsing_exception")
    tracemalloc.start()
    for n in range(count):
        keys.put(PLACE, b'{"id":%d}' % n, block)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size / count < 350
    assert keys.get(PLACE, b'{"id":7}') == block
    assert encode_block(block).startswith(b'{"version":1,')


def test_broker_that_rejects_a_dead_letter_stops_the_partition_before_its_record() -> None:
    broker, target = Broker(down=True), PickyTarget(["bad"])
    worker = ParkingWorker(dead_letters(broker), target)

    with pytest.raises(BrokerUnreachable):
        worker.read(log())

    assert worker.committed == 2
    assert not worker.letters.blocks(PLACE, K1)
    broker.down = False
    worker.read(log())
    assert [parse_dead_letter(one).record[2] for one in broker.letters] == [2, 4, 5]
