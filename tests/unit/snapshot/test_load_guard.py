"""The pauses of the threads that read chunks, on a clock of the test."""

from __future__ import annotations

import threading

import pytest

from cdc.model.load_reading import LoadState
from snapshot.load_control import PAUSE_MAX_S, Pace
from snapshot.load_guard import rest
from tests.fixtures.servers.manual_clock import ManualClock


class Recovering(ManualClock):
    """A clock on which the source recovers at a time."""

    def __init__(self, pace: Pace, at_s: float) -> None:
        super().__init__()
        self._pace = pace
        self._at_s = at_s

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        stopped = super().wait(stop, seconds)
        if self.now_s >= self._at_s:
            self._pace.state = LoadState()
        return stopped


def rested_s(speed: float, read_s: float) -> float:
    pace, clock = Pace(), ManualClock()
    pace.state = LoadState(speed, "a reason", "commit_latency")
    began_s = clock.now_s
    clock.now_s += read_s
    rest(pace, clock, threading.Event(), began_s)
    return clock.now_s - began_s - read_s


@pytest.mark.parametrize(("speed", "pause_s"), [(1.0, 0.0), (0.5, 2.0), (0.25, 6.0)])
def test_thread_pauses_so_that_it_reads_for_its_share_of_the_time(speed: float, pause_s: float) -> None:
    assert rested_s(speed, 2.0) == pytest.approx(pause_s)


def test_pause_is_bounded_however_long_a_chunk_took() -> None:
    assert rested_s(1 / 32, 100.0) == pytest.approx(PAUSE_MAX_S)


def test_pause_ends_when_the_source_recovers_and_when_capture_stops() -> None:
    pace = Pace()
    pace.state = LoadState(1 / 32, "a reason", "commit_latency")
    clock = Recovering(pace, at_s=1005.0)

    rest(pace, clock, threading.Event(), clock.now_s - 1.0)
    assert clock.now_s == pytest.approx(1005.0)

    pace.state, stop = LoadState(1 / 32, "a reason", "commit_latency"), threading.Event()
    stop.set()
    before_s = clock.now_s
    rest(pace, clock, stop, clock.now_s - 1.0)
    assert clock.now_s == before_s


def test_pausing_thread_keeps_the_guard_reading() -> None:
    pace, clock = Pace(), ManualClock()
    pace.state = LoadState(0.5, "a reason", "commit_latency")

    rest(pace, clock, threading.Event(), clock.now_s - 20.0)

    assert pace.read_at_s == pytest.approx(clock.now_s)
