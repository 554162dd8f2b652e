"""Mutants: the rule of snapshots without one of its clauses, and DBLog's rule. The tests must find each one wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc.lsn import Lsn
from cdc.model.snapshot_record import SnapshotRecord
from cdc.model.visibility import PgSnapshot
from snapshot.chunk import Chunk, Form, Leaf
from snapshot.chunk_plan import Plans
from snapshot.merger import Merger
from snapshot.open_chunks import OpenChunks
from snapshot.window import TransactionKeys, Verdict, Window
from tests.property.snapshot_history import History

CHUNK_BYTES = 8192


class NothingSuspected(Window):
    """Ignores transactions that were open at the beginning."""

    def suspect(self, xids: Iterable[int], tables: Collection[str] | None = None) -> None:
        pass


class SuspicionForgotten(Window):
    """Treats a suspected transaction as known once it is streamed, although it may have earlier, unknown keys."""

    def streamed(self, touch: TransactionKeys) -> None:
        super().streamed(touch)
        self.pending[touch.xid] = replace(self.pending[touch.xid], unknown=touch.unknown)


class UnknownKeysJoin(Window):
    """Lets a chunk join although a transaction that it does not see may have unknown keys."""

    def __init__(self) -> None:
        super().__init__(keys_max=2)

    def verdict(self, number: int) -> Verdict | None:
        log = self._open[number].log
        log[:] = [replace(touch, unknown=frozenset()) for touch in log]
        return super().verdict(number)


class KeysForgotten(Window):
    """Drops the oldest pending transactions above the limit, instead of only their keys."""

    def __init__(self) -> None:
        super().__init__(keys_max=2)

    def _forget_keys(self) -> None:
        while self._size > self._keys_max:
            self._size -= self.pending.pop(next(iter(self.pending))).size


class LargeKeysForgotten(Window):
    """Treats a transaction with more keys than the limit as one without keys."""

    def __init__(self) -> None:
        super().__init__(keys_max=2)

    def streamed(self, touch: TransactionKeys) -> None:
        large = touch.size > self._keys_max
        super().streamed(replace(touch, keys={}) if large else touch)


class PendingNotKnown(Window):
    """A chunk does not start with the transactions that were pending when it was registered."""

    def register(self, number: int, table: str) -> None:
        super().register(number, table)
        log = self._open[number].log
        log[:] = [touch for touch in log if touch.hides(table)]


class NothingDropped(Window):
    def verdict(self, number: int) -> Verdict | None:
        found = super().verdict(number)
        return None if found is None else replace(found, keys=set())


class RegisteredLate(Window):
    """Registers a chunk when its rows arrive."""

    def arrived(self, number: int) -> None:
        super().arrived(number)
        chunk = self._open[number]
        chunk.log[:] = [touch for touch in self.pending.values() if touch.concerns(chunk.table)]
        chunk.verdict = Verdict()


class JoinedAtOnce(Window):
    """Rows join before the stream has passed the end of the WAL at their snapshot."""

    def may_join(self, number: int, boundary: Lsn) -> bool:
        return self._open[number].arrived


class LsnWindow(Window):
    """DBLog's rule: only transactions streamed between the beginning and the end of the read win."""

    def register(self, number: int, table: str) -> None:
        super().register(number, table)
        self._open[number].log.clear()

    def taken(self, number: int, snapshot: PgSnapshot, l_hi: Lsn) -> bool:
        return super().taken(number, _Blind(snapshot.xmax, snapshot.running), l_hi)


class _Blind(PgSnapshot):
    """Sees no transaction that is streamed beside it."""

    def sees(self, xid: int) -> bool:
        return False


class TruncateForgotten(Window):
    def streamed(self, touch: TransactionKeys) -> None:
        super().streamed(replace(touch, truncated=frozenset()))


class PendingLost(Merger):
    """A restart forgets the pending transactions."""

    def resume(self, records: Mapping[str, SnapshotRecord], pending: Iterable[int]) -> None:
        super().resume(records, ())


class _FilenodeOfPlan(OpenChunks):
    def taken(self, chunk: Chunk, snapshot: PgSnapshot, l_hi: Lsn, filenode: int | None, form: Form) -> bool:
        leaf = chunk.spec.leaf
        return super().taken(chunk, snapshot, l_hi, leaf.filenode if leaf else None, form)


class _SameFilenode(Plans):
    def plan(self, name: str, form: Form, leaves: Sequence[Leaf], at: Lsn) -> None:
        super().plan(name, form, [replace(leaf, filenode=1) for leaf in leaves], at)


class FilenodeNotCompared(Merger):
    """The file node of a leaf is read when the table is planned, and never compared."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.chunks.__class__ = _FilenodeOfPlan
        self.plans.__class__ = _SameFilenode


class NothingRepaired(Merger):
    def streamed(self, touch: TransactionKeys) -> None:
        super().streamed(replace(touch, partial={}))


class RunningOnly(History):
    """Reads open transactions from a snapshot, which lists only those below the newest that has ended."""

    def suspected(self) -> list[int]:
        return sorted(self.server.snapshot().running)


class NotWidened(History):
    """Compares the 32-bit ids of the stream with 64-bit ids of snapshots."""

    def look(self) -> PgSnapshot:
        seen = super().look()
        return _Narrow(seen.xmax, seen.running)


class _Narrow(PgSnapshot):
    def sees(self, xid: int) -> bool:
        return xid < self.xmax and xid not in self.running
