"""The rule of snapshots: decides by visibility, not by LSN, which rows of a chunk may join the log, and when. Pure.

A chunk is read in its own snapshot S while transactions are streamed. With synchronous replication, a commit can be in
the stream long before S sees it. So a rule that compares LSNs around the read would keep stale rows forever. The rule
here drops a row if a transaction that S does not see has changed its key, whatever the LSN of its commit:

- `pending` has the streamed transactions that no snapshot has seen yet, with their keys. The keys of transactions that
  may have been streamed before this process started are unknown.
- A chunk is registered before S is taken. It starts with the pending transactions, and every later one is added. If it
  were registered after S, a transaction in between would be missed.
- A chunk may join at the first boundary at or above L_hi, the end of the WAL right after S, if all its rows have
  arrived. Then everything that commits below is in the log already.

Keys are in the form of the log, so an update that changes a key has two. An extra key is harmless: it drops a row whose
newest state is in the log. A missing key would keep a stale row forever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cdc.errors import InvariantError
from cdc.lsn import Lsn
from cdc.model.visibility import PgSnapshot

_KEYS_MAX: Final = (
    500_000  # of pending transactions, about 100 bytes each; above it the keys of the oldest are forgotten
)


@dataclass(frozen=True, slots=True)
class TransactionKeys:
    """The keys that one transaction changed in tables under snapshot.

    Attributes:
        xid: its top-level transaction id, 32 bits.
        keys: changed keys by table.
        partial: those of the keys whose last record is incomplete (lacks TOAST values).
        truncated: tables that it truncated.
        unknown: tables whose keys are unknown; None for every table.
    """

    xid: int
    keys: Mapping[str, Collection[bytes]] = field(default_factory=dict)
    partial: Mapping[str, Collection[bytes]] = field(default_factory=dict)
    truncated: frozenset[str] = frozenset()
    unknown: frozenset[str] | None = frozenset()

    @property
    def size(self) -> int:
        """Return the number of keys."""
        return sum(map(len, self.keys.values()))

    def hides(self, table: str) -> bool:
        """Whether it may have changed unknown keys of `table`."""
        return self.unknown is None or table in self.unknown

    def concerns(self, table: str) -> bool:
        """Whether it matters for chunks of `table`."""
        return table in self.keys or table in self.truncated or self.hides(table)


@dataclass(slots=True)
class Verdict:
    """Which rows of a chunk must not join.

    Attributes:
        keys: the keys of these rows.
        everything: no row may join, because the table was truncated.
    """

    keys: set[bytes] = field(default_factory=set)
    everything: bool = False


@dataclass(slots=True)
class _Open:
    table: str
    log: list[TransactionKeys]
    verdict: Verdict = field(default_factory=Verdict)
    snapshot: PgSnapshot | None = None
    l_hi: Lsn = Lsn(0)  # noqa: RUF009 - Lsn is an immutable int
    arrived: bool = False


class Window:
    """Pending transactions and registered chunks of one replication session.

    Only the ids of pending transactions survive the session, in the progress record. Chunks must not survive: after a
    crash of the server, a transaction that a snapshot saw may be lost and its id reused.
    """

    def __init__(self, *, keys_max: int = _KEYS_MAX) -> None:
        self.pending: dict[int, TransactionKeys] = {}
        self._open: dict[int, _Open] = {}
        self._size = 0
        self._keys_max = keys_max

    def suspect(self, xids: Iterable[int], tables: Collection[str] | None = None) -> None:
        """Record transactions that may have unknown keys of `tables` (None: of any table).

        This also applies to transactions with other known keys.
        """
        for xid in xids:
            low = xid & 0xFFFFFFFF
            known = self.pending.get(low, TransactionKeys(low))
            more = None if tables is None or known.unknown is None else known.unknown | set(tables)
            self.pending[low] = replace(known, unknown=more)

    def suspects(self, table: str) -> frozenset[int]:
        """Return the transactions that may have unknown keys of `table`. Read no chunk before a snapshot sees them."""
        return frozenset(xid for xid, touch in self.pending.items() if touch.hides(table))

    def unseen(self, table: str) -> Verdict | None:
        """Return what a chunk of the table would drop if it were read now; None if it would be given up."""
        found = Verdict()
        for touch in self.pending.values():
            if touch.hides(table):
                return None
            found.everything = found.everything or table in touch.truncated
            found.keys.update(touch.keys.get(table, ()))
        return found

    def streamed(self, touch: TransactionKeys) -> None:
        """Record a transaction that was streamed up to its end. Suspicions about it remain."""
        if touch.size > self._keys_max:
            unknown = None if touch.unknown is None else touch.unknown | touch.keys.keys()
            touch = TransactionKeys(touch.xid, truncated=touch.truncated, unknown=unknown)
        for chunk in self._open.values():
            if touch.concerns(chunk.table):
                chunk.log.append(touch)
        known = self.pending.pop(touch.xid, None)
        if known is not None:
            self._size -= known.size
            unknown = None if known.unknown is None or touch.unknown is None else known.unknown | touch.unknown
            touch = replace(touch, unknown=unknown)
        self.pending[touch.xid] = touch
        self._size += touch.size
        self._forget_keys()

    def seen(self, snapshot: PgSnapshot) -> None:
        """Forget pending transactions that a snapshot of the primary sees; every later snapshot sees them, too."""
        for xid in [xid for xid in self.pending if snapshot.sees(xid)]:
            self._size -= self.pending.pop(xid).size

    def register(self, number: int, table: str) -> None:
        """Register a chunk. Take its snapshot only after this returns."""
        self._open[number] = _Open(table, [touch for touch in self.pending.values() if touch.concerns(table)])

    def taken(self, number: int, snapshot: PgSnapshot, l_hi: Lsn) -> bool:
        """Record the chunk's snapshot and the end of the WAL after it. Returns False if the chunk is given up."""
        chunk = self._open[number]
        chunk.snapshot, chunk.l_hi = snapshot, l_hi
        self.seen(snapshot)
        return self.verdict(number) is not None

    def arrived(self, number: int) -> None:
        """Record that all rows of the chunk have arrived."""
        self._open[number].arrived = True

    def may_join(self, number: int, boundary: Lsn) -> bool:
        """Whether the rows may join at `boundary`, which lies between two transactions of the source."""
        chunk = self._open[number]
        return chunk.arrived and boundary >= chunk.l_hi

    def waits(self, number: int, boundary: Lsn) -> bool:
        """Whether the rows have arrived but `boundary` is too early."""
        chunk = self._open[number]
        return chunk.arrived and boundary < chunk.l_hi

    def verdict(self, number: int) -> Verdict | None:
        """Return which rows must not join, by all transactions streamed so far; None if the chunk is given up."""
        chunk = self._open[number]
        if chunk.snapshot is None:
            raise InvariantError("a chunk is checked before its snapshot is known")
        found, table = chunk.verdict, chunk.table
        for touch in chunk.log:
            if chunk.snapshot.sees(touch.xid):
                continue
            if touch.hides(table):
                self.forget(number)
                return None
            found.everything = found.everything or table in touch.truncated
            found.keys.update(touch.keys.get(table, ()))
        chunk.log.clear()
        return found

    def forget(self, number: int) -> None:
        """Remove a chunk that has joined or is given up."""
        self._open.pop(number, None)

    def _forget_keys(self) -> None:
        """Limit the number of keys: the keys of the oldest pending transactions become unknown."""
        if self._size <= self._keys_max:
            return
        for xid, touch in list(self.pending.items()):
            if touch.size:
                self._size -= touch.size
                self.pending[xid] = TransactionKeys(xid, unknown=None)
            if self._size <= self._keys_max:
                return
