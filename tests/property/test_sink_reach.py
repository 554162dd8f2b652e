"""The applied LSN of a sink is exactly what its committed offsets allow."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cdc.lsn import Lsn
from cdc.model.progress_record import Cut
from sinks.operate.applied_lsn import PendingCuts, Reached
from sinks.operate.lsn_wait import AppliedCut, is_at

PLACES = [("shop.public.a", 0), ("shop.public.a", 1), ("shop.public.b", 0)]
OTHER = ("shop.public.other", 0)
ZEROES = "0" * 16


@st.composite
def indexes(draw: st.DrawFn) -> list[Cut]:
    """A cut index from a full map on: offsets grow, some transactions are spread over several cuts."""
    ends = {place: draw(st.integers(0, 3)) for place in (*PLACES, OTHER)}
    cuts = [cut_of(100, ends, full=True)]
    for number in range(draw(st.integers(0, 12))):
        touched = draw(st.sets(st.sampled_from([*PLACES, OTHER])))
        for place in touched:
            ends[place] += draw(st.integers(1, 3))
        spread = draw(st.booleans()) and draw(st.booleans())
        cuts.append(cut_of(101 + number, {place: ends[place] for place in touched}, ordinal=5 if spread else 0))
    return cuts


def cut_of(end_lsn: int, ends: dict[tuple[str, int], int], *, full: bool = False, ordinal: int = 0) -> Cut:
    changed = {f"{topic}-{index}": (end, end, ZEROES) for (topic, index), end in ends.items()}
    return Cut(epoch=1, end_lsn=end_lsn, next_ordinal=ordinal, full=full, changed=changed)


def model(cuts: list[Cut], committed: dict[tuple[str, int], int]) -> int | None:
    """The LSN of the greatest cut between two transactions all of whose offsets are committed."""
    ends: dict[tuple[str, int], int] = {}
    found = None
    for cut in cuts:
        for text, account in cut.changed.items():
            topic, _, index = text.rpartition("-")
            ends[(topic, int(index))] = account[0]
        if cut.next_ordinal == 0 and all(committed.get(place, 0) >= ends.get(place, 0) for place in PLACES):
            found = cut.end_lsn
    return found


GAINS = st.sampled_from([0, 1, 2, 5])


@given(indexes(), st.lists(st.tuples(st.integers(0, 3), GAINS, GAINS, GAINS), max_size=12))
def test_a_sink_is_at_the_greatest_cut_whose_offsets_are_all_committed(
    cuts: list[Cut], steps: list[tuple[int, int, int, int]]
) -> None:
    followed = PendingCuts(lambda topic: topic != OTHER[0], lambda _: True)
    known: list[Cut] = []
    committed = dict.fromkeys(PLACES, 0)

    for fresh, *gains in [*steps, (len(cuts), 99, 99, 99)]:
        for cut in cuts[len(known) : len(known) + fresh]:
            known.append(cut)
            followed.add(len(known), cut)
        for place, gain in zip(PLACES, gains, strict=True):
            committed[place] += gain
        while followed.settle({place: committed[place] for place in followed.asked()}):
            pass

        assert (followed.reached.end_lsn if followed.reached else None) == model(known, committed)


STATES = st.sampled_from(["snapshotting", "complete"])
TABLES = ["public.a", "public.b", "public.other"]


@st.composite
def lives(draw: st.DrawFn) -> list[Cut]:
    """Cuts of several epochs, whose LSNs may go back; tables begin, are read, and end."""
    cuts: list[Cut] = []
    for epoch in range(1, draw(st.integers(1, 3)) + 1):
        end = draw(st.integers(1, 60))
        states = {table: draw(STATES) for table in TABLES}
        for number in range(draw(st.integers(1, 8))):
            full = number == 0 or draw(st.booleans())
            news = {table: draw(STATES) for table in draw(st.sets(st.sampled_from(TABLES)))} if number else {}
            # A complete table is never read again in its epoch, except if it was dropped in between.
            states |= {table: state for table, state in news.items() if states.get(table) != "complete"}
            if full and number and draw(st.booleans()):
                states.pop(draw(st.sampled_from(TABLES)), None)
            shown = dict(states) if full else {table: states[table] for table in news if table in states}
            cuts.append(Cut(epoch=epoch, end_lsn=end, full=full, tables=shown, changed={}))
            end += draw(st.integers(1, 20))
    return cuts


@given(st.data())
def test_change_that_only_a_snapshot_can_read_is_not_reached_before_it_is_complete(data: st.DataObject) -> None:
    """The rule: in the newest epoch, a table that is not complete has all changes behind the cut that began it."""
    cuts = data.draw(lives())
    lsn = max(1, data.draw(st.sampled_from([cut.end_lsn for cut in cuts])) + data.draw(st.integers(-1, 1)))
    followed = PendingCuts(lambda _: True, lambda table: table != TABLES[2])
    for number, cut in enumerate(cuts):
        followed.add(number, cut)
        followed.settle({})

    own = [cut for cut in cuts if cut.epoch == cuts[-1].epoch]
    held = own[-1].end_lsn >= lsn
    for table in TABLES[:2]:
        began: int | None = None
        for cut in own:
            state = cut.tables.get(table, None if cut.full else ("snapshotting" if began is not None else None))
            began = (cut.end_lsn if began is None else began) if state == "snapshotting" else None
        held = held and (began is None or lsn > began)

    reached = followed.reached
    assert reached is not None
    assert is_at(AppliedCut(*reached), Lsn(lsn)) == held


def test_cut_of_an_earlier_epoch_is_not_reached_when_a_new_one_has_begun() -> None:
    followed, seen = PendingCuts(lambda _: True, lambda _: True), []
    followed.add(0, cut_of(900, {PLACES[0]: 5}, full=True))
    followed.add(1, cut_of(950, {PLACES[0]: 6}))
    followed.settle({PLACES[0]: 5})
    seen.append(followed.reached)

    followed.add(2, msgspec.structs.replace(cut_of(100, {PLACES[0]: 9}, full=True), epoch=2))
    for committed in (6, 9):
        followed.settle({PLACES[0]: committed})
        seen.append(followed.reached)

    assert seen == [Reached(0, Lsn(900)), None, Reached(2, Lsn(100))], "950 is an LSN of the log before the repair"


def test_table_that_the_sink_does_not_have_is_not_waited_for() -> None:
    followed = PendingCuts(lambda _: True, lambda table: table != TABLES[2])
    followed.add(0, Cut(epoch=1, end_lsn=100, full=True, tables={TABLES[2]: "snapshotting"}, changed={}))

    reached = followed.reached
    assert reached is not None
    assert is_at(AppliedCut(*reached), Lsn(50))
