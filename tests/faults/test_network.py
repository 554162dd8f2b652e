"""Network faults: silence, resets, tiny packets, and requests to Kafka that are late or lost.

Faults C2, C3 and C4 of docs/reference/faults.md, against the real broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.links import IMPATIENT, trap_text
from tests.fixtures.faults.proxy import END_TXN, PRODUCE, Fate, Proxy
from tests.fixtures.faults.workload import KEYS, ONE_ROW_EACH, SCHEMA, writing
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.daemon import CaptureSite


@pytest.fixture
def source_link(capture: CaptureSite) -> Iterator[Proxy]:
    """A proxy before PostgreSQL; the server gives a silent reader up after 2 s."""
    capture.sql(*SCHEMA, f"alter database {capture.dsn.rpartition('/')[2]} set wal_sender_timeout = '2s'")
    port = int(capture.dsn.rpartition(":")[2].partition("/")[0])
    with Proxy(port) as proxy:
        yield proxy


def test_silent_link_to_postgresql_is_noticed_and_capture_goes_on(capture: CaptureSite, source_link: Proxy) -> None:
    oracle = capture.oracle()
    daemon = capture.running(through(capture, source_link))
    # The first row of a table makes capture ask the catalog; that is another promise than this one.
    capture.sql(*ONE_ROW_EACH)
    capture.settled(daemon)

    with writing(capture.dsn, seed()) as work:
        until(lambda: work.transactions > 30, "the writers write")
        assert source_link.silence() >= 2
        until(lambda: daemon.events("capture_waiting"), "it noticed")
        daemon.until_state("RUNNING", "CATCHING_UP")
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


def test_reset_links_to_postgresql_lose_nothing(capture: CaptureSite, source_link: Proxy) -> None:
    oracle = capture.oracle()
    daemon = capture.running(through(capture, source_link))

    with writing(capture.dsn, seed()) as work:
        for _ in range(4):
            count = work.transactions
            until(lambda: work.transactions > count + 30, "the writers write")  # noqa: B023 - called at once
            source_link.reset()
            until(lambda: len(daemon.events("capture_waiting")) > 0, "it noticed")
            daemon.until_state("RUNNING", "CATCHING_UP")
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


def test_stream_in_tiny_packets_is_the_same_stream(capture: CaptureSite, source_link: Proxy) -> None:
    oracle = capture.oracle()
    source_link.crumb_bytes = 7
    daemon = capture.running(through(capture, source_link))

    with writing(capture.dsn, seed(), writers=1) as work:
        until(lambda: work.transactions > 60, "the writer writes")
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


@pytest.mark.parametrize("fate", ["cut before", "cut after"])
@pytest.mark.parametrize("request_kind", [END_TXN, PRODUCE], ids=["EndTxn", "Produce"])
def test_request_or_answer_lost_on_the_way_to_kafka_loses_and_doubles_nothing(
    linked: tuple[CaptureSite, Proxy], request_kind: int, fate: Fate
) -> None:
    capture, proxy = linked
    oracle = capture.oracle()
    daemon = capture.running(IMPATIENT)

    capture.sql("insert into t values (0, 'before')")
    trap = proxy.trap(request_kind, fate, text=trap_text(capture, request_kind))
    capture.sql("insert into t select g, 'caught' from generate_series(1, 100) g")
    assert trap.sprung.wait(90)
    capture.sql("insert into t values (101, 'after')", "update t set v = 'changed' where id < 10")
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(), log, {"public.t": ["id"]}) == []


@pytest.mark.parametrize("request_kind", [END_TXN, PRODUCE], ids=["EndTxn", "Produce"])
def test_request_of_an_earlier_transaction_that_arrives_late_changes_nothing(
    linked: tuple[CaptureSite, Proxy], request_kind: int
) -> None:
    capture, proxy = linked
    oracle = capture.oracle()
    daemon = capture.running(IMPATIENT)
    trap = proxy.trap(request_kind, "hold", text=trap_text(capture, request_kind))

    capture.sql("insert into t select g, 'caught' from generate_series(1, 100) g")
    assert trap.sprung.wait(90)
    capture.settled(daemon)
    with capture.connect() as session:
        # While a Kafka transaction is open it is worse: `test_late_requests`.
        session.execute("begin; insert into t select g, 'open' from generate_series(1000, 6000) g")
        trap.release()
        session.execute("insert into t select g, 'open' from generate_series(6001, 9000) g; commit")
    trap.release()
    capture.sql("insert into t values (10000, 'after')")
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(), log, {"public.t": ["id"]}) == []


def test_silent_link_to_kafka_under_load_loses_and_doubles_nothing(linked: tuple[CaptureSite, Proxy]) -> None:
    capture, proxy = linked
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.running(IMPATIENT)

    with writing(capture.dsn, seed()) as work:
        until(lambda: work.transactions > 30, "the writers write")
        assert proxy.silence() > 0
        count = work.transactions
        until(lambda: work.transactions > count + 50, "the writers write on")
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


def through(capture: CaptureSite, proxy: Proxy) -> dict[str, Any]:
    """Settings that reach PostgreSQL through the proxy."""
    head, _, tail = capture.dsn.rpartition(":")
    return {"source": {"dsn": f"{head}:{proxy.port}/{tail.partition('/')[2]}"}}
