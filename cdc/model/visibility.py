"""Which transactions a snapshot of PostgreSQL sees (DESIGN section 6, "Visibility"). Pure.

A commit can be decoded before it is visible to others: with synchronous replication for as long as the standby is
away. Who reads a table to complete an event must know that the event's transaction is in what was read.

https://www.postgresql.org/docs/18/functions-info.html#FUNCTIONS-INFO-SNAPSHOT
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

_EPOCH: Final = 1 << 32
_HALF: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class PgSnapshot:
    """A pg_snapshot: everything below `xmax` that is not in `running` had ended when it was taken.

    `xmax` is the last ended transaction + 1, so what is not in `running` may still run when it is not below `xmax`.
    """

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``xmin:xmax:xid,xid``; the ids are 64-bit ones."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(map(int, running.split(","))) if running else frozenset())

    def sees(self, xid: int) -> bool:
        """Whether the committed top-level transaction with these 32 bits, as Begin has them, is visible."""
        full = widened(xid, self.xmax)
        return full < self.xmax and full not in self.running

    def ended_below(self, xid: int) -> bool:
        """Whether every transaction with a 64-bit id below `xid` had ended, so that what it committed is visible."""
        return self.xmax >= xid and all(one >= xid for one in self.running)


def widened(xid: int, near: int) -> int:
    """The number nearest to `near` whose low 32 bits are `xid`; no two living transactions are 2^31 apart."""
    return near + (xid - near + _HALF) % _EPOCH - _HALF
