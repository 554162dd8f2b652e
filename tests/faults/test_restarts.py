"""Servers are stopped and killed in every way under load: capture recovers by itself, and the log is exact (A9, C1).

Also that we are no burden: PostgreSQL shuts down while we stream, and a broker that is away costs neither the
replication connection nor memory.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Literal

import pytest

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.servers import WAL_SENDER_TIMEOUT_S, frozen
from tests.fixtures.faults.workload import KEYS, ONE_ROW_EACH, SCHEMA, writing
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.transaction_state import PREPARE_ABORT, transaction_states
from tests.fixtures.servers.waiting import holds_for, until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import Servers

OUTAGE_S: Final = float(os.environ.get("TAILRACE_OUTAGE_S", "6"))
STALL_S: Final = min(OUTAGE_S, 40.0)  # below 50 s, after which a batch is given up and capture waits
# 140 MB of records; of those the producer's queue (32 MB) and a batch (12 MB) may be in memory.
BACKLOG: Final = "insert into wide select g, 0, repeat('0123456789', 1000) from generate_series(1000, 15000) g"
GROWTH_BYTES: Final = 96 << 20
LINES_MAX: Final = 40
_SHUTDOWN_S: Final = 30.0  # for a busy machine; what must not be waited for takes more than 50 s


@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_capture_goes_on_exactly_after_postgresql_was_restarted(
    fragile: Servers, fragile_capture: CaptureSite, mode: Literal["fast", "immediate", "kill"]
) -> None:
    capture = fragile_capture
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.running()

    with writing(capture.dsn, seed()) as work:
        until(lambda: work.transactions > 50, "the writers write")
        began_s = time.monotonic()
        fragile.postgres.stop(mode)
        stopping_s = time.monotonic() - began_s
        daemon.until_state("WAITING")
        fragile.postgres.start()
        count = work.transactions
        until(lambda: work.transactions > count + 50, "the writers write again")
    log = capture.settled(daemon)

    assert stopping_s < _SHUTDOWN_S, "our walsender held up the shutdown"
    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
    until(lambda: daemon.events("capture_recovered"), "the end of the wait is logged")


def test_capture_goes_on_exactly_after_the_broker_was_killed(fragile: Servers, fragile_capture: CaptureSite) -> None:
    capture = fragile_capture
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.running()

    with writing(capture.dsn, seed()) as work:
        until(lambda: work.transactions > 50, "the writers write")
        fragile.kafka.kill()
        count = work.transactions
        until(lambda: work.transactions > count + 50, "the writers write on without a broker")
        fragile.kafka.start()
    log = capture.settled(daemon, within_s=120)

    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


def test_stalled_broker_costs_neither_the_replication_connection_nor_memory(
    fragile: Servers, fragile_capture: CaptureSite
) -> None:
    capture = fragile_capture
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.running()
    capture.settled(daemon)
    reader, before = walsender(capture), daemon.rss_bytes()

    assert STALL_S > 2 * WAL_SENDER_TIMEOUT_S
    with frozen(fragile.kafka):
        capture.sql(BACKLOG)
        holds_for(lambda: walsender(capture) == reader, "one walsender all the time", seconds=STALL_S, every_s=0.2)
        growth = daemon.rss_bytes() - before
    log = capture.settled(daemon, within_s=120)

    assert growth < GROWTH_BYTES
    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


def test_capture_waits_for_an_absent_broker_quietly_and_goes_on(fragile: Servers, fragile_capture: CaptureSite) -> None:
    capture = fragile_capture
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.running()
    capture.settled(daemon)
    before, said = daemon.rss_bytes(), len(daemon.events())

    fragile.kafka.stop()
    capture.sql("insert into bulk (n) select g from generate_series(1, 1000) g")
    assert daemon.until_state("WAITING")["reason"] == "broker"
    holds_for(lambda: daemon.state() == "WAITING", "it waits and says so", seconds=OUTAGE_S, every_s=0.2)
    growth = daemon.rss_bytes() - before
    fragile.kafka.start()
    log = capture.settled(daemon, within_s=120)

    assert growth < GROWTH_BYTES
    assert len(daemon.events("capture_waiting")) <= 2
    assert len(daemon.events()) - said < LINES_MAX, "an outage is logged once, not once a retry"
    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


def test_sigterm_ends_within_20_s_while_the_broker_stalls(fragile: Servers, fragile_capture: CaptureSite) -> None:
    capture = fragile_capture
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.running()

    with frozen(fragile.kafka):
        capture.sql("insert into bulk (n) select g from generate_series(1, 5000) g")
        until(lambda: sent_all(capture), "the daemon has read what it cannot publish")
        began_s = time.monotonic()
        code = daemon.stop()
        took_s = time.monotonic() - began_s

    assert code == 0
    assert took_s < 45, "it gives up after 15 s; what the broker stalls takes more than 50 s"
    assert history_faults(oracle.changes(list(KEYS)), capture.settled(capture.running()), KEYS) == []


def test_postgresql_shuts_down_while_the_broker_stalls(fragile: Servers, fragile_capture: CaptureSite) -> None:
    """The walsender waits for an acknowledgement that cannot come; it must not wait for the broker's time-out."""
    capture = fragile_capture
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.running()

    with frozen(fragile.kafka):
        capture.sql("insert into bulk (n) select g from generate_series(1, 5000) g")
        until(lambda: sent_all(capture), "the daemon has read what it cannot publish")
        began_s = time.monotonic()
        fragile.postgres.stop("fast")
        took_s = time.monotonic() - began_s
    fragile.postgres.start()
    log = capture.settled(daemon, within_s=120)

    assert took_s < _SHUTDOWN_S
    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


def test_kafka_transaction_that_outlived_its_timeout_is_no_zombie(fragile_capture: CaptureSite) -> None:
    """To the producer it looks like fencing; our walsender still holds the slot, so nobody has taken over."""
    capture = fragile_capture
    capture.sql(*SCHEMA, f"alter database {capture.dsn.rpartition('/')[2]} set wal_sender_timeout = '60s'")
    oracle = capture.oracle()
    short = {"kafka": {"options": {"transaction.timeout.ms": "1500", "socket.timeout.ms": "1500"}}}
    daemon = capture.running(short, mutant="freeze_before_commit:rows")

    capture.sql(*ONE_ROW_EACH)
    until(lambda: daemon.scheduler_state() == "T", "it is frozen with its commit before it")
    until(lambda: aborted(capture), "the broker has given the transaction up")
    daemon.thaw()
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
    assert {event["error"] for event in daemon.events("capture_waiting")} == {"OutcomeUnknown"}


def walsender(capture: CaptureSite) -> int | None:
    """The pid of the process that streams from our slot."""
    rows = capture.query("select active_pid from pg_replication_slots where slot_name = %s", capture.slot)
    return rows[0][0] if rows else None


def aborted(capture: CaptureSite) -> bool:
    """Whether the broker has decided to abort a transaction of ours."""
    return any(state == PREPARE_ABORT for state, _ in transaction_states(capture.bootstrap, capture.name))


def sent_all(capture: CaptureSite) -> bool:
    """Whether the walsender of this capture has sent something that is not confirmed."""
    rows = capture.query("select sent_lsn > flush_lsn from pg_stat_replication where pid = %s", walsender(capture))
    return bool(rows and rows[0][0])
