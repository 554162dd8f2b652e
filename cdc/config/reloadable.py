"""Says which settings a running process takes over when it is asked to reload, and merges those. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from cdc.config.settings import Config
from cdc.config.shown import differing

ACCESS: Final = frozenset({"http.hosts", "http.token", "http.token_file"})
"""What the HTTP endpoints of capture and of every sink take over."""

RELOADABLE: Final = ACCESS | {
    "audit.bytes_per_s_max",
    "audit.interval_s",
    "audit.on_finding",
    "capture.heartbeat_interval_s",
    "signals.per_second_max",
    "snapshot.commit_latency_max_ms",
    "snapshot.io_waits_max_percent",
    "snapshot.rows_per_s_max",
    "snapshot.standby_lag_max_s",
    "snapshot.standbys_ignored",
    "snapshot.workers",
    "source.on_wal_pressure",
    "source.transaction_alarm_s",
    "source.wal_alarm_bytes",
    "source.wal_check_s",
    "source.wal_drop_bytes",
}
"""What capture takes over while it runs. docs/reference/config.md shows it for every setting."""

_SWITCH: Final = "capture.heartbeat_interval_s"


@dataclass(frozen=True, slots=True)
class Changes:
    """The keys that differ between what a process uses and what the file and its environment say now.

    applied  it can take these over while it runs
    restart  these need a restart
    """

    applied: tuple[str, ...]
    restart: tuple[str, ...]


def changes(old: Config, new: Config, reloadable: Iterable[str] = RELOADABLE) -> Changes:
    """Compare the configuration in use with a new one."""
    found = differing(old, new)
    live = set(reloadable) - _needing_start(old, new)
    return Changes(tuple(key for key in found if key in live), tuple(key for key in found if key not in live))


def merged(old: Config, new: Config, keys: Iterable[str]) -> Config:
    """Return `old` with the values that `new` has for `keys`."""
    for key in keys:
        section, _, name = key.partition(".")
        value = getattr(getattr(new, section), name)
        old = structs.replace(old, **{section: structs.replace(getattr(old, section), **{name: value})})
    return old


def _needing_start(old: Config, new: Config) -> set[str]:
    """Return the reloadable keys of this change that need a start all the same: heartbeats begin or end with one."""
    was, is_now = old.capture.heartbeat_interval_s, new.capture.heartbeat_interval_s
    return {_SWITCH} if bool(was) != bool(is_now) else set()
