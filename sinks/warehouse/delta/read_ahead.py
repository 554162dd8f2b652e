"""Runs an iterator in a thread of its own, a few items ahead.

deltalake pulls the rows that it writes from within its runtime. There nothing may call deltalake for rows. So if a
table is written from rows of another version of it, a different thread reads them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from queue import Empty, Full, Queue
from typing import Final, TypeVar

T = TypeVar("T")
_AHEAD: Final = 2
_POLL_S: Final = 0.1  # the delay until the thread notices that no more items are wanted


def read_ahead(make: Callable[[], Iterator[T]]) -> Generator[T]:
    """Yield the items of `make()`, or raise what it raised. Reading starts with the first request."""
    items: Queue[tuple[T] | BaseException | None] = Queue(_AHEAD)
    unwanted = threading.Event()

    def put(item: tuple[T] | BaseException | None) -> bool:
        while not unwanted.is_set():
            try:
                items.put(item, timeout=_POLL_S)
            except Full:
                continue
            return True
        return False

    def read() -> None:
        try:
            for item in make():
                if not put((item,)):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again by the consumer
            put(error)
        else:
            put(None)

    reader = threading.Thread(target=read, name="read-ahead", daemon=True)
    reader.start()
    try:
        while True:
            try:
                found = items.get(timeout=_POLL_S)
            except Empty:
                continue
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            yield found[0]
    finally:
        unwanted.set()
        reader.join()
