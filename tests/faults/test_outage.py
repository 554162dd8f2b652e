"""The broker is down under load: WAL is the buffer, and the daemon's memory stays constant (C1).

`make faults-long` has it away for five minutes and prints what that cost.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.servers import WAL_SENDER_TIMEOUT_S, frozen
from tests.fixtures.faults.tally import tally
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import Servers

AWAY_S: Final = float(os.environ.get("TAILRACE_AWAY_S", "8"))
# Read-ahead, the producer's queue and the batch fill up once; from then on nothing may grow (fault C1).
_FILLS_BYTES: Final = 96 << 20
_FLAT_BYTES: Final = 20 << 20
_FILLED_AFTER: Final = 0.3  # of the time
_SAMPLE_S: Final = 0.25


def test_broker_that_is_away_under_load_costs_neither_memory_nor_the_walsender(
    fragile: Servers, fragile_capture: CaptureSite
) -> None:
    capture = fragile_capture
    assert AWAY_S > 2 * WAL_SENDER_TIMEOUT_S
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    daemon = capture.running()
    capture.settled(daemon)
    said = len(server_log(fragile))

    with writing(capture.dsn, seed()) as work:
        time.sleep(1)
        began, wal, samples = work.transactions, capture.wal(), [daemon.rss_bytes()]
        fragile.kafka.kill()
        end_s = time.monotonic() + AWAY_S
        while time.monotonic() < end_s:
            time.sleep(_SAMPLE_S)
            samples.append(daemon.rss_bytes())
        written, behind = work.transactions - began, capture.wal() - wal
    fragile.kafka.start()
    log = capture.settled(daemon, within_s=60 + AWAY_S * 4)

    later = samples[int(len(samples) * _FILLED_AFTER) :]
    assert max(samples) - samples[0] < _FILLS_BYTES
    assert max(later) - later[0] < _FLAT_BYTES
    assert b"due to replication timeout" not in server_log(fragile)[said:]
    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
    tally(
        f"broker away for {AWAY_S:g} s",
        transactions_meanwhile=written,
        wal_mb=round(behind / 1e6, 1),
        rss_before_mb=samples[0] >> 20,
        rss_peak_mb=max(samples) >> 20,
        rss_growth_later_mb=round((max(later) - later[0]) / (1 << 20), 1),
        events=len(log.events),
    )


def test_idle_capture_notices_that_kafka_does_not_answer(fragile: Servers, fragile_capture: CaptureSite) -> None:
    fragile_capture.sql(*SCHEMA)
    daemon = fragile_capture.running()
    fragile_capture.settled(daemon)

    with frozen(fragile.kafka):
        until(lambda: daemon.events("capture_waiting"), "capture waits")
    until(lambda: daemon.events("capture_recovered"), "capture continues")

    (waiting,) = daemon.events("capture_waiting")
    assert (waiting["reason"], waiting["error"]) == ("broker", "BrokerUnreachable")


def server_log(servers: Servers) -> bytes:
    """What PostgreSQL has said so far; nothing of one in a container."""
    file = getattr(servers.postgres, "log", None)
    return file.read_bytes() if isinstance(file, Path) else b""
