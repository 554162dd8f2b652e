"""A lake is not stale while transaction markers that the cut index implies are still being written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sinks.warehouse.lake.cut_position import Partition
from sinks.warehouse.log.transaction_markers import MARKERS_S, awaited_ends
from tests.fixtures.servers.manual_clock import ManualClock

_AT: Partition = ("t", 0)


class Broker:
    """A partition whose end is each of `ends` in turn; the last one stays."""

    def __init__(self, *ends: int) -> None:
        self._ends = list(ends)

    def end_offsets(self, topics: Iterable[str]) -> Mapping[Partition, tuple[int, int]]:
        assert set(topics) == {"t"}
        return {_AT: (0, self._ends.pop(0) if len(self._ends) > 1 else self._ends[0])}


def test_end_that_the_cut_index_has_passed_is_waited_for() -> None:
    clock = ManualClock()

    assert awaited_ends(Broker(3, 3, 9), {_AT: 9}, clock) == {_AT: (0, 9)}
    assert 0 < clock.now_s - 1000.0 < MARKERS_S


def test_end_that_never_comes_is_returned_as_it_is() -> None:
    clock = ManualClock()

    assert awaited_ends(Broker(3), {_AT: 9}, clock) == {_AT: (0, 3)}
    assert clock.now_s - 1000.0 >= MARKERS_S


def test_end_that_is_there_costs_no_wait() -> None:
    clock = ManualClock()

    assert awaited_ends(Broker(9), {_AT: 9}, clock) == {_AT: (0, 9)}
    assert clock.now_s == 1000.0
