"""How far a sink is: never further than what is committed says, and as far as that says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.model.progress import Cut
from sinks.reach import Cuts

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


@given(st.data())
def test_a_sink_is_at_the_greatest_cut_whose_offsets_are_all_committed(data: st.DataObject) -> None:
    cuts = data.draw(indexes())
    followed = Cuts(lambda topic: topic != OTHER[0])
    committed: dict[tuple[str, int], int] = {}
    known: list[Cut] = []

    while len(known) < len(cuts) or data.draw(st.booleans()):
        fresh = data.draw(st.integers(0, len(cuts) - len(known)))
        for cut in cuts[len(known) : len(known) + fresh]:
            known.append(cut)
            followed.add(len(known), cut)
        place = data.draw(st.sampled_from(PLACES))
        committed[place] = committed.get(place, 0) + data.draw(st.integers(0, 6))
        while followed.settle({place: committed[place] for place in followed.asked() if place in committed}):
            pass

        expected = model(known, committed)
        assert (followed.reached.end_lsn if followed.reached else None) == expected
        if not fresh and len(known) < len(cuts):
            for cut in cuts[len(known) :]:
                known.append(cut)
                followed.add(len(known), cut)
