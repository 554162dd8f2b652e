"""The applied LSN of a sink is exactly what its committed offsets allow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.model.progress_record import Cut
from sinks.operate.applied_lsn import PendingCuts

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
    followed = PendingCuts(lambda topic: topic != OTHER[0])
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
