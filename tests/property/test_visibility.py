"""Which transactions a snapshot sees, over the wraparound of 32-bit transaction ids."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.model.visibility import PgSnapshot, widened

_full = st.integers(3, 1 << 63)
_near = st.integers(-(1 << 31), (1 << 31) - 1)


@given(full=_full, distance=_near)
def test_xid_is_widened_to_the_one_it_was_cut_from(full: int, distance: int) -> None:
    """`near` is the server's next xid: within 2^31 of every transaction it knows."""
    assert widened(full & 0xFFFFFFFF, full - distance) == full


@given(xid=st.integers(0, 0xFFFFFFFF), near=_full)
def test_widened_xid_has_the_same_low_bits_and_is_the_nearest(xid: int, near: int) -> None:
    found = widened(xid, near)

    assert found & 0xFFFFFFFF == xid
    assert abs(found - near) <= 1 << 31


@given(xmax=st.integers(1 << 33, 1 << 62), running=st.sets(st.integers(1, 50)), ages=st.sets(st.integers(-20, 60)))
def test_snapshot_sees_exactly_what_had_ended(xmax: int, running: set[int], ages: set[int]) -> None:
    """Not running is not enough: xmax is only the last ended transaction + 1, and later ones may run."""
    ids = sorted(xmax - age for age in running)
    snapshot = PgSnapshot.parse(f"{min(ids, default=xmax)}:{xmax}:{','.join(map(str, ids))}")

    for age in ages:
        full = xmax - age
        assert snapshot.sees(full & 0xFFFFFFFF) == (age > 0 and age not in running)


def test_snapshots_of_the_server_are_read() -> None:
    assert PgSnapshot.parse("795:799:795,797") == PgSnapshot(799, frozenset({795, 797}))
    assert PgSnapshot.parse("799:799:") == PgSnapshot(799, frozenset())
