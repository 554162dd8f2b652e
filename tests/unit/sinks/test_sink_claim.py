"""One at a time: rebuilding, rolling back and repairing a sink."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from cdc.errors import SinkBusy
from sinks.state.claim_records import ClaimHolder
from sinks.state.lease import LEASE_S
from sinks.state.state_topic import Entry
from tests.fixtures.servers.manual_clock import ManualClock

_NUMBERS = count()


class Log:
    """A state topic in memory, one for all who claim; `meanwhile` happens once, right before the next read."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.meanwhile: Callable[[], None] | None = None
        self.both_wrote: threading.Barrier | None = None

    def put(self, entries: list[Entry]) -> list[int]:
        self.entries += entries
        return list(range(len(self.entries) - len(entries), len(self.entries)))

    def load(self) -> dict[bytes, bytes]:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        barrier = self.both_wrote
        if barrier is not None:
            barrier.wait(10)  # both have written, and neither has read
        kept = {key: value for key, value in dict(self.entries).items() if value is not None}
        if barrier is not None:
            barrier.wait(10)  # both have read, and neither has given back
            self.both_wrote = None
        return kept

    def new(self) -> list[Entry]:
        return []


def claiming(log: Log, clock: ManualClock) -> ClaimHolder:
    return ClaimHolder(log, "search", clock, name=lambda: str(next(_NUMBERS)))


def test_second_command_is_refused_and_names_the_running_one() -> None:
    log, clock = Log(), ManualClock(0)
    claiming(log, clock).take("rebuild", "process 12 on db1")

    with pytest.raises(
        SinkBusy, match=r"rebuild of sink 'search' .* process 12 on db1, since 2023-11-14T22:13:20"
    ) as told:
        claiming(log, clock).take("rollback", "process 13 on db1")

    assert told.value.command == "cdc sink status search"
    assert len(log.load()) == 1, "the one that was refused left nothing"


def test_next_one_may_begin_when_it_was_given_back() -> None:
    log, clock = Log(), ManualClock()
    first = claiming(log, clock)
    first.take("rebuild", "one")
    first.give_back()
    first.give_back()

    claiming(log, clock).take("rebuild", "two")


def test_claim_of_one_that_was_killed_ends_and_is_cleared_and_a_renewed_one_does_not() -> None:
    log, clock = Log(), ManualClock()
    killed = claiming(log, clock)
    killed.take("rebuild", "one")
    clock.now_s += LEASE_S - 1
    killed.renew()
    clock.now_s += 2
    with pytest.raises(SinkBusy):
        claiming(log, clock).take("rebuild", "two")

    clock.now_s += LEASE_S + 1
    claiming(log, clock).take("rebuild", "three")

    assert len(log.load()) == 1


def test_of_two_that_begin_at_the_same_moment_never_both_go_on() -> None:
    log, clock = Log(), ManualClock()
    log.both_wrote = threading.Barrier(2)

    def attempt(who: str) -> bool:
        try:
            claiming(log, clock).take("rebuild", who)
        except SinkBusy:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        began = list(pool.map(attempt, ["one", "two"]))

    assert began == [False, False]
    assert attempt("three")


def test_one_that_comes_between_writing_and_reading_does_not_end_the_one_that_was_first() -> None:
    log, clock = Log(), ManualClock()
    refused: list[SinkBusy] = []

    def another() -> None:
        with pytest.raises(SinkBusy) as told:
            claiming(log, clock).take("rollback", "two")
        refused.append(told.value)

    log.meanwhile = another
    claiming(log, clock).take("rebuild", "one")

    assert len(refused) == 1


def test_claim_of_one_that_was_killed_is_outlasted_and_one_that_is_renewed_is_not() -> None:
    log, clock = Log(), ManualClock()
    first = claiming(log, clock)
    first.take("rebuild", "one")
    clock.now_s += 3
    first.renew()
    log.meanwhile = lambda: renewed_later(log, first)

    with pytest.raises(SinkBusy):
        claiming(log, clock).take_or_wait("rollback", "two")
    assert clock.now_s <= 1000 + 3 + 2, "it is refused as soon as the owner is seen to live"

    claiming(log, clock).take_or_wait("rollback", "three")
    assert clock.now_s >= 1000 + 3 + LEASE_S, "no sooner than the claim ended"


def renewed_later(log: Log, first: ClaimHolder) -> None:
    log.meanwhile = first.renew


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"what":"x","who":"y","since_ms":null,"until_ms":"z"}'])
def test_unreadable_claim_blocks_no_command(value: bytes) -> None:
    log = Log()
    log.put([(b'{"control":"claim","id":"odd"}', value), (b"no json", b"x"), (b'{"topic":"t","partition":0}', b"{}")])

    claiming(log, ManualClock()).take("rebuild", "one")
