"""Rows read in another thread: all of them in order, or the error."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from sinks.warehouse.delta.read_ahead import read_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_items_come_in_order_from_another_thread() -> None:
    threads: set[str] = set()

    def make() -> Iterator[int]:
        for number in range(10):
            threads.add(threading.current_thread().name)
            yield number

    assert list(read_ahead(make)) == list(range(10))
    assert threads == {"read-ahead"}


def test_what_is_raised_comes_behind_the_items_before_it() -> None:
    def make() -> Iterator[int]:
        yield 1
        raise ValueError("lost")

    found = read_ahead(make)

    assert next(found) == 1
    with pytest.raises(ValueError, match="lost"):
        next(found)


def test_few_items_are_read_ahead_and_the_thread_ends_with_the_reader() -> None:
    read: list[int] = []

    def make() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    found = read_ahead(make)
    next(found)
    found.close()

    assert len(read) <= 5
    assert not [thread for thread in threading.enumerate() if thread.name == "read-ahead"]
