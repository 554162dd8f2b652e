"""Runs an iterator in a thread of its own, a few items ahead.

deltalake pulls the rows it writes from inside its runtime, where nothing may ask deltalake for rows: so who writes a
table from the rows of another version of it has them read by somebody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from queue import Empty, Full, Queue
from typing import Final, TypeVar

T = TypeVar("T")
_AHEAD: Final = 2
_POLL_S: Final = 0.1  # how late a reader notices that nobody wants more


def read_ahead(make: Callable[[], Iterator[T]]) -> Generator[T]:
    """The items of `make()`, or what it raised. Nothing is read before the first is asked for."""
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
        except BaseException as error:  # noqa: BLE001 - raised again by who reads
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
