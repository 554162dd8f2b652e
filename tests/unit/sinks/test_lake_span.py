"""The next span of the lake, from the cut index: whole source transactions, within the limit, never past a gap."""

from __future__ import annotations

import pytest

from cdc.errors import SinkGap, SinkStale
from cdc.model.progress_record import Cut, SchemaKey
from cdc.progress.record_format import encode
from sinks.warehouse.lake.cut_position import START, CutPosition
from sinks.warehouse.log.cut_reader import read_cut_index, read_schemas
from sinks.warehouse.log.span import joined, next_span, same_span
from tests.fixtures.capture.memory_log import MemoryLog
from tests.fixtures.lake.lake_events import ID, column, cut, schema

A, B, SCHEMAS = "shop.public.a-0", "shop.public.b-0", "shop.__schema-0"
ZERO = {A: (0, 0), B: (0, 0), SCHEMAS: (0, 0)}
MANY = 1_000_000


def _mark(end: int = 100, accounts: dict[tuple[str, int], tuple[int, int]] | None = None) -> CutPosition:
    return CutPosition(1, end, end - 8, 10, accounts or {("shop.public.a", 0): (5, 4)}, {"public.a": "complete"}, 0)


def _numbered(*cuts: Cut, at: int = 10) -> list[tuple[int, Cut]]:
    return [(at + 2 * index, cut) for index, cut in enumerate(cuts)]


def test_records_are_merged_up_to_the_last_boundary() -> None:
    cuts = _numbered(cut(110, {A: (7, 5)}), cut(120, {B: (3, 2)}), cut(120, {A: (9, 6)}, next_ordinal=5))

    span = next_span(_mark(), cuts, events_max=MANY)

    assert span is not None
    assert (span.start.end_lsn, span.end.end_lsn, span.merged, span.records) == (100, 120, 2, 3)
    assert span.ranges == {("shop.public.a", 0): (5, 7, 1), ("shop.public.b", 0): (0, 3, 2)}
    assert span.end.cuts_offset == 13


def test_spread_transaction_is_taken_whole() -> None:
    cuts = _numbered(
        cut(100, {A: (7, 5)}, next_ordinal=3), cut(100, {A: (9, 6)}, next_ordinal=5), cut(130, {A: (11, 7)})
    )

    span = next_span(_mark(), cuts, events_max=1)

    assert span is not None
    assert (span.merged, span.records, span.end.end_lsn) == (3, 3, 130)


def test_without_a_boundary_there_is_no_span() -> None:
    assert next_span(_mark(), [], events_max=MANY) is None
    assert next_span(_mark(), _numbered(cut(100, {A: (7, 5)}, next_ordinal=3)), events_max=MANY) is None


def test_span_has_no_more_records_than_asked_for() -> None:
    cuts = _numbered(cut(110, {A: (7, 6)}), cut(120, {A: (9, 7)}), cut(130, {A: (11, 9)}))

    span = next_span(_mark(), cuts, events_max=3)

    assert span is not None
    assert (span.merged, span.records) == (2, 3)


def test_idle_cuts_move_the_mark_without_records() -> None:
    span = next_span(_mark(), _numbered(cut(110), cut(120)), events_max=1)

    assert span is not None
    assert (span.end.end_lsn, span.records, span.ranges) == (120, 0, {})


def test_span_joined_to_one_that_was_passed_is_that_of_both_read_at_once() -> None:
    """Heartbeats, a start with a new schema and a newly opened topic: all of it must be remembered."""
    heartbeat = "shop.heartbeat-0"
    passed = _numbered(cut(100, {heartbeat: (1, 1)}), cut(100, {SCHEMAS: (3, 2), B: (40, 0)}), cut(100))
    later = _numbered(cut(120, {A: (7, 5), B: (42, 2)}), cut(130, {A: (8, 6)}), at=16)

    whole = next_span(_mark(), [*passed, *later], events_max=MANY)
    first = next_span(_mark(), passed, events_max=MANY)
    assert first is not None
    second = next_span(first.end, later, events_max=MANY)

    assert second is not None
    assert joined(first, second) == whole
    assert whole is not None
    assert whole.ranges["shop.public.b", 0] == (40, 42, 2)


def test_schema_records_are_no_events() -> None:
    span = next_span(_mark(), _numbered(cut(110, {SCHEMAS: (1, 1), A: (7, 5)})), events_max=MANY)

    assert span is not None
    assert set(span.ranges) == {("shop.public.a", 0)}
    assert span.end.accounts["shop.__schema", 0] == (1, 1)


def test_tables_are_those_of_the_last_full_map() -> None:
    first = next_span(START, _numbered(cut(10, ZERO, full=True, tables={"public.a": "snapshotting"})), events_max=1)
    assert first is not None
    assert first.end.complete == {"public.a": "snapshotting"}

    later = next_span(
        first.end, _numbered(cut(20), cut(30, ZERO, full=True, tables={"public.b": "complete"})), events_max=1
    )

    assert later is not None
    assert later.end.complete == {"public.b": "complete"}


def test_first_span_begins_with_the_log() -> None:
    cuts = _numbered(cut(10, ZERO, full=True), cut(20, {A: (3, 3)}), at=0)

    span = next_span(START, cuts, events_max=MANY)

    assert span is not None
    assert span.counted
    assert span.ranges == {("shop.public.a", 0): (0, 3, 3)}


def test_first_span_of_a_log_older_than_its_counts_is_not_counted() -> None:
    span = next_span(START, _numbered(cut(10, {A: (50, 0), B: (7, 2)}, full=True, since_lsn=5)), events_max=MANY)

    assert span is not None
    assert not span.counted
    assert span.ranges == {("shop.public.a", 0): (0, 50, 0), ("shop.public.b", 0): (0, 7, 2)}
    assert span.end.since_lsn == 5


def test_account_that_opens_behind_foreign_records_begins_there() -> None:
    cuts = _numbered(cut(110, {**ZERO, A: (5, 4), B: (50, 0)}, full=True), cut(120, {B: (52, 2)}))

    span = next_span(_mark(), cuts, events_max=MANY)

    assert span is not None
    assert span.ranges == {("shop.public.b", 0): (50, 52, 2)}


def test_index_without_beginning_and_without_map_is_a_gap() -> None:
    with pytest.raises(SinkGap, match="beginning"):
        next_span(START, _numbered(cut(10, {A: (3, 3)})), events_max=MANY)


def test_counts_that_restarted_are_a_gap() -> None:
    with pytest.raises(SinkGap, match="began again at 0/64"):
        next_span(_mark(), _numbered(cut(110, {A: (5, 0)}, full=True, since_lsn=100)), events_max=MANY)


@pytest.mark.parametrize("account", [(4, 5), (9, 3)])
def test_account_that_goes_backwards_is_a_gap(account: tuple[int, int]) -> None:
    with pytest.raises(SinkGap, match=r"shop\.public\.a-0"):
        next_span(_mark(), _numbered(cut(110, {A: account})), events_max=MANY)


@pytest.mark.parametrize("epoch", [0, 2])
def test_epoch_that_no_repair_begins_makes_the_lake_stale(epoch: int) -> None:
    """A repair writes a full map. Without it, the counts would be those of another log."""
    with pytest.raises(SinkStale, match=f"epoch {epoch}"):
        next_span(_mark(), _numbered(cut(110, epoch=epoch)), events_max=MANY)


def test_what_comes_before_a_fault_is_taken_first() -> None:
    cuts = _numbered(cut(110, {A: (7, 5)}), cut(120, epoch=2))

    span = next_span(_mark(), cuts, events_max=MANY)

    assert span is not None
    assert (span.end.end_lsn, span.merged) == (110, 1)
    with pytest.raises(SinkStale):
        next_span(span.end, cuts[1:], events_max=MANY)


def _repair(end: int, epoch: int = 2, **tables: str) -> Cut:
    states = {f"public.{name}": state for name, state in tables.items()}
    return cut(end, {A: (7, 5), B: (0, 0), SCHEMAS: (0, 0)}, full=True, epoch=epoch, tables=states)


def test_span_across_a_repair_ends_where_the_last_snapshot_is_complete() -> None:
    """Whatever its size; LSNs may go back. What was whole before is a span of its own."""
    cuts = _numbered(
        cut(110),
        cut(110, {A: (7, 5)}, next_ordinal=3),
        _repair(50, a="snapshotting", b="snapshotting", kept="complete"),
        cut(60, {A: (20, 16)}, epoch=2, tables={"public.a": "complete"}),
        cut(60, {B: (9, 9)}, epoch=2, tables={"public.b": "complete"}, next_ordinal=1),
        cut(70, {B: (11, 10)}, epoch=2, tables={"public.a": "snapshotting"}),
        cut(80, {B: (13, 11)}, epoch=2),
    )

    before = next_span(_mark(), cuts, events_max=MANY)
    assert before is not None
    assert (before.end.epoch, before.end.end_lsn, before.ended) == (1, 110, {})
    across = next_span(before.end, cuts[1:], events_max=1)

    assert across is not None
    assert (across.end.epoch, across.end.end_lsn, across.end.awaited) == (2, 70, frozenset())
    assert across.ended == {1: (110, 50)}
    assert across.ranges == {("shop.public.a", 0): (5, 20, 12), ("shop.public.b", 0): (0, 11, 10)}


def test_span_of_an_unfinished_repair_names_the_missing_tables_and_is_continued() -> None:
    cuts = _numbered(
        _repair(120, a="snapshotting", b="snapshotting", gone="snapshotting", other="snapshotting"),
        cut(130, {A: (20, 16)}, epoch=2, tables={"public.b": "complete"}),
        cut(140, {A: (22, 17), B: (0, 0)}, full=True, epoch=2, tables={"public.a": "snapshotting"}),
        cut(150, epoch=2, tables={"public.a": "complete"}),
    )

    def keeps(table: str) -> bool:
        return table != "public.other"

    first = next_span(_mark(), cuts[:2], events_max=MANY, keeps=keeps)
    assert first is not None
    assert first.end.awaited == {"public.a", "public.gone"}
    second = next_span(first.end, cuts[2:3], events_max=MANY, keeps=keeps)
    assert second is not None
    assert second.end.awaited == {"public.a"}, "a table that was dropped meanwhile is not waited for"
    third = next_span(second.end, cuts[3:], events_max=MANY, keeps=keeps)
    assert third is not None

    found = joined(joined(first, second), third)
    assert found == next_span(_mark(), cuts, events_max=1, keeps=keeps)
    assert found == same_span(_mark(), cuts)
    assert (found.end.end_lsn, found.end.awaited, found.ended) == (150, frozenset(), {1: (100, 120)})


def test_repair_of_a_repair_is_crossed_at_once() -> None:
    cuts = _numbered(
        _repair(120, a="snapshotting"),
        cut(130, {A: (20, 16)}, epoch=2),
        _repair(140, 3, a="complete"),
    )
    cuts[2] = (cuts[2][0], cut(140, {A: (20, 16)}, full=True, epoch=3, tables={"public.a": "complete"}))

    span = next_span(_mark(), cuts, events_max=1)

    assert span is not None
    assert (span.end.epoch, span.ended) == (3, {1: (100, 120), 2: (130, 140)})


def test_counts_that_a_repair_began_again_are_a_gap() -> None:
    """It does so if a topic was lost."""
    lost = cut(120, {A: (0, 0)}, full=True, epoch=2, since_lsn=120, tables={"public.a": "snapshotting"})

    with pytest.raises(SinkGap, match="began again"):
        next_span(_mark(), _numbered(lost), events_max=MANY)


class Index:
    """A cut index in memory; `low` is the first offset after retention. Every record is followed by a marker."""

    def __init__(self, *cuts: Cut, low: int = 0) -> None:
        self.log = MemoryLog()
        for number, one in enumerate(cuts):
            self.log.committed.add(number)
            self.log.append(("shop.__cuts", 0), (None, encode(one), None), number)
            self.log.append(("shop.__cuts", 0), None, number)
        self.low = low

    def end_offsets(self, topics: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {at: (self.low, high) for at, (_, high) in self.log.end_offsets(topics).items()}

    def marks(self, start: CutPosition, limit: int = 100) -> list[tuple[int, int]]:
        self.read = self.log.read
        return [(offset, one.end_lsn) for offset, one in read_cut_index(self, "shop", start, limit)]  # type: ignore[arg-type]


def test_marks_are_read_from_where_the_last_span_ended() -> None:
    index = Index(cut(10, ZERO, full=True), cut(20), cut(30))

    assert index.marks(START) == [(0, 10), (2, 20), (4, 30)]
    assert index.marks(CutPosition(1, 20, 12, 3, {}, {}, 0)) == [(4, 30)]


def test_lost_part_of_the_index_is_bridged_by_the_next_full_map() -> None:
    index = Index(cut(10, ZERO, full=True), cut(20), cut(30), cut(40, ZERO, full=True), cut(50), low=4)

    assert index.marks(START) == [(6, 40), (8, 50)]
    assert index.marks(CutPosition(1, 10, 2, 1, {}, {}, 0)) == [(6, 40), (8, 50)]


@pytest.mark.parametrize("old", [0, 1, 2, 5])
@pytest.mark.parametrize("new", [1, 2, 5])
def test_new_lake_begins_with_the_newest_epoch(old: int, new: int) -> None:
    """A new one that began with the index would have to wait for the repairs in it."""
    first = 10 * old + 10
    before = [cut(10 * number + 10, ZERO, full=True) for number in range(old)]
    later = [cut(first + 10 * number, ZERO, full=not number, epoch=2) for number in range(new)]

    found = Index(*before, *later).marks(START)

    assert found == [(2 * (old + number), first + 10 * number) for number in range(new)]


def test_lost_part_without_a_full_map_waits_for_one() -> None:
    assert Index(cut(10, ZERO, full=True), cut(20), cut(30), low=2).marks(START) == []


def test_index_that_ends_before_the_lake_was_made_again() -> None:
    with pytest.raises(SinkStale, match="ends at offset 2"):
        Index(cut(10, ZERO, full=True)).marks(CutPosition(1, 10, 2, 9, {}, {}, 0))


def test_schemas_come_in_the_order_of_their_first_record() -> None:
    log = MemoryLog(committed={1})
    old, new = schema(ID, schema_id="00000002"), schema(ID, column("note"), schema_id="00000001")
    for record in (old, new, old):
        key = encode(SchemaKey(record.table, record.schema_id))
        log.append(("shop.__schema", 0), (key, encode(record), None), 1)

    found = read_schemas(log, "shop")

    assert list(found.items()) == [
        (("public.orders", "00000002"), old),
        (("public.orders", "00000001"), new),
    ]
