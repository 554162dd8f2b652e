"""The copy of a table without a key, against a model of the server: each change is in the copy or an event, once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.model.visibility import PgSnapshot
from snapshot.keyless_rule import CopyFilter, KeylessCopy
from tests.property.obligations import ONCE, assert_found, demand
from tests.property.snapshot_server import KEYS, Server, Transaction

_NUMBERS = 120
_HISTORIES = 3000  # of a mutant, at most
_ORDINARY, _WRAPPING = 700, (1 << 32) - 6  # the first transaction id
_TABLE = "public.t"

Make = Callable[[KeylessCopy, Server], CopyFilter]


def _rule(copied: KeylessCopy, _: Server) -> CopyFilter:
    return CopyFilter({_TABLE: copied})


class _History:
    """Writers, a start that waits and copies, then the stream, which may restart from what was published."""

    def __init__(self, first_xid: int, make: Make = _rule, *, patient: bool = True) -> None:
        self.server = Server(first_xid)
        self.seen: Counter[str] = Counter()
        self._make = make
        self._patient = patient
        self._start: int | None = None
        self._suspects: list[int] = []
        self._copied: KeylessCopy | None = None
        self._in_copy: set[int] = set()
        self._position = 0
        self._published: list[int] = []
        self._rows: CopyFilter | None = None
        self._buffer = TopicBuffer("t", 2, compacted=False)

    def run(self, steps: Sequence[int]) -> None:
        for step in steps:
            kind, rest = step % 16, step // 16
            if kind < 10:
                self._write(kind, rest)
            elif kind == 10 and self._start is None and rest % 4 == 0:
                self.server.flushed = self.server.insert
                self._start = self._position = self.server.insert
                self._suspects = self.server.lock_holders()
            elif kind < 13:
                self._copy()
            elif kind < 15 and self._copied is not None:
                self._stream(in_parts=bool(rest % 2))
            elif kind == 15 and rest % 3 == 0:
                self._rows = None

    def finish(self) -> None:
        if self._start is None:
            return
        server = self.server
        for transaction in list(server.open.values()):
            server.commit(transaction)
        while server.hidden:
            server.show(0)
        self._copy()
        server.flushed = server.insert
        while self._stream(in_parts=False):
            pass
        wanted = Counter(id(op) for one in server.committed for op in one.ops)
        demand(ONCE, Counter([*self._in_copy, *self._published]) == wanted)

    def _write(self, kind: int, rest: int) -> None:
        server, open_ = self.server, list(self.server.open.values())
        if (kind == 0 or not open_) and len(open_) < 4:
            open_ = [*open_, server.begin()]
        transaction = open_[rest % len(open_)]
        if kind < 5:
            server.change(transaction, rest // 4 % 5, rest // 20 % KEYS, 0)
        elif kind < 7:
            server.commit(transaction)
        elif kind < 9 and server.hidden:
            server.show(rest)
        elif kind == 9 and rest % 2:
            server.flushed = server.insert

    def _copy(self) -> None:
        server, snapshot = self.server, self.server.snapshot()
        waits = any(not snapshot.sees(xid & 0xFFFFFFFF) for xid in self._suspects)
        if self._start is None or self._copied is not None or (waits and self._patient):
            return
        self._copied = KeylessCopy(snapshot, Lsn(server.insert))
        visible = [one for one in server.committed if one not in server.hidden]
        self._in_copy = {id(op) for one in visible for op in one.ops}
        self.seen["hidden from the copy"] += bool(server.hidden)
        server.flushed = server.insert

    def _stream(self, *, in_parts: bool) -> bool:
        """Stream the next flushed transaction, with `in_parts` before its end; return False if there is none."""
        assert self._copied is not None
        if self._rows is None:
            self._rows = self._make(self._copied, self.server)
            self._rows.passed(Lsn(self._position))
            self._rows.watch(_TABLE, self._buffer)
        for one in self.server.committed:
            if one.commit >= self._position and one.end <= self.server.flushed:
                self._tell(self._rows, one, in_parts=in_parts)
                self._position = one.end
                self._rows.passed(Lsn(one.end))
                return True
        return False

    def _tell(self, rows: CopyFilter, one: Transaction, *, in_parts: bool) -> None:
        rows.begun(one.xid & 0xFFFFFFFF)
        for number, op in enumerate(one.ops):
            self._buffer.partitions[number % 2].append((None, b"%d" % id(op), None))
            if in_parts:
                rows.gather()
                self._publish()
        rows.ended()
        published = len(self._published)
        rows.gather()
        self._publish()
        self.seen["in the copy already"] += bool(one.ops) and published == len(self._published) and not in_parts

    def _publish(self) -> None:
        for records in self._buffer.partitions:
            self._published += [int(value) for _, value, _ in records if value]
            records.clear()


def seeded(seed: int, make: Make = _rule, *, patient: bool = True) -> None:
    """Run the history that a seed stands for."""
    chance = random.Random(seed)
    history = _History(_WRAPPING if seed % 2 else _ORDINARY, make, patient=patient)
    history.run([chance.randrange(1 << 16) for _ in range(_NUMBERS)])
    history.finish()


def test_each_change_is_in_the_copy_or_an_event_and_only_once() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=3000 if settings().derandomize else 30_000)
    @given(steps=st.binary(min_size=2 * _NUMBERS, max_size=2 * _NUMBERS), first=st.sampled_from([_ORDINARY, _WRAPPING]))
    def histories(steps: bytes, first: int) -> None:
        history = _History(first)
        history.run([high << 8 | low for high, low in zip(steps[::2], steps[1::2], strict=True)])
        history.finish()
        seen.update(name for name, count in history.seen.items() if count)

    histories()
    assert min(seen["hidden from the copy"], seen["in the copy already"]) >= 200, "each in 200 histories at least"


def _nothing_left_out(_: KeylessCopy, __: Server) -> CopyFilter:
    return CopyFilter({})


def _by_lsn(copied: KeylessCopy, _: Server) -> CopyFilter:
    return CopyFilter({_TABLE: KeylessCopy(PgSnapshot(copied.snapshot.xmax + 1000, frozenset()), copied.l_hi)})


def _running_only(copied: KeylessCopy, _: Server) -> CopyFilter:
    return CopyFilter(
        {_TABLE: KeylessCopy(PgSnapshot(copied.snapshot.xmax + 1000, copied.snapshot.running), copied.l_hi)}
    )


def _not_widened(copied: KeylessCopy, _: Server) -> CopyFilter:
    return CopyFilter({_TABLE: KeylessCopy(_Narrow(copied.snapshot.xmax, copied.snapshot.running), copied.l_hi)})


class _Narrow(PgSnapshot):
    def sees(self, xid: int) -> bool:
        return xid < self.xmax and xid not in self.running


@pytest.mark.parametrize(
    ("make", "patient"),
    [(_rule, False), (_nothing_left_out, True), (_by_lsn, True), (_running_only, True), (_not_widened, True)],
)
def test_rule_without_one_of_its_clauses_is_found_wrong(make: Make, patient: bool) -> None:
    def history(seed: int) -> None:
        seeded(seed, make, patient=patient)

    assert_found(ONCE, history, _HISTORIES)
