"""The live index is closed for the moment in which another one takes its place; whoever closed it may die meanwhile.

So it is closed for a time only, which is noted in its `_meta` and renewed while whoever closed it lives. When that time
is over, any worker that meets the block takes it away. One that only stood still and goes on finds that out by closing
the index once more behind the swap, and by applying what came between (`sinks.search.rebuild`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc.clock import Clock
from cdc.telemetry import log
from sinks.contract import Topic
from sinks.search.indices import Index, Indices
from sinks.state.lease import lease_ms, renewing


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


def reopen_abandoned(indices: Indices, topic: Topic, live: Index, clock: Clock) -> bool:
    """As `reopen` if whoever closed it has not been heard of for too long; whether that was so."""
    if not live.meta.swap_until_ms or clock.wall_s() * 1000 < live.meta.swap_until_ms:
        return False
    reopen(indices, topic, live.name)
    log.get().warning("search_index_reopened", table=topic.table, index=live.name)
    return True
