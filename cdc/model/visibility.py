"""Decides which transactions a snapshot of PostgreSQL sees. Pure.

A commit can be decoded before it is visible to other sessions: with synchronous replication, for as long as the standby
is away. Code that reads a table to complete an event must check that its snapshot sees the event's transaction.

https://www.postgresql.org/docs/18/functions-info.html#FUNCTIONS-INFO-SNAPSHOT
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

_EPOCH: Final = 1 << 32
_HALF: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class PgSnapshot:
    """A pg_snapshot: every transaction below `xmax` that is not in `running` had ended when it was taken.

    `xmax` is the last ended transaction + 1, so a transaction at or above `xmax` may run without being in `running`.
    """

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``xmin:xmax:xid,xid`` with 64-bit ids."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(map(int, running.split(","))) if running else frozenset())

    def sees(self, xid: int) -> bool:
        """Return whether the committed top-level transaction with this 32-bit id, as in Begin, is visible."""
        full = widened(xid, self.xmax)
        return full < self.xmax and full not in self.running

    def ended_below(self, xid: int) -> bool:
        """Return whether every transaction with a 64-bit id below `xid` had ended, so that its commit is visible."""
        return self.xmax >= xid and all(one >= xid for one in self.running)


def widened(xid: int, near: int) -> int:
    """Return the number nearest to `near` whose low 32 bits are `xid`; live transactions are less than 2^31 apart."""
    return near + (xid - near + _HALF) % _EPOCH - _HALF
