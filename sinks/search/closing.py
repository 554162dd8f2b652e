"""The live index is closed for the moment in which another one takes its place; whoever closed it may die meanwhile.

So it is closed for a time only, which is noted in its `_meta` and renewed while whoever closed it lives. When that time
is over, any worker that meets the block takes it away. One that only stood still and goes on finds that out by closing
the index once more behind the swap, and by applying what came between (`sinks.search.rebuild`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cdc.clock import Clock
from cdc.errors import TailraceError
from cdc.telemetry import log
from sinks.contract import Topic
from sinks.search.indices import Index, Indices

LEASE_S: Final = 30.0
"""Clocks of machines may differ by the half of it; a swap takes a second or two where nothing is in its way."""
RENEW_S: Final = 5.0


def lease_ms(clock: Clock) -> int:
    """Until when something that is done now holds, in ms since 1970."""
    return int((clock.wall_s() + LEASE_S) * 1000)


@contextmanager
def renewing(renew: Callable[[], None]) -> Iterator[None]:
    """Call it again and again, in a thread. One that fails is called again."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(RENEW_S):
            try:
                renew()
            except TailraceError as error:
                log.get().warning("search_swap_not_renewed", **log.error_fields(error))

    thread = threading.Thread(target=work, name="swap-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def closed(indices: Indices, topic: Topic, index: str, clock: Clock) -> Iterator[None]:
    """Nothing writes to the index in the block. It stays closed behind it; see `reopen`."""

    def renew() -> None:
        indices.mark(topic, index, swap_until_ms=lease_ms(clock))

    renew()
    indices.block(index, closed=True)
    with renewing(renew):
        yield


def reopen(indices: Indices, topic: Topic, index: str) -> None:
    """It stays the live one: writes to it are allowed again."""
    indices.block(index, closed=False)
    indices.mark(topic, index, retired_ms=0, swap_until_ms=0)


def reopen_left(indices: Indices, topic: Topic, live: Index, clock: Clock) -> bool:
    """As `reopen` if whoever closed it has not been heard of for too long; whether that was so."""
    if not live.meta.swap_until_ms or clock.wall_s() * 1000 < live.meta.swap_until_ms:
        return False
    reopen(indices, topic, live.name)
    log.get().warning("search_index_reopened", table=topic.table, index=live.name)
    return True
