"""Which rows of a chunk may join the log, and when: by visibility, not by position (DESIGN section 6). Pure.

A chunk is read in a snapshot S of its own, while transactions stream by. A commit can be in the stream before S sees
it, for as long as a standby is away, so a window of log positions around the read keeps stale rows for ever. Here a row
is dropped when a transaction that S does not see has touched its key, however old its commit record is:

- `pending` are the transactions that were streamed and that no snapshot has seen yet, with their keys; of those that
  may have been streamed before this program ran the keys are unknown.
- A chunk is registered before its S is taken. From then on it is told of every transaction; what was pending then it
  knows from the start.
- It may join at the first boundary at or behind L_hi, the end of the WAL right after S, when all its rows are there.

Keys are those of the log's records, so a moved key is two of them. A key too many drops a row whose newest state the
log has already; nothing here may ever know one too few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cdc.errors import InvariantError
from cdc.lsn import Lsn
from cdc.model.visibility import PgSnapshot

_KEYS_MAX: Final = 500_000  # of pending transactions; beyond that the oldest count as unknown. About 100 bytes each


@dataclass(frozen=True, slots=True)
class TransactionKeys:
    """What one transaction did to tables under snapshot.

    Attributes:
        xid: its top-level id, 32 bits.
        keys: by table.
        partial: those of them whose last record lacks values (TOAST).
        truncated: tables it emptied.
        unknown: tables of which its keys are not known; None for every table.
    """

    xid: int
    keys: Mapping[str, Collection[bytes]] = field(default_factory=dict)
    partial: Mapping[str, Collection[bytes]] = field(default_factory=dict)
    truncated: frozenset[str] = frozenset()
    unknown: frozenset[str] | None = frozenset()

    @property
    def size(self) -> int:
        """How many keys it holds."""
        return sum(map(len, self.keys.values()))

    def hides(self, table: str) -> bool:
        """Whether it may have touched keys of `table` that nobody knows."""
        return self.unknown is None or table in self.unknown

    def concerns(self, table: str) -> bool:
        """Whether a chunk of `table` has to know of it."""
        return table in self.keys or table in self.truncated or self.hides(table)


@dataclass(slots=True)
class Verdict:
    """What of a chunk must not join.

    Attributes:
        keys: of its rows.
        everything: its table was emptied.
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
    """One per replication session: what it knows dies with it, except the ids that are kept in the progress record."""

    def __init__(self, *, keys_max: int = _KEYS_MAX) -> None:
        self.pending: dict[int, TransactionKeys] = {}
        self._open: dict[int, _Open] = {}
        self._size = 0
        self._keys_max = keys_max

    def suspect(self, xids: Iterable[int], tables: Collection[str] | None = None) -> None:
        """These may have been streamed, or be streamed later, with keys of `tables` (None: of any) that nobody knows.

        They are suspected also when other keys of theirs are known.
        """
        for xid in xids:
            low = xid & 0xFFFFFFFF
            known = self.pending.get(low, TransactionKeys(low))
            more = None if tables is None or known.unknown is None else known.unknown | set(tables)
            self.pending[low] = replace(known, unknown=more)

    def suspects(self, table: str) -> frozenset[int]:
        """The ids that may hide keys of `table`: no chunk of it is worth reading before they are seen."""
        return frozenset(xid for xid, touch in self.pending.items() if touch.hides(table))

    def unseen(self, table: str) -> Verdict | None:
        """What a chunk of the table that is read now would have dropped; None: it would be given up."""
        found = Verdict()
        for touch in self.pending.values():
            if touch.hides(table):
                return None
            found.everything = found.everything or table in touch.truncated
            found.keys.update(touch.keys.get(table, ()))
        return found

    def streamed(self, touch: TransactionKeys) -> None:
        """A transaction was streamed up to its end. What was suspected of it stays."""
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
        """A snapshot that was just taken on the primary; what it sees every later one sees, too."""
        for xid in [xid for xid in self.pending if snapshot.sees(xid)]:
            self._size -= self.pending.pop(xid).size

    def register(self, number: int, table: str) -> None:
        """Chunk `number` is about to be read: its snapshot is taken after this returns."""
        self._open[number] = _Open(table, [touch for touch in self.pending.values() if touch.concerns(table)])

    def taken(self, number: int, snapshot: PgSnapshot, l_hi: Lsn) -> bool:
        """Its snapshot and the end of the WAL right after it. False: given up, read it again later."""
        chunk = self._open[number]
        chunk.snapshot, chunk.l_hi = snapshot, l_hi
        self.seen(snapshot)
        return self.verdict(number) is not None

    def arrived(self, number: int) -> None:
        """All its rows are there."""
        self._open[number].arrived = True

    def may_join(self, number: int, boundary: Lsn) -> bool:
        """Whether its rows may be placed at `boundary`, where no transaction of the source is half streamed."""
        chunk = self._open[number]
        return chunk.arrived and boundary >= chunk.l_hi

    def waits(self, number: int, boundary: Lsn) -> bool:
        """Whether its rows are there, and `boundary` is too early for them."""
        chunk = self._open[number]
        return chunk.arrived and boundary < chunk.l_hi

    def verdict(self, number: int) -> Verdict | None:
        """What must not join, by all that was streamed until now; None: nothing may, the chunk is given up."""
        chunk = self._open[number]
        if chunk.snapshot is None:
            raise InvariantError("a chunk is judged before its snapshot")
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
        """It has joined, or is given up."""
        self._open.pop(number, None)

    def _forget_keys(self) -> None:
        """Bound what is kept: the oldest transactions that nobody sees yet count as unknown."""
        if self._size <= self._keys_max:
            return
        for xid, touch in list(self.pending.items()):
            if touch.size:
                self._size -= touch.size
                self.pending[xid] = TransactionKeys(xid, unknown=None)
            if self._size <= self._keys_max:
                return
