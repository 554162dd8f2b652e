"""Answers wait requests for sinks that apply one key at a time: applied LSN, visibility, blocked keys.

Reads Kafka and the store, and connects to no process of the sink. Part of the composition root beside `cdc.run.app`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from cdc.config.settings import Applied, Config, Search
from cdc.config.sink_kinds import view_lakes
from cdc.kafka.group_offsets import GroupOffsets
from cdc.kafka.log_reader import LogReader
from cdc.model.topic_names import sink_group
from sinks.operate.applied_lsn import AppliedCutFinder, least
from sinks.operate.dead_letter_view import BlockedKeyReader
from sinks.operate.lsn_wait import AppliedCut, SinkProbe

_CUTS_POLL_S: Final = 0.02  # how long a poll without news may last; waiting callers poll again
_CUTS_AHEAD_BYTES: Final = 4 << 20
_NAMED_MAX: Final = 10  # blocked keys in one answer


def applied_probe(config: Config, name: str, settings: Applied, closing: ExitStack) -> SinkProbe:
    """Return a `SinkProbe`. It connects when a connection is first needed, and disconnects with `closing`."""
    client_id = f"tailrace-wait-{config.name}-{name}"

    def reader() -> LogReader:
        return LogReader(
            config.kafka, client_id=client_id, ahead_bytes=_CUTS_AHEAD_BYTES, poll_s=_CUTS_POLL_S, follows=True
        )

    group = sink_group(config.name, name)
    reaches = [
        AppliedCutFinder(config.name, settings.tables, reader, lambda: GroupOffsets(config.kafka, group), lake=lake)
        for lake in ("", *view_lakes(config, settings.tables))
    ]
    for reach in reaches:
        closing.callback(reach.close)

    def look() -> AppliedCut | None:
        found = least(reaches)
        return None if found is None else AppliedCut(found.cut, found.end_lsn)

    blocked = _Blocked(config, name, closing)
    if isinstance(settings, Search):
        settle = _refreshed(config, name, settings, closing)
        return SinkProbe(look, settle=settle, blocked=blocked.has, blocked_keys=blocked.some)
    return SinkProbe(look, blocked=blocked.has, blocked_keys=blocked.some)


def _refreshed(config: Config, name: str, settings: Search, closing: ExitStack) -> Callable[[], None]:
    """Return a function that makes written documents visible to searches."""
    from sinks.search.start import indices_of

    indices = indices_of(config.name, name, settings)
    closing.callback(indices.client.close)
    return indices.refresh_all


class _Blocked:
    """Blocked keys of a sink. Thread-safe; connects at the first call."""

    def __init__(self, config: Config, name: str, closing: ExitStack) -> None:
        self._place = (config, name)
        self._closing = closing
        self._lock = threading.Lock()
        self._made: BlockedKeyReader | None = None

    def has(self, key: bytes, table: str | None) -> bool:
        """See `SinkProbe.blocked`."""
        with self._lock:
            return self._now().has(key, table)

    def some(self) -> Sequence[tuple[str, str]]:
        """See `SinkProbe.blocked_keys`."""
        with self._lock:
            return self._now().some(_NAMED_MAX)

    def _now(self) -> BlockedKeyReader:
        if self._made is None:
            self._made = self._closing.enter_context(BlockedKeyReader(*self._place))
        return self._made
