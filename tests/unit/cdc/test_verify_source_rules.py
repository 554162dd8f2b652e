"""Rules for when a source row differs from the log, and when that cannot be decided. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdc.lsn import Lsn
from cdc.model.visibility import PgSnapshot
from cdc.verify.key_states import KeyState
from cdc.verify.key_verdict import DifferenceKind
from cdc.verify.row_json import Row
from cdc.verify.source_check import Unclear, _Horizon, as_of, differs, normal_key
from cdc.verify.source_rows import RowsAtSnapshot
from sinks.contract import Change

SNAPSHOT = PgSnapshot(100, frozenset({90}))  # sees everything below 100 but 90


def known(offset: int, xid: int | None, row: bytes | None = b'{"id":1,"v":1}', **more: tuple[str, ...]) -> KeyState:
    kept = more.get("kept", ())
    return KeyState(
        Change("t", 0, offset, b'{"id":1}', row, kept, "", 1, offset, 0), xid, more.get("absent", ()), read=xid is None
    )  # fmt: skip


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ([None], None),
        ([known(1, 50)], 1),
        ([known(1, None)], 1),
        ([known(1, 50), known(2, 60)], 2),
        ([known(1, 50), known(2, 90)], 1),
        ([known(1, 50), known(2, 200)], 1),
        ([None, known(2, 200)], None),
        ([None, known(2, 60), known(3, 200), known(4, 201)], 2),
        ([known(1, 90)], "unclear"),
        ([known(1, 90), known(2, 200)], "unclear"),
        ([known(1, 50), known(2, None)], "unclear"),
        ([known(1, 50), known(2, None), known(3, 60)], 3),
    ],
)
def test_a_row_is_held_against_what_the_log_said_to_its_snapshot(
    states: Sequence[KeyState | None], wanted: int | str | None
) -> None:
    found = as_of(SNAPSHOT, states, lambda _: False)

    shown = "unclear" if isinstance(found, Unclear) else None if found is None else found.change.offset
    assert shown == wanted


@pytest.mark.parametrize(
    ("row", "state", "wanted"),
    [
        (None, None, None),
        (None, known(1, 5, None), None),
        (None, known(1, 5), DifferenceKind.EXTRA),
        ({"id": 1}, None, DifferenceKind.MISSING),
        ({"id": 1}, known(1, 5, None), DifferenceKind.MISSING),
        ({"id": 1, "v": 1}, known(1, 5), None),
        ({"id": 1, "v": 2}, known(1, 5), DifferenceKind.DIFFERENT),
        ({"id": 1, "v": 1, "added": None}, known(1, 5), None),
        ({"id": 1, "v": 1, "added": 7}, known(1, 5), DifferenceKind.DIFFERENT),
        ({"id": 1}, known(1, 5), None),  # a column was dropped since
        ({"id": 1, "v": 2}, known(1, 5, kept=("v",)), None),
        ({"id": 1, "v": 2}, known(1, 5, b'{"id":1}', absent=("v",)), None),
    ],
)
def test_rows_and_events_that_differ_are_named(
    row: Row | None, state: KeyState | None, wanted: DifferenceKind | None
) -> None:
    assert differs(row, state) is wanted


def test_keys_are_the_same_in_any_order_of_their_columns() -> None:
    assert normal_key(b'{"b":1e0,"a":"x"}') == normal_key(b'{"a":"x","b":1}')


def moment(snapshot: str, next_xid: int) -> RowsAtSnapshot:
    return RowsAtSnapshot(PgSnapshot.parse(snapshot), Lsn(0), {}, next_xid)


def test_event_without_a_transaction_is_visible_when_all_that_ran_with_it_has_ended() -> None:
    horizon, event = _Horizon(), known(5, None)._replace(read=False)

    horizon.take(moment("90:100:90", 101), {0: 6})
    assert not horizon.has(event), "the log has it, and its transaction may still be invisible"
    horizon.take(moment("90:105:90", 106), {0: 9})
    assert not horizon.has(event), "90 ran when the log had it"
    horizon.take(moment("104:107:104", 108), {0: 12})
    assert horizon.has(event)
    assert not horizon.has(known(6, None)), "the log had that later"
    assert as_of(SNAPSHOT, [event], horizon.has) is event
    assert isinstance(as_of(SNAPSHOT, [event], lambda _: False), Unclear)
