"""Lines of a chunk in pieces: the slices contain every line once, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from snapshot.chunk_lines import PIECE, Lines

_COUNTS = st.one_of(st.integers(0, 3 * PIECE), st.sampled_from([PIECE - 1, PIECE, PIECE + 1, 4 * PIECE]))


@given(_COUNTS, st.lists(st.integers(1, 3 * PIECE), min_size=1))
def test_slices_one_after_the_other_are_all_lines_once_and_in_order(count: int, rows_max: list[int]) -> None:
    lines = [b"%d\n" % number for number in range(count)]
    chunk = Lines([b"".join(lines[at : at + PIECE]) for at in range(0, count, PIECE)], count)
    found: list[bytes] = []

    turn = 0
    while len(found) < len(chunk):
        wanted = rows_max[turn % len(rows_max)]
        part = chunk[len(found) : len(found) + wanted]
        assert min(wanted, count - len(found)) <= len(part) < wanted + PIECE
        new = [line for piece in part for line in piece.splitlines(keepends=True)]
        assert len(new) == len(part)
        found += new
        turn += 1

    assert found == lines
    assert not len(chunk[count:])
