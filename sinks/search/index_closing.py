"""Blocks writes to the live index while a rebuild swaps it; an abandoned block expires.

The rebuild may be killed during the swap. So the block has an expiry in the index's `_meta`, which the rebuild renews
while it runs. After the expiry, any worker that meets the block removes it. A rebuild that was only frozen copes with
that: it blocks the index again after the swap and applies what was written in between (`sinks.search.rebuild`).
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
    """Block writes to the index during the context. It stays blocked afterwards; see `reopen`."""

    def renew() -> None:
        indices.mark(topic, index, swap_until_ms=lease_ms(clock))

    renew()
    indices.block(index, closed=True)
    with renewing(renew):
        yield


def reopen(indices: Indices, topic: Topic, index: str) -> None:
    """Allow writes to the index again, because it stays the live one."""
    indices.block(index, closed=False)
    indices.mark(topic, index, retired_ms=0, swap_until_ms=0)


def reopen_abandoned(indices: Indices, topic: Topic, live: Index, clock: Clock) -> bool:
    """Reopen the index if its block has expired; return whether it had."""
    if not live.meta.swap_until_ms or clock.wall_s() * 1000 < live.meta.swap_until_ms:
        return False
    reopen(indices, topic, live.name)
    log.get().warning("search_index_reopened", table=topic.table, index=live.name)
    return True
