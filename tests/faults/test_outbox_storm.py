"""kill -9 of a service and of capture, and rollbacks: topics have the committed events, once, in order.

TAILRACE_STORM_S is its length, `make outbox-storm` runs five minutes.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.fixtures.faults.tally import tally
from tests.fixtures.outbox.outbox_events import made
from tests.fixtures.outbox.outbox_service import SCHEMA
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.capture.topic_log import LogRecord, TopicLog
    from tests.fixtures.servers.daemon import CaptureSite, Sections

STORM_S: Final = float(os.environ.get("TAILRACE_STORM_S", "12"))
_LONG_S: Final = 60.0
_EVENTS_MIN: Final = 50  # a machine that is busy takes longer to come to as many
# Small caps, so that large transactions are spread; rows go as soon as Kafka has them.
SECTIONS: Final[Sections] = {
    "capture": {"batch_rows_max": 40, "catalog_check_s": 0.2},
    "outbox": {"prune": "delete", "keep_s": 0, "prune_interval_s": 0.1, "prune_rows": 50},
}


def test_topics_have_exactly_the_committed_events_in_order_after_a_storm(capture: CaptureSite) -> None:
    capture.sql(*SCHEMA, *made())
    chance, kills, services = random.Random(seed()), 0, 0
    daemon = capture.running(SECTIONS)  # what has no row any more is in the log from the slot's begin on
    ends_s = time.monotonic() + STORM_S
    while time.monotonic() < ends_s or written(capture) < _EVENTS_MIN or not kills:
        services += 1
        before = written(capture)
        with working(capture.dsn, chance.randrange(1 << 30)):
            until(lambda: written(capture) > before, "the service writes")  # noqa: B023 - called at once
            time.sleep(chance.uniform(1, 3))  # the moments are what the test is about
            if chance.random() < 0.7:
                daemon.kill()
                kills += 1
                daemon = capture.daemon(SECTIONS)
                time.sleep(chance.uniform(0, 3))
    daemon.until_running(120)
    log = capture.settled(daemon, 300)

    truth = capture.query("select id::text, aggregate, number from truth.event order by aggregate, number")
    found = events(log)
    assert Counter(record.headers["id"].decode() for record in found) == Counter(one for one, _, _ in truth)
    assert orders_of(found) == {
        aggregate: list(range(1, count + 1)) for aggregate, count in counts(capture).items() if count
    }
    assert log.topic(f"{capture.name}.__refused") == []
    assert log.faults() == []
    until(lambda: capture.query("select count(*) from outbox.outbox") == [(0,)], "every row is pruned")
    if STORM_S > _LONG_S:
        assert any(cut["next_ordinal"] for cut in log.cuts), (
            "no transaction was spread; the test is weaker than it says"
        )
    tally("outbox storm", events=len(truth), capture_kills=kills, service_kills=services, seconds=STORM_S)


@contextmanager
def working(dsn: str, number: int) -> Iterator[None]:
    """A service that writes meanwhile, and is killed."""
    service = subprocess.Popen([sys.executable, "-m", "tests.fixtures.outbox.outbox_service", dsn, str(number)])
    try:
        yield
    finally:
        service.kill()
        service.wait()


def events(log: TopicLog) -> list[LogRecord]:
    """Events of all types, partition after partition."""
    return [record for (topic, _), records in log.records.items() if ".events." in topic for record in records]


def orders_of(found: list[LogRecord]) -> dict[str, list[int]]:
    """Aggregate -> numbers of its events as its partition has them."""
    numbers: dict[str, list[int]] = {}
    for record in found:
        assert record.key is not None
        numbers.setdefault(record.key.decode(), []).append(record.document["number"])
    return numbers


def written(capture: CaptureSite) -> int:
    """How many events are committed."""
    return int(capture.query("select count(*) from truth.event")[0][0])


def counts(capture: CaptureSite) -> dict[str, int]:
    """Aggregate -> how many events it has, by its own row."""
    return dict(capture.query("select id, event_count from orders"))
