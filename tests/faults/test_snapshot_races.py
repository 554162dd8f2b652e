"""Snapshots under writes on a real server: no stale, missing or extra row; the usual position rule fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.capture.snapshot_waits import RACED, SMALL_CHUNKS, complete, differences, racing
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.seed import seed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack


@pytest.fixture
def lonely(make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[CaptureSite]:
    """A server whose synchronous standby does not exist, with the table of the races."""
    settings = {"synchronous_standby_names": "nobody", "synchronous_commit": "local", "max_connections": "60"}
    source = make_stack("postgres", postgres=settings).postgres
    with capture_site(topic_prefix, source.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql(*RACED)
        yield site


def test_no_row_is_stale_missing_or_too_many_under_pending_synchronous_commits(lonely: CaptureSite) -> None:
    with racing(lonely.dsn, seed(), writers=16, commit="on"):
        daemon = lonely.running(SMALL_CHUNKS)
        complete(lonely, daemon, "public.t")
    log = lonely.settled(daemon)

    found = differences(lonely, log, "t")
    assert not found.any, found


def test_no_row_is_stale_missing_or_too_many_under_fifty_writers(capture: CaptureSite) -> None:
    """Inserts, deletes, moved keys, savepoints; half of the commits are asynchronous; large values are out of line."""
    capture.sql(
        *RACED, "alter table t alter pad set storage external", "update t set pad = repeat('z', 3000) where id % 3 = 0"
    )
    with racing(capture.dsn, seed(), writers=50, commit="off", pause_s=0.4):
        daemon = capture.running(SMALL_CHUNKS)
        complete(capture, daemon, "public.t", within_s=180)
    log = capture.settled(daemon)

    found = differences(capture, log, "t")
    assert not found.any, found
    assert any("reselected" in event.source for event in log.events)


def test_window_of_lsns_is_found_wrong_by_the_same_test(lonely: CaptureSite) -> None:
    with racing(lonely.dsn, seed(), writers=16, commit="on"):
        daemon = lonely.running(SMALL_CHUNKS, mutant="lsn_window")
        complete(lonely, daemon, "public.t")
    log = lonely.settled(daemon)

    assert differences(lonely, log, "t").any
