"""The capture loop and re-read values: records are complete before a hand-over, never read in a Kafka transaction."""

from __future__ import annotations

import threading

import pytest

from cdc.capture.assembler import BatchLimits
from cdc.errors import SourceUnreachable
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.pipeline_rig import INSERT, Rig, opening, transaction


def test_batch_is_completed_before_it_is_written() -> None:
    rig = Rig(transaction(100, 110), [])
    rig.reselect.pending = True

    rig.step(2)

    assert rig.journal == ["fill", "write 1", "commit 110", "confirm 110"]


def test_commit_under_way_is_known_before_anything_is_read_again() -> None:
    rig = Rig(transaction(100, 110), [])
    rig.publisher.slow = True
    rig.step(2)
    rig.will_read(*transaction(110, 120))
    rig.will_read()

    rig.step()
    rig.reselect.pending = True
    rig.step(2)

    assert rig.journal[:5] == ["write 1", "commit 110", "confirm 110", "fill", "write 1"]


def test_no_kafka_transaction_is_open_while_values_are_read_again() -> None:
    """What was handed over is committed where it ended, and every row is in the log once."""
    rig = Rig(opening(100, rows=2500))
    rig.step()
    assert rig.publisher.is_open

    rig.reselect.pending = True
    rig.will_read(INSERT, server.commit(100, 110))
    rig.will_read()
    rig.step(2)

    assert rig.journal == ["write 2500", "commit 100", "confirm 100", "fill", "write 1", "commit 110", "confirm 110"]
    assert rig.publisher.positions == [StreamPosition(Lsn(100), Lsn(100), 2501), StreamPosition(Lsn(110), Lsn(100))]
    assert rig.published == [f"100.{ordinal}" for ordinal in range(1, 2502)]
    assert [stats.row_count for stats, _ in rig.observer.published_stats] == [2500, 1]
    assert [stats.transaction_count for stats, _ in rig.observer.published_stats] == [0, 1]


def test_what_was_handed_over_at_a_boundary_is_committed_as_that_boundary() -> None:
    rig = Rig([*transaction(100, 110, rows=2500), *transaction(110, 120)])
    rig.step()
    rig.reselect.pending = True
    rig.will_read(*transaction(120, 130))
    rig.will_read()

    rig.step(2)

    assert rig.publisher.positions == [StreamPosition(Lsn(120), Lsn(110)), StreamPosition(Lsn(130), Lsn(120))]


def test_rows_that_lack_something_are_not_handed_over_in_slices() -> None:
    rig = Rig(opening(100, rows=2500), [INSERT] * 2500)
    rig.reselect.pending = True

    rig.step(2)

    assert rig.journal == []


def test_batch_after_one_that_lacked_something_is_not_sliced_and_the_next_is() -> None:
    """Under a steady load of such rows no transaction of the source is spread because of them."""
    rig = Rig(transaction(100, 110), [])
    rig.reselect.pending = True
    rig.step(2)

    written = []
    for begin in (110, 120):
        rig.will_read(*opening(begin, rows=2500))
        rig.will_read(server.commit(begin, begin + 10))
        rig.will_read()
        rig.step()
        written.append(rig.publisher.is_open)
        rig.step(2)

    assert written == [False, True]


def test_transaction_over_twice_the_cap_is_completed_part_by_part() -> None:
    rig = Rig([*transaction(100, 110, rows=9)], [], caps=BatchLimits(2, 1 << 30))
    rig.reselect.pending = True

    rig.step(2)

    assert rig.journal[:3] == ["fill", "write 4", "commit 100"]
    assert rig.published == [f"100.{ordinal}" for ordinal in range(1, 10)]


def test_stop_while_it_waits_publishes_nothing_and_acknowledges_nothing() -> None:
    rig = Rig([*transaction(100, 110, rows=2), *transaction(110, 120, rows=2)], caps=BatchLimits(2, 1 << 30))
    rig.reselect.pending = True
    rig.reselect.answers = [False, False]
    stop = threading.Event()
    rig.stream.heard = stop.set

    rig.pipeline.run(stop)

    assert rig.journal == ["fill", "fill", "confirm 100"]
    assert rig.assembler.row_count == 2, "nothing was fed after the refusal"


def test_stop_publishes_what_turns_out_to_be_readable_at_the_last_look() -> None:
    rig = Rig([*transaction(100, 110, rows=2), *transaction(110, 120, rows=2)], caps=BatchLimits(2, 1 << 30))
    rig.reselect.pending = True
    rig.reselect.answers = [False, True]
    stop = threading.Event()
    rig.stream.heard = stop.set

    rig.pipeline.run(stop)

    assert rig.published == ["100.1", "100.2"]
    assert max(rig.stream.confirmed) == 110


def test_nothing_is_written_when_the_source_breaks_meanwhile() -> None:
    rig = Rig(transaction(100, 110), [])
    rig.reselect.pending = True
    rig.reselect.answers = [SourceUnreachable("the connection broke")]

    with pytest.raises(SourceUnreachable):
        rig.step(2)

    assert rig.journal == ["fill"]
