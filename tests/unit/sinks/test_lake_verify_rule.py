"""`cdc verify` computes a lake's expected rows record by record, by a rule of its own."""

from __future__ import annotations

from sinks.warehouse.verify.mirror_rule import Cell, Outcome, Position, Record, Row, origin, outcomes


def record(
    op: str,
    offset: int,
    *,
    key: str = "1",
    at: int = 0,
    kept: tuple[int, ...] = (),
    empty: tuple[int, ...] = (),
    epoch: int = 1,
) -> Record:
    return Record([key], 0, offset, (epoch, at or offset, 0), op, kept, empty)


def ends(*records: Record) -> list[Row | None]:
    return [found.row for found in outcomes(records, 2) if not found.left]


def test_a_column_that_an_update_did_not_send_keeps_the_value_of_the_row_before() -> None:
    made, first, second = record("c", 5), record("u", 6, kept=(1,)), record("u", 9, kept=(0, 1))

    assert ends(made, first, second) == [(Cell(0, 6), Cell(0, 5))]


def test_nothing_of_a_deleted_row_is_kept() -> None:
    deleted = record("c", 1), record("d", 2)

    assert ends(*deleted) == [None]
    assert ends(*deleted, record("c", 3)) == [(Cell(0, 3), Cell(0, 3))]
    moved: Position = (1, 3, 0)
    assert ends(*deleted, record("c", 3, kept=(1,))) == [(Cell(0, 3), Cell(0, 3, moved))]
    assert ends(*deleted, record("r", 3, kept=(1,))) == [(Cell(0, 3), Cell(0, 3))]


def test_nothing_is_kept_across_a_repair_of_the_log() -> None:
    """Neither by the key, nor under another one."""
    made, later = record("c", 5), record("u", 2, kept=(1,), epoch=2)
    assert ends(made, later) == [(Cell(0, 2), Cell(0, 2))]
    assert ends(made, later, record("u", 3, kept=(0, 1), epoch=2)) == [(Cell(0, 2), Cell(0, 2))]
    assert [one.left for one in outcomes([made, record("d", 6, epoch=2)], 2)] == [False]


def test_keys_do_not_mix() -> None:
    records = (record("c", 1), record("c", 2, key="2"), record("u", 3, key="2", kept=(0,)), record("d", 4, key="3"))

    assert ends(*records) == [(Cell(0, 1), Cell(0, 1)), (Cell(0, 2), Cell(0, 3)), None]


def test_a_value_that_compaction_has_removed_is_unsure_and_one_read_again_is_not() -> None:
    assert ends(record("u", 7, kept=(0, 1), empty=(0,))) == [(Cell(0, 7, None, unsure=True), Cell(0, 7))]
    later = ends(record("u", 7, kept=(0,), empty=(0,)), record("u", 8, kept=(0,)), record("u", 9, kept=(1,)))
    assert later == [(Cell(0, 9), Cell(0, 8))]


def test_a_row_is_followed_back_through_all_the_keys_it_had() -> None:
    first = [record("c", 1, key="1"), record("d", 2, key="1", at=20)]
    second = [record("c", 3, key="2", at=20, kept=(1,)), record("d", 4, key="2", at=40)]
    third = [record("c", 5, key="3", at=40, kept=(1,))]
    found = list(outcomes([*first, *second, *third], 2))
    left = {one.position: one.row for one in found if one.left and one.row is not None}

    assert found[0] == Outcome(0, 2, (1, 20, 0), left=True, row=(Cell(0, 1), Cell(0, 1)))
    (last,) = [one.row for one in found if not one.left and one.row is not None]
    assert [origin(cell, index, left) for index, cell in enumerate(last)] == [Cell(0, 5), Cell(0, 1)]
    del left[(1, 20, 0)]  # compaction has removed the row of the first key
    assert origin(last[1], 1, left) == Cell(0, 3, (1, 20, 0))
