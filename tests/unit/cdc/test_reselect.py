"""Re-reading values: which rows are requested, how long it waits, and what it reports."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from cdc.errors import SourceGap, SourceUnreachable, TailraceError
from cdc.model.incomplete_record import IncompleteRecord, IncompleteRecords, ReadValues
from cdc.model.relation import Relation
from cdc.replication.key_read import ReadDeferred, ReadRequest, ReadResult
from cdc.replication.reselect import Reselector
from tests.fixtures.servers import customer_table
from tests.fixtures.servers.manual_clock import ManualClock

UNSEEN = ReadDeferred(SourceUnreachable("transaction 7 is not visible yet"))
NAME, NOTE = 1, 2


@dataclass
class Site:
    """A reselector with scripted tables; also its observer."""

    answers: list[list[ReadResult] | Exception] = field(default_factory=list)
    asked: list[tuple[list[ReadRequest], frozenset[int]]] = field(default_factory=list)
    found: dict[str, ReadValues] = field(default_factory=dict)
    counts: list[tuple[int, int, int]] = field(default_factory=list)
    told: list[TailraceError | None] = field(default_factory=list)
    owed: list[tuple[str, ...]] = field(default_factory=list)
    owed_counts: list[int] = field(default_factory=list)
    may_owe: bool = False
    clock: ManualClock = field(default_factory=ManualClock)
    stop: threading.Event = field(default_factory=threading.Event)
    unhealthy: TailraceError | None = None

    def __post_init__(self) -> None:
        self.holes = IncompleteRecords()
        self.reselector = Reselector(
            self._read, self.holes, self.clock, self.stop, observer=self, healthy=self._healthy, owe=self._owe
        )

    def hole(self, relation: Relation, key: str, *missing: int, xid: int = 7) -> None:
        """Add an incomplete record; its values are stored under its key."""
        record_key = f'{{"id":{key}}}'.encode()
        self.holes.add(
            IncompleteRecord(relation, (0,), (key,), record_key, missing, xid, partial(self.found.__setitem__, key))
        )

    def _read(self, asks: Sequence[ReadRequest], xids: frozenset[int]) -> list[ReadResult]:
        self.asked.append((list(asks), xids))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _owe(self, holes: Sequence[IncompleteRecord]) -> bool:
        if self.may_owe:
            self.owed += [hole.key for hole in holes]
        return self.may_owe

    def _healthy(self) -> None:
        if self.unhealthy is not None:
            raise self.unhealthy

    def reselected(self, *, row_count: int, gone_count: int, query_count: int) -> None:
        self.counts.append((row_count, gone_count, query_count))

    def reselect_owed(self, row_count: int) -> None:
        self.owed_counts.append(row_count)

    def reselect_waits(self, cause: TailraceError | None) -> None:
        self.told.append(cause)


def test_one_query_a_table_asks_for_each_key_once_and_all_columns() -> None:
    one, two = customer_table.relation(), customer_table.relation(2, name="other")
    site = Site([[ReadResult((NAME, NOTE), {0: (b"Ann", None), 1: (b"Bob", b"b")}), ReadResult()]])
    site.hole(one, "1", NOTE, xid=7)
    site.hole(two, "1", NOTE, xid=8)
    site.hole(one, "2", NAME, NOTE, xid=7)
    site.hole(one, "1", NAME, xid=9)

    assert site.reselector.pending
    assert site.reselector.fill()

    ((asks, xids),) = site.asked
    assert [(ask.relation, ask.columns, ask.keys) for ask in asks] == [
        (one, (NAME, NOTE), [("1",), ("2",)]),
        (two, (NOTE,), [("1",)]),
    ]
    assert xids == {7, 8, 9}
    assert site.found == {"1": {NAME: b"Ann"}, "2": {NAME: b"Bob", NOTE: b"b"}}
    assert site.counts == [(4, 1, 1)]
    assert not site.reselector.pending


def test_row_that_is_gone_is_left_as_it_is() -> None:
    site = Site([[ReadResult((NOTE,), {})]])
    site.hole(customer_table.relation(), "1", NOTE)

    assert site.reselector.fill()

    assert site.found == {}
    assert site.counts == [(1, 1, 1)]


def test_it_looks_again_until_the_transaction_is_visible() -> None:
    site = Site([UNSEEN, UNSEEN, [ReadResult((NOTE,), {0: (b"x",)})]])
    site.hole(customer_table.relation(), "1", NOTE)

    assert site.reselector.fill()

    assert len(site.asked) == 3
    assert site.found == {"1": {NOTE: b"x"}}
    assert site.clock.now_s - 1000.0 < 0.1, "the first pauses are short"
    assert site.told == []


def test_long_wait_is_logged_once_with_its_cause_and_at_its_end() -> None:
    site = Site([*[UNSEEN] * 40, [ReadResult()]])
    site.hole(customer_table.relation(), "1", NOTE)

    assert site.reselector.fill()

    assert site.told == [UNSEEN.error, None]
    assert 10 < site.clock.now_s - 1000.0 < 25, "the pauses have a bound"


def test_stop_ends_the_wait_after_one_look() -> None:
    site = Site([UNSEEN])
    site.hole(customer_table.relation(), "1", NOTE)
    site.stop.set()

    assert not site.reselector.fill()

    assert len(site.asked) == 1
    assert site.reselector.pending, "it is still incomplete"


def test_slot_that_is_lost_meanwhile_ends_the_wait() -> None:
    site = Site([UNSEEN], unhealthy=SourceGap("the slot is lost"))
    site.hole(customer_table.relation(), "1", NOTE)

    with pytest.raises(SourceGap):
        site.reselector.fill()


def test_rows_of_a_transaction_that_stays_invisible_are_owed_and_the_others_filled() -> None:
    unseen = ReadDeferred(SourceUnreachable("transaction 8 is not visible yet"), [8])
    site = Site([*[unseen] * 9, [ReadResult((NOTE,), {0: (b"x",)})]], may_owe=True)
    site.hole(customer_table.relation(), "1", NOTE, xid=8)
    site.hole(customer_table.relation(), "2", NOTE, xid=9)

    assert site.reselector.fill()

    assert 1.0 <= site.clock.now_s - 1000.0 < 2.0
    assert (site.owed, site.owed_counts) == ([("1",)], [1])
    assert site.asked[-1][1] == {9}
    assert site.found == {"2": {NOTE: b"x"}}
    assert site.told == []
    assert not site.reselector.pending


def test_batch_after_one_that_owes_hardly_waits_until_one_is_whole_again() -> None:
    unseen = ReadDeferred(SourceUnreachable("transaction 8 is not visible yet"), [8])
    site = Site([unseen] * 40, may_owe=True)
    took_s = []
    for answers in ([unseen] * 40, [unseen] * 40, [[ReadResult()]], [unseen] * 40):
        site.answers[:] = answers
        site.hole(customer_table.relation(), "1", NOTE, xid=8)
        began_s = site.clock.now_s
        assert site.reselector.fill()
        took_s.append(site.clock.now_s - began_s)

    first, second, whole, after = took_s
    assert second < 0.2 < 1.0 <= first
    assert whole == 0
    assert after >= 1.0
