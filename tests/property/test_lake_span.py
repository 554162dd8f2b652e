"""For any log: spans cover it without overlap, each holds whole source transactions, and counts add up."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from cdc.model.progress_record import Cut
from sinks.warehouse.lake.cut_position import START, CutPosition
from sinks.warehouse.log.span import EpochEnd, Span, joined, next_span, same_span
from tests.fixtures.lake.lake_events import cut

PARTITIONS = ("shop.public.a-0", "shop.public.a-1", "shop.public.b-0", "shop.__schema-0")


@dataclass(frozen=True)
class Piece:
    """One Kafka transaction: records by partition; `last` ends a source transaction; `full` has every account."""

    records: tuple[int, int, int, int]
    last: bool
    full: bool
    markers: int


pieces = st.lists(
    st.builds(
        Piece,
        records=st.tuples(*[st.integers(0, 4)] * 4),
        last=st.booleans(),
        full=st.booleans(),
        markers=st.integers(1, 3),  # one, and more where transactions were aborted
    ),
    max_size=25,
)


def _index(drawn: list[Piece]) -> list[tuple[int, Cut]]:
    """The index that capture would have written; the first record has every account."""
    offsets, counts = dict.fromkeys(PARTITIONS, 0), dict.fromkeys(PARTITIONS, 0)
    ends = dict.fromkeys(PARTITIONS, 0)
    found = [(0, cut(10, dict.fromkeys(PARTITIONS, (0, 0)), full=True))]
    for number, piece in enumerate(drawn):
        touched = {}
        for name, records in zip(PARTITIONS, piece.records, strict=True):
            if records:
                counts[name] += records
                ends[name] = offsets[name] + records
                offsets[name] = ends[name] + piece.markers
            if records or piece.full:
                touched[name] = (ends[name], counts[name])
        fields = {"full": piece.full, "next_ordinal": 0 if piece.last else number + 1}
        found.append((2 * number + 3, cut(20 + 10 * number, touched, **fields)))
    return found


def _walk(index: list[tuple[int, Cut]], events_max: int, seen: list[int]) -> list[Span]:
    """All spans, when of the index only the first `seen` records are there at each look."""
    spans: list[Span] = []
    mark: CutPosition = START
    for end in [*seen, len(index)]:
        while True:
            span = next_span(mark, [one for one in index[:end] if one[0] >= mark.cuts_offset], events_max=events_max)
            if span is None:
                break
            spans.append(span)
            mark = span.end
    return spans


@given(pieces, st.integers(1, 30), st.lists(st.integers(0, 26), max_size=4).map(sorted))
def test_spans_tile_the_log(drawn: list[Piece], events_max: int, seen: list[int]) -> None:
    index = _index(drawn)
    boundaries = [one.end_lsn for _, one in index if one.next_ordinal == 0]

    spans = _walk(index, events_max, seen)

    reached: dict[tuple[str, int], int] = {}
    before: CutPosition = START
    for span in spans:
        assert span.start is before
        assert span.end.end_lsn in boundaries
        assert span.records == sum(records for _, _, records in span.ranges.values())
        for partition, (begin, end, records) in span.ranges.items():
            assert begin == reached.get(partition, 0)
            assert 0 < records <= end - begin
            reached[partition] = end
        before = span.end
    assert before.end_lsn == boundaries[-1]
    assert sum(span.merged for span in spans) == len([one for one in index if one[0] < before.cuts_offset])
    wanted: dict[str, tuple[int, int]] = {}
    for _, one in [found for found in index if found[0] < before.cuts_offset]:
        wanted.update({name: (end, count) for name, (end, count, _) in one.changed.items()})
    assert {f"{topic}-{at}": account for (topic, at), account in before.accounts.items()} == wanted
    assert sum(span.records for span in spans) == sum(
        count for name, (_, count) in wanted.items() if "__schema" not in name
    )


@given(pieces, st.integers(1, 30), st.lists(st.integers(0, 26), max_size=4).map(sorted))
def test_span_over_the_limit_is_a_single_source_boundary(drawn: list[Piece], events_max: int, seen: list[int]) -> None:
    index = _index(drawn)

    for span in _walk(index, events_max, seen):
        taken = [one for offset, one in index if span.start.cuts_offset <= offset < span.end.cuts_offset]
        if span.records > events_max:
            assert [one.next_ordinal == 0 for one in taken] == [False] * (len(taken) - 1) + [True]


@dataclass(frozen=True)
class Repaired:
    """A repair and what follows: which tables it reads again, and when each of them is complete."""

    tables: dict[str, str]
    states: list[dict[str, str]]


_STATE = st.sampled_from(["snapshotting", "complete"])
_TABLES = st.sampled_from(["public.a", "public.b", "public.c"])
repairs = st.lists(
    st.builds(
        Repaired,
        tables=st.dictionaries(_TABLES, _STATE),
        states=st.lists(st.dictionaries(_TABLES, _STATE), max_size=4),
    ),
    min_size=1,
    max_size=4,
)


@given(repairs, st.integers(1, 30), st.lists(st.integers(0, 20), max_size=4).map(sorted))
def test_no_cut_ends_before_the_tables_of_its_epoch_were_all_complete(
    drawn: list[Repaired], events_max: int, seen: list[int]
) -> None:
    """Whatever parts of the index are there at each look. Compared with a set that is kept record by record."""
    index: list[tuple[int, Cut]] = []
    usable: list[bool] = []
    for epoch, repair in enumerate(drawn, 1):
        missing = {name for name, state in repair.tables.items() if state != "complete" and epoch > 1}
        for number, states in enumerate([repair.tables, *repair.states]):
            missing -= {name for name, state in states.items() if state == "complete"}
            count = len(index) + 1
            end_lsn = 1000 - 100 * epoch + 10 * number  # LSNs go back
            counts = {PARTITIONS[0]: (count, count)}
            index.append((2 * count, cut(end_lsn, counts, epoch=epoch, full=not number, tables=states)))
            usable.append(not missing)

    ends: list[int] = []
    mark: CutPosition = START
    passed: Span | None = None
    ended: dict[int, EpochEnd] = {}
    for end in [*seen, len(index)]:
        while True:
            at = mark if passed is None else passed.end
            span = next_span(at, [one for one in index[:end] if one[0] >= at.cuts_offset], events_max=events_max)
            if span is None:
                break
            span = span if passed is None else joined(passed, span)
            passed = span if span.end.awaited else None
            if passed is None:
                ends.append(next(place for place, one in enumerate(index) if one[0] == span.end.cuts_offset - 1))
                again = same_span(mark, [one for one in index if mark.cuts_offset <= one[0] < span.end.cuts_offset])
                assert again == span, "an interrupted cut would begin again with another range"
                mark, ended = span.end, ended | dict(span.ended)

    assert all(usable[place] for place in ends)
    assert not ends or max(place for place, good in enumerate(usable) if good) == ends[-1]
    known = {one.epoch: one.end_lsn for _, one in index}
    assert all(end.known_to == known[epoch] for epoch, end in ended.items())
