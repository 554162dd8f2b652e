"""Interrupted snapshots: finished chunks are not read again, and the result is exact."""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.fixtures.capture.snapshot_waits import RACED, ROWS, SMALL_CHUNKS, complete, differences, racing
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import Servers

_KILLS: Final = int(os.environ.get("TAILRACE_SNAPSHOT_KILLS", "3"))
_SLOW: Final = "slow_chunks:15"


def read_count(capture: CaptureSite) -> int:
    """Rows of the snapshot that are in the log."""
    return sum(record.op == "r" for record in capture.log().topic(capture.topic("t")))


def test_finished_chunk_is_not_read_again_after_kill_9(capture: CaptureSite) -> None:
    capture.sql(*RACED)
    daemon = capture.running(SMALL_CHUNKS, mutant=_SLOW)
    for part in (1, 2):
        until(partial(goes_on, capture, part * ROWS // 3), "a part is read")
        daemon.kill()
        daemon = capture.running(SMALL_CHUNKS, mutant=_SLOW)
    until(partial(done, capture), "it ends", within_s=120)  # the one that was killed may have come to the end
    log = capture.settled(daemon)

    counts = Counter(record.key for record in log.topic(capture.topic("t")))
    assert (len(counts), set(counts.values())) == (ROWS, {1})
    assert not differences(capture, log, "t").any


def test_kill_9_at_every_step_of_a_chunk_leaves_no_gap_and_finished_chunks_are_not_read_again(
    capture: CaptureSite,
) -> None:
    capture.sql(*RACED)
    for step in ("opened", "taken", "arrived", "joined", "committed"):
        before = read_count(capture) if capture.daemons else 0
        daemon = capture.daemon(SMALL_CHUNKS, mutant=f"die_in_chunk:{step}:20")
        assert daemon.exit_code() == -9
        assert before <= read_count(capture) < ROWS
    daemon = capture.running(SMALL_CHUNKS)
    log = complete(capture, daemon, "public.t")

    counts = Counter(record.key for record in log.topic(capture.topic("t")))
    assert (len(counts), set(counts.values())) == (ROWS, {1})
    assert not differences(capture, log, "t").any


def test_snapshot_killed_again_and_again_under_load_is_exact(capture: CaptureSite) -> None:
    capture.sql(*RACED)
    chance = random.Random(seed())
    with racing(capture.dsn, seed(), writers=6):
        for _ in range(_KILLS):
            daemon = capture.running(SMALL_CHUNKS, mutant=_SLOW)
            enough = read_count(capture) + chance.randint(1, max(2, ROWS // (2 * _KILLS)))
            until(partial(goes_on, capture, enough), "it goes on")
            daemon.kill()
        daemon = capture.running(SMALL_CHUNKS, mutant=_SLOW)
        until(partial(done, capture), "it ends", within_s=120)
    log = capture.settled(daemon)

    found = differences(capture, log, "t")
    assert not found.any, found


def goes_on(capture: CaptureSite, row_count: int) -> bool:
    """Whether so many rows are read, or all."""
    return read_count(capture) >= row_count or done(capture)


def done(capture: CaptureSite) -> bool:
    """Whether the cut index calls the table complete."""
    return any(cut["tables"].get("public.t") == "complete" for cut in capture.log().cuts)


def test_snapshot_survives_a_crash_of_postgresql_with_asynchronous_commits(
    fragile: Servers, fragile_capture: CaptureSite
) -> None:
    """What a chunk saw may be lost by the crash, and its transaction id be given out again."""
    capture = fragile_capture
    capture.sql(*RACED)
    daemon = capture.running(SMALL_CHUNKS, mutant=_SLOW)
    for part in (1, 2):
        with racing(capture.dsn, seed() + part, writers=6, commit="off"):
            until(partial(goes_on, capture, part * ROWS // 4), "a part is read")
            fragile.postgres.stop("immediate")
        fragile.postgres.start()
    log = complete(capture, daemon, "public.t")

    found = differences(capture, log, "t")
    assert not found.any, found


def test_reader_whose_connection_is_ended_reads_its_chunk_again(capture: CaptureSite) -> None:
    capture.sql(*RACED)
    daemon = capture.running(SMALL_CHUNKS, mutant="slow_chunks:60")
    end = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name like 'cdc snapshot-_'"
    )

    # More often than a thread may fail in a row: it reads on in between.
    for _ in range(4):
        until(partial(goes_on, capture, read_count(capture) + ROWS // 10), "it goes on")
        until(partial(capture.query, end), "connections are ended")
    log = complete(capture, daemon, "public.t")

    assert len(daemon.events("capture_started")) == 1
    assert max(event["attempt"] for event in daemon.events("snapshot_interrupted")) < 3
    assert not differences(capture, log, "t").any
