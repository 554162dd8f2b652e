"""A commit under way: what runs beside it, and what waits for it."""

from __future__ import annotations

import pytest

from cdc.capture.assembler import BatchLimits
from cdc.errors import OutcomeUnknown
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.pipeline_rig import Rig, opening, transaction


def test_batch_is_written_while_the_commit_of_the_one_before_is_not_known() -> None:
    rig = Rig(transaction(100, 110), [], transaction(110, 120), [])
    rig.publisher.slow = True

    rig.step(4)

    assert [what for what in rig.journal if "confirm" not in what] == ["write 1", "write 1"]
    assert all(lsn <= 100 for lsn in rig.stream.confirmed)


def test_batch_that_waits_for_delivery_takes_what_arrives_meanwhile() -> None:
    rig = Rig(transaction(100, 110), [], transaction(110, 120), [], transaction(120, 130), [])
    rig.publisher.slow = True
    rig.step(2)
    rig.publisher.undelivered = True

    rig.step(4)

    assert rig.publisher.written_at_once == [1, 2]


def test_commits_become_known_and_confirmed_in_their_order() -> None:
    rig = Rig(transaction(100, 110), [], transaction(110, 120), [])
    rig.publisher.slow = True
    rig.step(4)

    rig.publisher.slow = rig.publisher.settling = False
    rig.step(2)

    assert rig.journal[-4:] == ["commit 110", "confirm 110", "commit 120", "confirm 120"]
    assert rig.published == ["100.1", "110.1"]


def test_a_slice_is_kept_back_rather_than_waiting_for_the_batch_before() -> None:
    rig = Rig(transaction(100, 110), [], opening(110, rows=2500))
    rig.publisher.slow = True
    rig.step(2)
    rig.publisher.undelivered = True

    rig.step()

    assert rig.publisher.written_at_once == [1]
    assert rig.assembler.row_count == 2500


def test_stream_is_asked_often_while_a_commit_is_under_way() -> None:
    """So that it is confirmed soon; nothing waits for it."""
    rig = Rig(transaction(100, 110), [], [])
    rig.publisher.slow = True

    rig.step(3)

    assert 0 < rig.stream.waits_s[2] < 0.01


def test_batch_waits_for_the_oldest_commit_when_all_producers_are_busy() -> None:
    """What is under way is bounded."""
    rows = [transaction(at, at + 10, rows=2) for at in (100, 110, 120)]
    rig = Rig(*rows, caps=BatchLimits(2, 1 << 30))
    rig.publisher.slow = True

    rig.step(3)

    assert rig.journal == ["write 2", "write 2", "commit 110", "confirm 110", "write 2"]


def test_commit_under_way_that_fails_confirms_nothing() -> None:
    rig = Rig(transaction(100, 110), [], transaction(110, 120))
    rig.publisher.slow = True
    rig.step(3)
    rig.publisher.fails = OutcomeUnknown("the broker went away")
    rig.publisher.settling = False

    with pytest.raises(OutcomeUnknown):
        rig.step()

    assert all(lsn <= 100 for lsn in rig.stream.confirmed)


def test_progress_under_way_is_not_said_again_for_the_next_keepalive() -> None:
    rig = Rig(*([server.keepalive(200 + number)] for number in range(6)))
    rig.publisher.slow = True

    rig.step(6, seconds=0.1)
    rig.publisher.settling = False
    rig.step()

    assert [position.end_lsn for position in rig.publisher.positions] == [200]


def test_stop_waits_for_the_commit_under_way() -> None:
    rig = Rig(transaction(100, 110), [])
    rig.publisher.slow = True
    rig.step(2)

    rig.run_until_silent()

    assert rig.journal[-2:] == ["commit 110", "confirm 110"]
