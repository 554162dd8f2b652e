"""Requests to the merger: what the log records of them, and when."""

from __future__ import annotations

from cdc.lsn import Lsn
from cdc.model.relation import Relation, ReplicaIdentity
from cdc.model.signal_record import SignalsRecord
from cdc.model.snapshot_record import IncompleteKey, SnapshotRecord
from cdc.model.visibility import PgSnapshot
from cdc.progress.record_format import decode, encode
from snapshot.chunk import Form, Leaf
from snapshot.condition import parse
from snapshot.log_writer import LogWriter
from snapshot.merger import Merger
from snapshot.snapshot_requests import INCOMPLETE_BYTES_MAX, INCOMPLETE_MAX
from snapshot.table_state import RowSelection
from snapshot.window import TransactionKeys

T = "public.t"
FORM = Form(Relation(1, "public", "t", ReplicaIdentity.DEFAULT, ()))
LEAF = Leaf(1, "public", "t", 1, 10, 10 * 8192)
COMPLETE = SnapshotRecord(table=T, relation=1, state="complete", ended_lsn=50)
WHERE = "id = 1"
OWED = IncompleteKey(b"\0\0\0\0\xff\x04", {"id": "2"})


def _resumed(record: SnapshotRecord) -> Merger:
    merger = Merger(chunk_bytes=8192)
    merger.resume({T: record}, [])
    return merger


def _planned(merger: Merger) -> Merger:
    merger.plans.suspect(merger.plans.begun(), [])
    merger.plans.plan(T, FORM, [LEAF], Lsn(100))
    return merger


def test_order_and_its_signal_are_in_the_same_notes() -> None:
    merger = _resumed(COMPLETE)

    merger.requests.order(T, 1, Lsn(100), RowSelection(WHERE))
    merger.acted(SignalsRecord(topic_id="x", next_offset=8))
    notes = merger.notes()

    assert (notes.records[T].begun, notes.records[T].again, notes.records[T].cut_state) == (True, True, "complete")
    assert notes.signals is not None
    assert notes.signals.next_offset == 8
    merger.noted(notes, lambda _: {})
    assert not merger.notes_pending


def test_request_that_had_only_begun_reads_open_transactions_again_after_a_restart() -> None:
    merger = _resumed(COMPLETE)
    merger.requests.order(T, 1, Lsn(100), RowSelection(WHERE))

    after = _resumed(merger.notes().records[T])

    assert (after.plans.begun(), after.plans.tables_to_plan(), after.tables[T].condition) == ({T: 2}, [], parse(WHERE))


def test_paused_table_gets_no_chunk_over_a_restart_too() -> None:
    merger = _resumed(COMPLETE)
    merger.requests.order(T, 1, Lsn(100), RowSelection())
    _planned(merger)
    merger.requests.pause(T, paused=True)
    assert merger.plans.next_chunk() is None

    after = _resumed(merger.notes().records[T])
    after.plans.plan(T, FORM, [LEAF], Lsn(100))
    assert after.plans.next_chunk() is None
    after.requests.pause(T, paused=False)

    assert after.plans.next_chunk() is not None


def test_table_stopped_while_open_transactions_are_read_stays_stopped() -> None:
    merger = Merger()
    merger.requests.order(T, 1, Lsn(100), RowSelection())

    begun = merger.plans.begun()
    merger.requests.stop(T)
    merger.plans.suspect(begun, [7])

    assert merger.states[T] == "stopped"
    assert merger.notes().records[T].hold == "stopped"


def test_ids_from_before_a_table_was_begun_anew_do_not_count_for_it() -> None:
    merger = Merger()
    merger.requests.order(T, 1, Lsn(100), RowSelection())

    begun = merger.plans.begun()
    merger.requests.stop(T)
    merger.requests.order(T, 1, Lsn(100), RowSelection())
    merger.plans.suspect(begun, [7])

    assert merger.plans.begun() == {T: 2}
    assert merger.plans.tables_to_plan() == []


def test_longest_and_deepest_condition_is_read_again_after_a_restart() -> None:
    merger = _resumed(COMPLETE)
    where = "not " * 49 + "id in (" + ",".join(["1"] * 30_000) + ")"

    merger.requests.order(T, 1, Lsn(100), RowSelection(where))

    assert _resumed(merger.notes().records[T]).tables[T].condition == parse(where)


def test_stop_gives_chunks_up_and_the_state_from_before_back() -> None:
    again, first = _resumed(COMPLETE), Merger(chunk_bytes=8192)
    again.requests.order(T, 1, Lsn(100), RowSelection(WHERE))
    first.requests.order(T, 1, Lsn(100), RowSelection())
    for merger in (again, first):
        spec = _planned(merger).plans.next_chunk()
        assert spec is not None
        chunk = merger.chunks.open(spec)
        merger.requests.stop(T)
        merger.chunks.arrived(chunk, ["row"], 1)
        assert (len(merger.chunks), merger.active) == (0, False)

    stopped, complete = first.notes().records[T], again.notes().records[T]
    assert (complete.state, complete.ended_lsn, complete.where) == ("complete", 50, "")
    assert (stopped.state, stopped.hold, stopped.cut_state) == ("running", "stopped", "snapshotting")
    assert _resumed(stopped).states[T] == "stopped"
    assert _resumed(stopped).incomplete == {T}


def test_chunks_carry_the_condition_and_rows_by_key_read_no_blocks() -> None:
    where, keyed = _resumed(COMPLETE), _resumed(COMPLETE)
    where.requests.order(T, 1, Lsn(100), RowSelection(WHERE))
    keyed.requests.order(T, 1, Lsn(100), RowSelection(keys=(b'{"id":2}', b'{"id":1}')))

    chunk, by_key = _planned(where).plans.next_chunk(), _planned(keyed).plans.next_chunk()

    assert chunk is not None
    assert by_key is not None
    assert (chunk.condition, chunk.leaf) == (parse(WHERE), LEAF)
    assert (by_key.leaf, by_key.keys) == (None, (b'{"id":1}', b'{"id":2}'))
    assert keyed.plans.next_chunk() is None


def test_row_of_a_table_that_nobody_read_is_not_owed() -> None:
    complete, never, stopped = _resumed(COMPLETE), Merger(), Merger()
    stopped.requests.order(T, 1, Lsn(100), RowSelection())
    stopped.requests.stop(T)
    complete.requests.order("public.u", 2, Lsn(100), RowSelection())
    complete.requests.stop("public.u")

    assert not never.requests.read_incomplete({(T, 1): [OWED]}, Lsn(100))
    assert not stopped.requests.read_incomplete({(T, 1): [OWED]}, Lsn(100))
    assert not complete.requests.read_incomplete({(T, 9): [OWED]}, Lsn(100)), "another table of that name"
    assert not complete.requests.read_incomplete({(T, 1): [OWED], ("public.u", 2): [OWED]}, Lsn(100))
    assert not complete.active, "none is owed where not all can be"


def test_no_more_is_owed_than_a_record_may_hold() -> None:
    merger = _resumed(COMPLETE)
    keys = [IncompleteKey(b"%d" % number, {}) for number in range(INCOMPLETE_MAX)]

    assert merger.requests.read_incomplete({(T, 1): keys}, Lsn(100))
    assert merger.requests.read_incomplete({(T, 1): keys[:10]}, Lsn(100)), "these are owed already"
    assert not merger.requests.read_incomplete({(T, 1): [OWED]}, Lsn(100))
    assert not _resumed(COMPLETE).requests.read_incomplete(
        {(T, 1): [IncompleteKey(b"x" * (INCOMPLETE_BYTES_MAX + 1), {})]}, Lsn(100)
    )


def test_owed_row_has_a_key_of_any_bytes_and_is_found_by_its_columns_after_a_restart() -> None:
    merger = _resumed(COMPLETE)
    assert merger.requests.read_incomplete({(T, 1): [OWED]}, Lsn(100))
    record = decode(encode(merger.notes().records[T]), SnapshotRecord, "progress")

    after = _resumed(record)
    spec = _planned(after).plans.next_chunk()

    assert (record.begun, record.cut_state) == (True, "snapshotting")
    assert after.incomplete == {T}
    assert spec is not None
    assert (spec.keys, spec.named) == ((OWED.key,), (OWED.columns,))


def test_owed_row_is_not_read_before_everything_that_touched_it_was_seen() -> None:
    merger = _resumed(COMPLETE)
    assert merger.requests.read_incomplete({(T, 1): [OWED]}, Lsn(100))
    _planned(merger)

    merger.streamed(TransactionKeys(7, {T: [OWED.key]}))
    assert merger.plans.next_chunk() is None, "a chunk would have to drop it"
    merger.seen(PgSnapshot(8, frozenset()))

    assert merger.plans.next_chunk() is not None


def test_snapshot_of_some_rows_leaves_it_open_which_ddl_the_table_was_read_behind() -> None:
    merger = _resumed(COMPLETE)
    merger.requests.order(T, 1, Lsn(100), RowSelection(keys=(b'{"id":1}',)))
    assert merger.tables[T].selective
    spec = _planned(merger).plans.next_chunk()
    assert spec is not None
    chunk = merger.chunks.open(spec)
    merger.chunks.taken(chunk, PgSnapshot(8, frozenset()), Lsn(110), None, FORM)
    merger.chunks.arrived(chunk, ["row"], 1)
    merger.chunks.join(Lsn(120), LogWriter(lambda *_: (1, 1), lambda *_: {b'{"id":1}'}, lambda *_: 0), rows_max=10)
    merger.plans.plan(T, FORM, [LEAF], Lsn(130))

    assert (merger.states[T], merger.tables[T].ended, merger.tables[T].selective) == ("complete", 50, False)


def test_key_that_was_asked_for_and_is_not_there_is_looked_for_in_the_topic_also_after_a_restart() -> None:
    nowhere = LogWriter(lambda *_: (0, 0), lambda *_: set(), lambda *_: 0)
    merger = _resumed(COMPLETE)
    merger.requests.order(T, 1, Lsn(100), RowSelection(keys=(b'{"id":1}',)))
    spec = _planned(merger).plans.next_chunk()
    assert spec is not None
    chunk = merger.chunks.open(spec)
    merger.chunks.taken(chunk, PgSnapshot(8, frozenset()), Lsn(110), None, FORM)
    merger.chunks.arrived(chunk, [], 0)
    merger.chunks.join(Lsn(120), nowhere, rows_max=10)

    record = decode(encode(merger.notes().records[T]), SnapshotRecord, "t")
    after = _planned(_resumed(record))
    for one in (merger, after):
        assert one.states[T] == "planned"
        assert one.notes().sweeps == {T: 1}
        one.sweeps.bound(T, 1, {("t", 0): 9})
        (sweep,) = one.sweeps.due().values()
        assert (sweep.marks, sweep.among) == ((), frozenset({b'{"id":1}'}))
        one.sweeps.end(T, sweep)
        one.plans.plan(T, FORM, [LEAF], Lsn(130))
        assert (one.states[T], one.notes().records[T].absent) == ("complete", ())


def test_rows_by_key_that_are_too_many_bytes_are_read_in_smaller_chunks_down_to_one() -> None:
    merger = _resumed(COMPLETE)
    assert merger.requests.read_incomplete(
        {(T, 1): [IncompleteKey(b"%d" % number, {}) for number in range(5)]}, Lsn(100)
    )
    _planned(merger)

    sizes = []
    for _ in range(4):
        spec = merger.plans.next_chunk()
        assert spec is not None
        sizes.append(len(spec.keys))
        merger.chunks.give_back(merger.chunks.open(spec), halve=True)

    assert sizes == [5, 2, 1, 1]
