"""A broker behind a bad connection (slow, half-open, reset during a commit): capture continues exactly (C2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.links import IMPATIENT, trap_text
from tests.fixtures.faults.proxy import END_TXN
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.faults.proxy import Proxy
    from tests.fixtures.servers.daemon import CaptureSite


def test_slow_and_half_open_lines_to_kafka_lose_and_double_nothing(linked: tuple[CaptureSite, Proxy]) -> None:
    """Latency, a narrow line, and connections on which one side is heard and hears nothing, in turn under load."""
    capture, proxy = linked
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.running(IMPATIENT)

    with writing(capture.dsn, seed(), bulk_rows=100) as work:

        def more(count: int) -> None:
            end = work.transactions + count
            until(lambda: work.transactions > end, "the writers write")

        more(20)
        proxy.latency_s = 0.05
        more(50)
        daemon.until_position(capture.wal())
        proxy.latency_s, proxy.bytes_per_s = 0.0, 400_000
        more(50)
        proxy.bytes_per_s = 0
        for way in ("to server", "to client"):
            assert proxy.silence(way) > 0
            more(30)
            daemon.until_position(capture.wal())
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


def test_reset_in_the_middle_of_a_commit_loses_and_doubles_nothing(linked: tuple[CaptureSite, Proxy]) -> None:
    """The broker has decided and nobody hears of it, or has not heard of it, four times, while rows keep coming."""
    capture, proxy = linked
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.running(IMPATIENT)

    with writing(capture.dsn, seed(), bulk_rows=100):
        for number in range(4):
            trap = proxy.trap(END_TXN, ("cut after", "cut before")[number % 2], text=trap_text(capture, END_TXN))
            assert trap.sprung.wait(90)
            proxy.reset()
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
    until(lambda: daemon.events("capture_recovered"), "the end of the wait is logged")
