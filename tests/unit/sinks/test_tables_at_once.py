"""Tables of a cut that are written at once: a bounded number, and errors are raised when nothing runs any more."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from sinks.warehouse.tables_at_once import TablesAtOnce

WITHIN_S = 20.0


def test_as_many_tables_run_at_once_as_are_allowed_and_no_more() -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    def task() -> None:
        begun.release()
        go.wait(WITHIN_S)

    def write() -> None:
        with TablesAtOnce(2) as tables:
            for _ in range(8):
                tables.do(task)

    writing = threading.Thread(target=write)
    writing.start()
    assert all(begun.acquire(timeout=WITHIN_S) for _ in range(2))
    assert not begun.acquire(timeout=0.3), "a third one began"
    go.set()
    writing.join(WITHIN_S)
    assert all(begun.acquire(blocking=False) for _ in range(6))


def test_one_at_a_time_runs_in_the_thread_that_asks() -> None:
    seen: list[int] = []
    with TablesAtOnce(1) as tables:
        tables.do(lambda: seen.append(threading.get_ident()))
        assert seen == [threading.get_ident()]


def test_error_is_raised_when_the_other_tables_have_ended_and_no_table_begins_after_it() -> None:
    begun, ended = threading.Event(), threading.Event()
    late: list[int] = []

    def slow() -> None:
        begun.set()
        failed.wait(WITHIN_S)
        ended.set()

    failed = threading.Event()

    def fail() -> None:
        begun.wait(WITHIN_S)
        failed.set()
        raise ValueError("table")

    def write() -> None:
        with TablesAtOnce(2) as tables:
            tables.do(slow)
            tables.do(fail)
            for number in range(100):
                tables.do(partial(late.append, number))

    with pytest.raises(ValueError, match="table"):
        write()
    assert ended.is_set()
    assert len(late) < 100


def test_error_of_the_block_is_raised_when_its_tables_have_ended() -> None:
    ended = threading.Event()
    go = threading.Event()

    def slow() -> None:
        go.wait(WITHIN_S)
        ended.set()

    def write() -> None:
        with TablesAtOnce(2) as tables:
            tables.do(slow)
            go.set()
            raise KeyError("reading")

    with pytest.raises(KeyError, match="reading"):
        write()
    assert ended.is_set()
