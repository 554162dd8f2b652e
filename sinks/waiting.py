"""Answers wait requests for sinks: applied LSN, visibility, blocked keys.

Reads Kafka and the sink's store, and connects to no process of the sink. Part of the composition root, beside
`cdc.run.app`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from cdc.config.settings import Applied, Config, Search, Warehouse
from cdc.config.sink_kinds import view_lakes
from cdc.cutindex.index_reader import bounds, newest_cut
from cdc.errors import SinkBehind
from cdc.kafka.group_offsets import GroupOffsets
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.topic_names import cuts_topic, sink_group
from cdc.patterns import matches
from sinks.operate.applied_lsn import AppliedCutFinder, least
from sinks.operate.dead_letter_view import BlockedKeyReader
from sinks.operate.lsn_wait import AppliedCut, SinkProbe
from sinks.operate.unread_tables import UnreadTables

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
        return None if found is None else AppliedCut(*found)

    blocked = _Blocked(config, name, closing)
    if isinstance(settings, Search):
        settle = _refreshed(config, name, settings, closing)
        return SinkProbe(look, settle=settle, blocked=blocked.has, blocked_keys=blocked.some)
    return SinkProbe(look, blocked=blocked.has, blocked_keys=blocked.some)


def lake_probe(config: Config, name: str, settings: Warehouse, closing: ExitStack) -> SinkProbe:
    """Return a `SinkProbe` that reads a warehouse's newest published cut."""
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import ManifestStore

    store = ManifestStore(Location.configured(settings))
    unread = UnreadTables(lambda table: matches(table, settings.tables))
    newest = _NewestEpoch(config, f"tailrace-wait-{config.name}-{name}", closing)

    def look() -> AppliedCut | None:
        current = store.current()
        if current is None:
            return None
        at = current.position
        unread.add(at.epoch, at.end_lsn, at.complete, whole=True)
        return AppliedCut(current.cut, Lsn(current.end_lsn), unread.now)

    def settle() -> None:
        current, epoch = store.current(), newest()
        if current is not None and current.position.epoch < epoch:
            raise SinkBehind(
                f"the log has epoch {epoch} since a repair, and lake {name!r} is in epoch {current.position.epoch}: "
                "LSNs of one epoch say nothing about the other",
                hint="the lake continues when capture has read its tables again",
                command="cdc status",
            )

    return SinkProbe(look, settle=settle)


class _NewestEpoch:
    """Reads the newest epoch of the log; 0 for an empty log. Thread-safe; connects at the first call."""

    def __init__(self, config: Config, client_id: str, closing: ExitStack) -> None:
        self._config = config
        self._client_id = client_id
        self._closing = closing
        self._lock = threading.Lock()
        self._reader: LogReader | None = None

    def __call__(self) -> int:
        topic = cuts_topic(self._config.name)
        with self._lock:
            if self._reader is None:
                self._reader = LogReader(self._config.kafka, client_id=self._client_id, ahead_bytes=_CUTS_AHEAD_BYTES)
                self._closing.callback(self._reader.close)
            newest = newest_cut(self._reader, topic, *bounds(self._reader, topic))
        return 0 if newest is None else newest.cut.epoch


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
