"""One thread calls what is late, and nothing after its block."""

from __future__ import annotations

import threading
import time

from cdc.replication.deadlines import Deadlines


def test_late_block_is_called_once_and_a_block_in_time_never() -> None:
    deadlines, called = Deadlines(), []
    fired = threading.Event()

    def late() -> None:
        called.append("late")
        fired.set()

    with deadlines.within(60.0, lambda: called.append("in time")), deadlines.within(0.01, late):
        assert fired.wait(30)
    with deadlines.within(0.0, lambda: None):
        pass

    assert called == ["late"]


def test_shorter_deadline_wakes_the_thread_that_waits_for_a_longer_one() -> None:
    deadlines, fired = Deadlines(), threading.Event()
    with deadlines.within(3600.0, lambda: None):
        time.sleep(0.05)  # the thread waits
        with deadlines.within(0.01, fired.set):
            assert fired.wait(30)


def test_deadline_counts_after_the_thread_had_nothing_to_wait_for() -> None:
    deadlines, fired = Deadlines(), threading.Event()
    for _ in range(2):
        fired.clear()
        with deadlines.within(0.01, fired.set):
            assert fired.wait(30)


def test_thousand_blocks_start_one_thread() -> None:
    before, deadlines = threading.active_count(), Deadlines()
    for _ in range(1000):
        with deadlines.within(60.0, lambda: None):
            pass

    assert threading.active_count() <= before + 1
