"""The rule with one clause left out each, and the rules that others use. Every one of them must be found wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from cdc.lsn import Lsn
from cdc.model.snapshot_record import SnapshotRecord
from cdc.model.visibility import PgSnapshot
from snapshot.chunk import Chunk, Form, Leaf
from snapshot.merger import Merger
from snapshot.window import TransactionKeys, Verdict, Window
from tests.property.snapshot_history import History

CHUNK_BYTES = 8192


class NothingSuspected(Window):
    """Transactions that were open at the beginning are not waited for."""

    def suspect(self, xids: Iterable[int], tables: Collection[str] | None = None) -> None:
        pass


class SuspicionForgotten(Window):
    """A suspected transaction counts as known when it is streamed, although earlier keys of it may be unknown."""

    def streamed(self, touch: TransactionKeys) -> None:
        super().streamed(touch)
        self.pending[touch.xid] = replace(self.pending[touch.xid], unknown=touch.unknown)


class UnknownKeysJoin(Window):
    """A chunk joins although a transaction that it does not see may hide keys."""

    def __init__(self) -> None:
        super().__init__(keys_max=2)

    def verdict(self, number: int) -> Verdict | None:
        log = self._open[number].log
        log[:] = [replace(touch, unknown=frozenset()) for touch in log]
        return super().verdict(number)


class KeysForgotten(Window):
    """Keys of the oldest pending transactions are dropped above the bound, and the transactions with them."""

    def __init__(self) -> None:
        super().__init__(keys_max=2)

    def _forget_keys(self) -> None:
        while self._size > self._keys_max:
            self._size -= self.pending.pop(next(iter(self.pending))).size


class LargeKeysForgotten(Window):
    """A transaction with more keys than the bound counts as one without keys."""

    def __init__(self) -> None:
        super().__init__(keys_max=2)

    def streamed(self, touch: TransactionKeys) -> None:
        large = touch.size > self._keys_max
        super().streamed(replace(touch, keys={}) if large else touch)


class PendingNotKnown(Window):
    """A chunk does not know what was streamed, and not visible, before it was registered."""

    def register(self, number: int, table: str) -> None:
        super().register(number, table)
        log = self._open[number].log
        log[:] = [touch for touch in log if touch.hides(table)]


class NothingDropped(Window):
    def verdict(self, number: int) -> Verdict | None:
        found = super().verdict(number)
        return None if found is None else replace(found, keys=set())


class RegisteredLate(Window):
    """A chunk is known when its rows arrive."""

    def arrived(self, number: int) -> None:
        super().arrived(number)
        chunk = self._open[number]
        chunk.log[:] = [touch for touch in self.pending.values() if touch.concerns(chunk.table)]
        chunk.verdict = Verdict()


class JoinedAtOnce(Window):
    """Rows do not wait for the end of the WAL that they may come from."""

    def may_join(self, number: int, boundary: Lsn) -> bool:
        return self._open[number].arrived


class LsnWindow(Window):
    """DBLog's rule: what was streamed between the beginning and the end of the read wins, everything else does not."""

    def register(self, number: int, table: str) -> None:
        super().register(number, table)
        self._open[number].log.clear()

    def taken(self, number: int, snapshot: PgSnapshot, l_hi: Lsn) -> bool:
        return super().taken(number, _Blind(snapshot.xmax, snapshot.running), l_hi)


class _Blind(PgSnapshot):
    """Sees nothing that is streamed beside it."""

    def sees(self, xid: int) -> bool:
        return False


class TruncateForgotten(Window):
    def streamed(self, touch: TransactionKeys) -> None:
        super().streamed(replace(touch, truncated=frozenset()))


class PendingLost(Merger):
    """A restart forgets what was not visible yet."""

    def resume(self, records: Mapping[str, SnapshotRecord], pending: Iterable[int]) -> None:
        super().resume(records, ())


class FilenodeNotCompared(Merger):
    """Where rows lie is looked at when they are planned, and not again."""

    def taken(self, chunk: Chunk, snapshot: PgSnapshot, l_hi: Lsn, filenode: int | None, form: Form) -> bool:
        leaf = chunk.spec.leaf
        return super().taken(chunk, snapshot, l_hi, leaf.filenode if leaf else None, form)

    def plan(self, name: str, form: Form, leaves: Sequence[Leaf], at: Lsn) -> None:
        super().plan(name, form, [replace(leaf, filenode=1) for leaf in leaves], at)


class NothingRepaired(Merger):
    def streamed(self, touch: TransactionKeys) -> None:
        super().streamed(replace(touch, partial={}))


class RunningOnly(History):
    """What is open is asked of a snapshot, which lists only what is below the last transaction that ended."""

    def suspected(self) -> list[int]:
        return sorted(self.server.snapshot().running)


class NotWidened(History):
    """An id is taken as the stream has it, in 32 bits."""

    def look(self) -> PgSnapshot:
        seen = super().look()
        return _Narrow(seen.xmax, seen.running)


class _Narrow(PgSnapshot):
    def sees(self, xid: int) -> bool:
        return xid < self.xmax and xid not in self.running
