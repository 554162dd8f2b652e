"""Time until new events appear after broker, source or daemon was killed: printed, without a limit.

From the moment that the server answers again (of the daemon: that its successor is started) until a `read_committed`
reader has a row that was written after it.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, TopicPartition

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.tally import LONG_ONLY, tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import Servers

TIMES: Final = int(os.environ.get("TAILRACE_RECOVERIES", "10"))
_READABLE_S: Final = 120.0
pytestmark = LONG_ONLY


def test_new_events_are_readable_again_after_broker_source_and_daemon_died(
    fragile: Servers, fragile_capture: CaptureSite
) -> None:
    capture = fragile_capture
    capture.sql("create table t (id int primary key)")
    oracle = capture.oracle()
    daemon = capture.running()
    daemon.until_position(capture.sql("insert into t values (0)"))

    def broker() -> float:
        fragile.kafka.kill()
        fragile.kafka.start()
        return time.monotonic()

    def source() -> float:
        fragile.postgres.kill()
        fragile.postgres.start()
        return time.monotonic()

    def successor() -> float:
        capture.daemons[-1].kill()
        began_s = time.monotonic()
        capture.daemon()
        return began_s

    for name, die in (("broker", broker), ("source", source), ("daemon", successor)):
        took_s = [recovered(capture, die) for _ in range(TIMES)]
        median_s, max_s = round(statistics.median(took_s), 2), round(max(took_s), 2)
        tally(f"recovery of {name}", times=TIMES, median_s=median_s, max_s=max_s)
    log = capture.settled(capture.daemons[-1])

    assert history_faults(oracle.changes(), log, {"public.t": ["id"]}) == []
    assert len(log.events) == 1 + 3 * TIMES


def recovered(capture: CaptureSite, die: Callable[[], float]) -> float:
    """Seconds from its return until a row written after it can be read."""
    with closing(reader(capture)) as consumer:
        began_s = die()
        capture.sql("insert into t select max(id) + 1 from t")
        while not any(message.error() is None for message in consumer.consume(10, 0.01)):
            assert time.monotonic() - began_s < _READABLE_S
        return time.monotonic() - began_s


def reader(capture: CaptureSite) -> Consumer:
    """At the end of the table's topic, and connected."""
    consumer = Consumer(
        {
            "bootstrap.servers": capture.bootstrap,
            "group.id": "recovery",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    topic = capture.topic("t")
    places = [
        TopicPartition(topic, index) for index in consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ]
    ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
    consumer.assign([TopicPartition(topic, place.partition, end) for place, end in zip(places, ends, strict=True)])
    consumer.consume(1, 0.2)
    return consumer
