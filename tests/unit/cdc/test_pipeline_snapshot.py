"""The capture loop while rows of a snapshot join the stream."""

from __future__ import annotations

from cdc.capture.no_snapshots import NoSnapshots
from cdc.contracts import Joined
from cdc.lsn import Lsn
from tests.fixtures.capture.pipeline_rig import Rig, transaction


class _Endless(NoSnapshots):
    """A source of rows that never ends."""

    def __init__(self, rows: int = 1) -> None:
        self.rows = rows

    def due(self, boundary: Lsn) -> bool:
        return boundary > 0

    def join(self, boundary: Lsn, at_us: int) -> Joined:
        return Joined(self.rows, 100 * self.rows, ())


def test_change_waits_a_tenth_of_a_second_beside_rows_of_a_snapshot() -> None:
    rig = Rig([], transaction(100, 110), snapshots=_Endless(), batch_age_max_s=1.0)

    rig.step(8, seconds=0.03)

    assert rig.publisher.positions[0].end_lsn == 110


def test_rows_of_a_snapshot_alone_fill_their_batch() -> None:
    rig = Rig(snapshots=_Endless(), batch_age_max_s=1.0)

    rig.step(30, seconds=0.03)
    assert rig.publisher.positions == []
    rig.step(5, seconds=0.03)
    assert len(rig.publisher.positions) == 1


def test_batches_with_rows_of_a_snapshot_are_small_while_changes_arrive_and_for_a_second_after() -> None:
    rig = Rig([], transaction(100, 110), snapshots=_Endless(rows=1000), batch_age_max_s=10.0)

    rig.step(20, seconds=0.001)
    while_changing = [stats.row_count for stats, _ in rig.observer.published_stats]
    rig.clock.now_s += 1
    rig.step(60, seconds=0.001)
    later = [stats.row_count for stats, _ in rig.observer.published_stats[len(while_changing) + 1 :]]

    assert while_changing[0] == 3001
    assert set(while_changing[1:]) == {3000}
    assert set(later) == {20_000}
