"""A commit under way: what runs beside it, and what waits for it."""

from __future__ import annotations

import pytest

from cdc.capture.assembler import BatchLimits
from cdc.errors import OutcomeUnknown
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.pipeline_rig import Rig, opening, transaction


def test_next_batch_is_read_while_kafka_commits_the_one_before() -> None:
    rig = Rig(transaction(100, 110), [], transaction(110, 120))
    rig.publisher.slow = True

    rig.step(3)

    assert rig.journal == ["write 1"], "neither known nor confirmed, and nothing more is written"
    assert rig.assembler.row_count == 1
    assert rig.stream.waits_s[2] == 0


def test_batch_that_was_read_meanwhile_is_written_when_the_commit_is_known() -> None:
    rig = Rig(transaction(100, 110), [], transaction(110, 120))
    rig.publisher.slow = True
    rig.step(3)

    rig.publisher.settling = False
    rig.publisher.slow = False
    rig.step(2)

    assert rig.journal == ["write 1", "commit 110", "confirm 110", "write 1", "commit 120", "confirm 120"]
    assert rig.published == ["100.1", "110.1"]


def test_a_slice_is_kept_back_rather_than_waiting_for_the_commit_under_way() -> None:
    rig = Rig(transaction(100, 110), [], opening(110, rows=2500))
    rig.publisher.slow = True

    rig.step(3)

    assert rig.journal == ["write 1"]
    assert rig.assembler.row_count == 2500


def test_silence_waits_for_the_commit_under_way() -> None:
    rig = Rig(transaction(100, 110), [])
    rig.publisher.slow = True

    rig.step(3)

    assert rig.journal == ["write 1", "commit 110", "confirm 110"]


def test_full_batch_waits_for_the_commit_under_way() -> None:
    """What is read ahead is bounded by one batch."""
    rig = Rig(transaction(100, 110, rows=2), transaction(110, 120, rows=2), caps=BatchLimits(2, 1 << 30))
    rig.publisher.slow = True

    rig.step(2)

    assert rig.journal == ["write 2", "commit 110", "confirm 110", "write 2"]


def test_commit_under_way_that_fails_confirms_nothing() -> None:
    rig = Rig(transaction(100, 110), [], transaction(110, 120))
    rig.publisher.slow = True
    rig.step(3)
    rig.publisher.fails = OutcomeUnknown("the broker went away")

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

    assert rig.journal == ["write 1", "commit 110", "confirm 110"]
