"""A sweep: which keys it may delete, and when the topic must be read again."""

from __future__ import annotations

from cdc.lsn import Lsn
from cdc.model.relation import Relation, ReplicaIdentity
from cdc.model.snapshot_record import SnapshotRecord
from cdc.model.visibility import PgSnapshot
from snapshot.chunk import Form, Leaf
from snapshot.log_writer import LogWriter
from snapshot.merger import Merger
from snapshot.sweep import Sweep
from snapshot.table_state import RowSelection
from snapshot.window import TransactionKeys

T = "public.t"
FORM = Form(Relation(1, "public", "t", ReplicaIdentity.DEFAULT, ()))
LEAF = Leaf(1, "public", "t", 1, 1, 8192)
NOWHERE = LogWriter(lambda *_: (0, 0), lambda *_: set(), lambda *_: 0)
END = {("t", 0): 7}


def _bounded(*, noted_max: int = 100) -> Sweep:
    sweep = Sweep((3,), noted_max=noted_max)
    sweep.begin()
    sweep.bound(sweep.turn, END)
    return sweep


def test_key_that_was_streamed_before_or_after_it_was_offered_is_not_deleted() -> None:
    sweep = _bounded()
    sweep.streamed({b"before"})
    sweep.offer([b"before", b"gone", b"after", b"there"], 0)
    sweep.streamed({b"after"})

    assert sweep.absent([b"before", b"gone", b"after", b"there"], {b"there"}) == [b"gone"]


def test_nothing_is_deleted_once_too_many_keys_were_streamed() -> None:
    sweep = _bounded(noted_max=2)
    sweep.offer([b"gone"], 5)

    sweep.streamed({b"1", b"2", b"3"})
    sweep.offer([b"gone"], 5)

    assert sweep.lost
    assert sweep.absent([b"gone"], ()) == []
    assert sweep.take_noted() == set()


def test_candidates_that_were_too_many_for_a_chunk_are_looked_for_in_smaller_pieces() -> None:
    sweep = _bounded()
    sweep.offer([b"%d" % n for n in range(5)], 0)
    found: list[bytes] = []

    assert len(sweep.take()) == 5
    assert sweep.take() == (), "one chunk at a time"
    sweep.give_back(2)
    while keys := sweep.take():
        assert len(keys) <= 2
        found += keys
        sweep.judged(keys)
    assert found == [b"0", b"1", b"2", b"3", b"4"]


def test_end_of_an_earlier_turn_is_not_taken_for_that_of_a_later_one() -> None:
    sweep = _bounded()
    turn = sweep.turn
    sweep.lose()
    sweep.begin()

    sweep.bound(turn, END)
    assert sweep.until is None
    sweep.bound(sweep.turn, END)
    assert sweep.until == END


def test_sweep_begins_when_the_last_row_to_be_read_was_streamed_instead() -> None:
    merger = Merger()
    merger.resume({T: SnapshotRecord(table=T, relation=1, state="running", begun=True, sweep=(3,))}, [])
    merger.plans.suspect(merger.plans.begun(), [])
    merger.plans.plan(T, FORM, [LEAF], Lsn(100))
    merger.streamed(
        TransactionKeys(5, {T: [b"1"]}, {T: [b"1"]})
    )  # without all its values, so the row must be read in the end
    blocks = merger.plans.next_chunk()
    assert blocks is not None
    chunk = merger.chunks.open(blocks)
    merger.chunks.taken(chunk, PgSnapshot(9, frozenset()), Lsn(100), LEAF.filenode, FORM)
    merger.chunks.arrived(chunk, [], 0)
    merger.chunks.join(Lsn(100), NOWHERE, rows_max=10)
    keys = merger.plans.next_chunk()
    assert keys is not None
    assert keys.keys == (b"1",)
    chunk = merger.chunks.open(keys)

    merger.streamed(TransactionKeys(6, {T: [b"1"]}))
    merger.chunks.give_back(chunk)

    assert merger.notes().sweeps == {T: 1}
    assert merger.notes_pending


def test_sweep_is_kept_for_the_next_snapshot_when_one_is_stopped() -> None:
    merger = Merger()
    merger.resume({T: SnapshotRecord(table=T, relation=1, state="running", asked=True, sweep=(3,))}, [])

    merger.requests.stop(T)
    stopped = merger.notes().records[T]
    after = Merger()
    after.resume({T: stopped}, [])
    after.requests.order(T, 1, Lsn(200), RowSelection())

    assert (stopped.hold, stopped.sweep, stopped.cut_state) == ("stopped", (3,), "snapshotting")
    assert after.notes().records[T].sweep == (3,)


def _awaiting(*, at: int = 100) -> Merger:
    """A merger with a snapshot of a table whose name another table had up to `at`."""
    merger = Merger()
    merger.requests.begin(T, 2, Lsn(50), sweep_from=Lsn(at))
    return merger


def test_nothing_of_a_table_that_replaced_another_is_read_before_the_stream_has_passed_the_replacement() -> None:
    """Otherwise later records of the former table would lie after the marks, and their keys would stay."""
    merger = _awaiting()

    merger.sweeps.mark(Lsn(99), lambda _: END)
    assert merger.notes().records == {}
    assert not merger.due(Lsn(99))
    assert merger.plans.begun() == {}
    assert merger.waits(Lsn(99))

    merger.due(Lsn(100))
    assert merger.notes_pending, "a commit follows"
    merger.sweeps.mark(Lsn(100), lambda _: END)
    assert merger.plans.begun() == {T: 1}
    assert merger.notes().records[T].sweep == (7,)
    assert merger.notes().records[T].sweep_from_lsn == 0


def test_topic_that_has_no_record_is_not_swept() -> None:
    merger = _awaiting()

    merger.sweeps.mark(Lsn(100), lambda _: {("t", 0): 0})

    assert merger.plans.begun() == {T: 1}
    assert merger.notes().records[T].sweep == ()


def test_replacement_that_is_awaited_is_still_awaited_after_a_restart() -> None:
    merger = _awaiting()
    merger.due(Lsn(100))
    record = merger.notes().records[T]

    again = Merger()
    again.resume({T: record}, [])
    assert again.plans.begun() == {}
    again.sweeps.mark(Lsn(100), lambda _: END)

    assert again.notes().records[T].sweep == (7,)
    assert again.tables.covers(T, 2, Lsn(100))
    assert not again.tables.covers(T, 2, Lsn(101)), "of a later replacement"
    assert not again.tables.covers(T, 3, Lsn(100)), "of another table"


def test_snapshot_that_is_begun_again_before_it_swept_still_sweeps() -> None:
    merger = _awaiting()

    merger.requests.begin(T, 2, Lsn(60))
    merger.sweeps.mark(Lsn(100), lambda _: END)

    assert merger.notes().records[T].sweep == (7,)


def test_table_that_is_gone_does_not_keep_others_from_being_read() -> None:
    merger = Merger()
    for name, oid in ((T, 1), ("public.u", 2)):
        merger.requests.begin(name, oid, Lsn(1))
        merger.plans.suspect(merger.plans.begun(), [])
        form = Form(Relation(oid, "public", name[-1], ReplicaIdentity.DEFAULT, ()))
        merger.plans.plan(name, form, [Leaf(oid, "public", name[-1], oid, 1, 8192)], Lsn(1))
    spec = merger.plans.next_chunk()
    assert spec is not None
    assert spec.table == T

    merger.chunks.plan_again(merger.chunks.open(spec))
    following = merger.plans.next_chunk()

    assert following is not None
    assert following.table == "public.u"
    assert merger.plans.tables_to_plan() == [T]
