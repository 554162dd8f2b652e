"""Wrong and changing wall clocks have no effect on the log, its order or acknowledgements.

Only the daemon's clock is shifted. Those of PostgreSQL and Kafka are compared with no other: the server's times go into
events as they are, and records have the broker's time, whatever ours is (fault E5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.test_kill import acknowledged_early
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.tally import tally
from tests.fixtures.faults.wallclock import WallClock
from tests.fixtures.faults.workload import KEYS, ONE_ROW_EACH, SCHEMA, writing
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite

HOUR_S: Final = 3600


def test_clock_set_an_hour_forward_and_back_under_load_changes_nothing(capture: CaptureSite, tmp_path: Path) -> None:
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    clock = WallClock(tmp_path)
    daemon = capture.daemon(environ=clock.environ).until_running()

    offsets_s = (2 * HOUR_S, -HOUR_S, 0)
    with writing(capture.dsn, seed()) as work:
        for offset_s in offsets_s:
            clock.set(offset_s)
            count = work.transactions
            until(lambda: work.transactions > count + 20, "the writers write")  # noqa: B023 - called at once
            daemon.until_position(capture.wal())
            assert acknowledged_early(capture) == []
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
    assert daemon.events("capture_waiting") == []
    tally("clock", steps=len(offsets_s), events=len(log.events))


@pytest.mark.parametrize("offset_s", [2 * HOUR_S, -2 * HOUR_S], ids=["ahead", "behind"])
def test_daemon_whose_clock_is_hours_off_starts_and_captures(
    capture: CaptureSite, tmp_path: Path, offset_s: int
) -> None:
    """Ahead: a broker refuses records from the future in topics where records have the producer's time."""
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.daemon(environ=WallClock(tmp_path, offset_s).environ).until_running()

    capture.sql(*ONE_ROW_EACH)
    log = capture.settled(daemon)
    assert daemon.stop() == 0

    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
