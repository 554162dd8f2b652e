"""Views of a cut run at once, each after the views it reads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sinks.warehouse.views.at_once import AT_ONCE_MAX, run_each
from sinks.warehouse.views.definition import BoundView, parse_view


def view(name: str, *reads: str) -> BoundView:
    return BoundView(parse_view(Path(f"{name}.sql"), "select 1 as x"), "", {}, {other: other for other in reads}, "")


def test_views_run_at_once_on_lanes_of_their_own() -> None:
    both = threading.Barrier(2, timeout=30)
    lanes: set[str] = set()

    def work(_: BoundView, lane: str) -> None:
        both.wait()  # neither passes alone
        lanes.add(lane)

    run_each([view("a"), view("b")], ["first", "second"], work)

    assert lanes == {"first", "second"}


def test_a_view_runs_after_the_views_it_reads() -> None:
    done: list[str] = []
    lock = threading.Lock()

    def work(one: BoundView, _: int) -> None:
        with lock:
            assert set(one.views) <= {*done, "elsewhere"}
            done.append(one.name)

    views = [view("a", "elsewhere"), view("b", "a"), view("c"), view("d", "b", "c"), view("e", "d", "a")]
    run_each(views[::-1], [1, 2, 3], work)

    assert sorted(done) == ["a", "b", "c", "d", "e"]


def test_one_lane_runs_views_in_their_order() -> None:
    done: list[str] = []

    run_each([view("b"), view("a"), view("c", "a")], [0], lambda one, _: done.append(one.name))

    assert done == ["b", "a", "c"]


def test_no_view_starts_after_an_error_and_running_ones_end() -> None:
    failed, done = threading.Event(), []

    def work(one: BoundView, _: int) -> None:
        if one.name == "a":
            failed.set()
            raise ValueError("a failed")
        failed.wait(30)
        done.append(one.name)

    with pytest.raises(ValueError, match="a failed"):
        run_each([view("a"), view("b"), view("c", "a"), view("d", "b")], [1, 2], work)

    assert "b" in done
    assert "c" not in done


def test_threads_are_kept_because_each_leaves_a_thread_in_the_jvm() -> None:
    threads: set[threading.Thread] = set()

    for _ in range(20):
        run_each([view("a"), view("b")], [1, 2], lambda *_: threads.add(threading.current_thread()))

    assert len(threads) <= AT_ONCE_MAX
