"""The network between: silence, resets, crumbs; requests to Kafka that arrive late, or whose answer never does.

Faults C2, C3 and C4 of RELIABILITY part 8, against the real broker.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc.local.server import ServerOptions
from cdc.local.stack import Stack
from tests.fixtures.daemon import CaptureSite, capture_site
from tests.fixtures.faults.proxy import END_TXN, PRODUCE, Fate, Proxy
from tests.fixtures.faults.secured import free_ports
from tests.fixtures.faults.workload import KEYS, ONE_ROW_EACH, SCHEMA, writing
from tests.fixtures.oracle import history_faults
from tests.fixtures.seed import seed
from tests.fixtures.servers import _in_containers, _run_name
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers import Database

# So that the client gives a request up after a second, and not after thirty.
IMPATIENT: Final[dict[str, Any]] = {
    "kafka": {"options": {"socket.timeout.ms": "1500", "request.timeout.ms": "1500", "reconnect.backoff.max.ms": "200"}}
}


@pytest.fixture
def source_link(capture: CaptureSite) -> Iterator[Proxy]:
    """A proxy before PostgreSQL; the server gives a silent reader up after 2 s."""
    capture.sql(*SCHEMA, f"alter database {capture.dsn.rpartition('/')[2]} set wal_sender_timeout = '2s'")
    port = int(capture.dsn.rpartition(":")[2].partition("/")[0])
    with Proxy(port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def broker_link(request: pytest.FixtureRequest) -> Iterator[tuple[Proxy, str]]:
    """A broker that tells its clients to come through a proxy, and the proxy."""
    if _in_containers():
        pytest.skip("the listeners of a broker in a container are fixed by its image")
    own, internal, controller = free_ports(3)
    with Proxy(own, frames=True) as proxy:
        # The coordinator talks to the broker it lives in over the network too, and not through the proxy.
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{own},INTERNAL://127.0.0.1:{internal},"
            f"CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port},INTERNAL://127.0.0.1:{internal}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
        name = f"{_run_name(request.config)}-proxied{os.environ.get('PYTEST_XDIST_WORKER', '')}"
        stack = Stack(name, ["kafka"], options={"kafka": ServerOptions(port=own, fast_start=True, settings=settings)})
        try:
            stack.up()
            yield proxy, f"127.0.0.1:{proxy.port}"
        finally:
            stack.down("kill", wipe=True)


@pytest.fixture
def linked(
    database: Database, broker_link: tuple[Proxy, str], topic_prefix: str, tmp_path: Path
) -> Iterator[tuple[CaptureSite, Proxy]]:
    """A capture that reaches its broker through the proxy."""
    proxy, bootstrap = broker_link
    with capture_site(topic_prefix, database.dsn, bootstrap, tmp_path) as site:
        site.sql("create table t (id int primary key, v text)")
        yield site, proxy
        proxy.clear()


def test_silent_link_to_postgresql_is_noticed_and_capture_goes_on(capture: CaptureSite, source_link: Proxy) -> None:
    oracle = capture.oracle()
    daemon = capture.running(through(capture, source_link))
    # The first row of a table makes capture ask the catalog; that is another promise than this one.
    capture.sql(*ONE_ROW_EACH)
    capture.settled(daemon)

    with writing(capture.dsn, seed()) as work:
        until(lambda: work.transactions > 30, "the writers write")
        assert source_link.silence() >= 2
        daemon.until_state("WAITING")
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


def test_stream_that_comes_in_crumbs_is_the_same_stream(capture: CaptureSite, source_link: Proxy) -> None:
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
    assert trap.sprung.wait(30)
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
    assert trap.sprung.wait(30)
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


def trap_text(capture: CaptureSite, request_kind: int) -> bytes:
    """What is in a request of our producer for rows, and in no other."""
    return f"{capture.name}.capture".encode() if request_kind == END_TXN else capture.topic("t").encode()
