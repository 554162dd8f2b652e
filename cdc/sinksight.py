"""What who waits asks of a sink of one key at a time: how far it is, whether readers see it, whether a key is blocked.

Asks Kafka and the store, no process of the sink. Part of the composition root beside `cdc.app`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from cdc.config.settings import Applied, Config, Search
from cdc.config.sinks import view_lakes
from cdc.deadletters import BlockedNow
from cdc.kafka.consumer import LogReader
from cdc.kafka.groupoffsets import GroupOffsets
from cdc.model.names import sink_group
from cdc.reach import Reach, Sight
from sinks.reach import SinkReach, least

_CUTS_POLL_S: Final = 0.02  # a look that finds nothing new costs this, and whoever waits looks again
_CUTS_AHEAD_BYTES: Final = 4 << 20


def applied_sight(config: Config, name: str, settings: Applied, closing: ExitStack) -> Sight:
    """See `Sight`; connections are made when they are first needed, and end with `closing`."""
    client_id = f"tailrace-wait-{config.name}-{name}"

    def reader() -> LogReader:
        return LogReader(config.kafka, client_id=client_id, ahead_bytes=_CUTS_AHEAD_BYTES, poll_s=_CUTS_POLL_S)

    group = sink_group(config.name, name)
    reaches = [
        SinkReach(config.name, settings.tables, reader, lambda: GroupOffsets(config.kafka, group), lake=lake)
        for lake in ("", *view_lakes(config, settings.tables))
    ]
    for reach in reaches:
        closing.callback(reach.close)

    def look() -> Reach | None:
        found = least(reaches)
        return None if found is None else Reach(found.cut, found.end_lsn)

    blocked = _blocked(config, name, closing)
    if isinstance(settings, Search):
        return Sight(look, settle=_refreshed(config, name, settings, closing), blocked=blocked)
    return Sight(look, blocked=blocked)


def _refreshed(config: Config, name: str, settings: Search, closing: ExitStack) -> Callable[[], None]:
    """Searches see what is written only behind a refresh."""
    from sinks.search.start import indices_of

    indices = indices_of(config.name, name, settings)
    closing.callback(indices.client.close)
    return indices.refresh_all


def _blocked(config: Config, name: str, closing: ExitStack) -> Callable[[bytes], bool]:
    """Asked by several threads; most who wait name no key."""
    lock = threading.Lock()
    made: list[BlockedNow] = []

    def has(key: bytes) -> bool:
        with lock:
            if not made:
                made.append(closing.enter_context(BlockedNow(config, name)))
            return made[0].has(key)

    return has
