"""Where reading of the log starts: at its beginning or end, an LSN, a time or an offset. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cdc.lsn import Lsn
from cdc.progress.restore import Partition


@dataclass(frozen=True, slots=True)
class Beginning:
    """From the first record there is."""


@dataclass(frozen=True, slots=True)
class Now:
    """Only what is published from now on."""


@dataclass(frozen=True, slots=True)
class AtLsn:
    """From the transaction committed at `lsn`, or the next one, on."""

    lsn: Lsn


@dataclass(frozen=True, slots=True)
class AtTime:
    """From the first commit at or after this time on."""

    ts_ms: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    """One partition, from this offset on."""

    partition: Partition
    offset: int


Start: TypeAlias = Beginning | Now | AtLsn | AtTime | AtOffset
