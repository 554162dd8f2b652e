"""The places where reading of the log can start: its beginning or end, an LSN, a time or an offset. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cdc.lsn import Lsn
from cdc.progress.restore import Partition


@dataclass(frozen=True, slots=True)
class Beginning:
    """Start at the first available record."""


@dataclass(frozen=True, slots=True)
class Now:
    """Read only what is published from now on."""


@dataclass(frozen=True, slots=True)
class AtLsn:
    """Start at the transaction committed at `lsn`, or the next one."""

    lsn: Lsn


@dataclass(frozen=True, slots=True)
class AtTime:
    """Start at the first commit at or after this time."""

    ts_ms: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    """Start at this offset of one partition."""

    partition: Partition
    offset: int


Start: TypeAlias = Beginning | Now | AtLsn | AtTime | AtOffset
