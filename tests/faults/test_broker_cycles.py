"""First starts, and restarts of Kafka under load: capture and every kind of sink recover without an operator.

A short form in CI. ``make broker-cycles`` does 30 of each (TAILRACE_BROKER_CYCLES) and prints how long each took, and
its seed (TAILRACE_BROKER_SEED repeats it); TAILRACE_BROKER_SINKS=fast,find leaves the lake out.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from cdc.model.sink_report import WORKING
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.daemon import CaptureSite, Sections, capture_site
from tests.fixtures.servers.running_servers import fresh_database
from tests.fixtures.servers.supervised_run import Supervised, supervised
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.opensearch import OpenSearchServer
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack, Servers
    from tests.fixtures.servers.valkey import MakeValkey

CYCLES: Final = int(os.environ.get("TAILRACE_BROKER_CYCLES", "0"))  # 0: three
SEED: Final = int(os.environ.get("TAILRACE_BROKER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
TABLE: Final = "create table t (id int primary key, v int, body text)"
SINKS: Final = tuple(os.environ.get("TAILRACE_BROKER_SINKS", "fast,find,lake").split(","))
_WITHIN_S: Final = 600.0  # a bound for the test; how long it took is printed


class Site:
    """One pipeline with a sink of each kind, kept by `cdc run --with-sinks`."""

    def __init__(self, site: CaptureSite, daemon: Supervised, sinks: Sequence[str]) -> None:
        self.site = site
        self.daemon = daemon
        self.sinks = sinks

    def works(self) -> bool:
        """Whether capture and each sink say so now."""
        found = self.daemon.status()
        kept = found.get("sinks", {})
        return found.get("state") in WORKING and all(kept[sink]["state"] in WORKING for sink in self.sinks)

    def until_works(self) -> float:
        """Seconds until a row that is written now is in every sink, and everything says that it works."""
        began_s = time.monotonic()
        lsn = self.site.sql("insert into t values (-1, 0, 'marker') on conflict (id) do update set v = t.v + 1")
        until(lambda: len(self.daemon.status()) > 0, "capture answers", within_s=_WITHIN_S)
        for sink in self.sinks:
            code, found = self.daemon.wait_for(sink, lsn, timeout_s=60.0)
            while code != 200:
                assert self.daemon.alive
                assert time.monotonic() - began_s < _WITHIN_S, self.said(sink, found)
                code, found = self.daemon.wait_for(sink, lsn, timeout_s=60.0)
        until(self.works, "everything works", within_s=_WITHIN_S)
        return time.monotonic() - began_s

    def said(self, sink: str, answer: object) -> str:
        """What a sink that does not get on says, in full: pytest shortens what is no text."""
        return "\n".join(map(str, [sink, answer, self.daemon.status(), *self.daemon.events()[-60:]]))

    def needed_nobody(self) -> None:
        """No sink stayed down or asked for an operator, and capture never stopped."""
        events = [one for one in self.daemon.events() if one["event"] in _STOPS]
        assert events == []

    def ended(self) -> list[dict[str, Any]]:
        """Processes of sinks that ended by themselves."""
        return self.daemon.events("sink_ended")


_STOPS: Final = frozenset({"sink_needs_operator", "sink_replaced", "sink_left", "sink_stopped", "capture_stopped"})


@contextmanager
def running(stack: Servers, sections: Sections, folder: Path, sinks: Sequence[str]) -> Iterator[Site]:
    """A new database with one empty table, and capture with its sinks started for the first time."""
    folder.mkdir()
    with (
        fresh_database(stack.postgres) as database,
        capture_site(database.name, database.dsn, stack.kafka.bootstrap, folder) as site,
    ):
        site.sql(TABLE)
        named = {key: value for key, value in sections.items() if key.split(".")[1] in sinks}
        named["sinks.lake"] = {"kind": "warehouse", "path": str(folder / "lake"), "interval_s": 1}
        named = {key: value for key, value in named.items() if key.split(".")[1] in sinks}
        with supervised(site, named, "supervised") as daemon:
            yield Site(site, daemon, sinks)


@contextmanager
def load(dsn: str) -> Iterator[None]:
    """Changes to 300 keys, a hundred a second."""

    def work(stop: threading.Event) -> None:
        number = 0
        while not stop.is_set():
            with suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True, connect_timeout=3) as session:
                while not stop.wait(0.01):
                    number += 1
                    session.execute(
                        "insert into t values (%s, %s, 'body') on conflict (id) do update set v = excluded.v",
                        (number % 300, number),
                    )
            stop.wait(0.3)

    with beside(work):
        yield


@pytest.fixture
def sections(request: pytest.FixtureRequest) -> Sections:
    """A cache and a search sink."""
    search: OpenSearchServer = request.getfixturevalue("opensearch")
    make_valkey: MakeValkey = request.getfixturevalue("make_valkey")
    return {
        "sinks.find": {"kind": "search", "url": search.url},
        "sinks.find.index": {"number_of_replicas": 0},
        "sinks.fast": {"kind": "cache", "url": make_valkey().url},
    }


@pytest.mark.timeout(600 + CYCLES * 240)
def test_first_start_of_a_new_pipeline_with_sinks_needs_no_operator(
    make_stack: MakeStack, sections: Sections, tmp_path: Path
) -> None:
    """The topic of the table is a moment old when the sinks ask for it."""
    stack = make_stack()
    took_s: list[float] = []
    sinks = SINKS if CYCLES else SINKS[:2]

    for number in range(CYCLES or 3):
        with running(stack, sections, tmp_path / f"start-{number}", sinks) as one:
            took_s.append(one.until_works())
            one.needed_nobody()
            assert one.ended() == []
        progress("first start", number, took_s[-1])

    said("first starts", took_s)


@pytest.mark.timeout(900 + CYCLES * 240)
def test_everything_works_again_after_every_restart_of_kafka(
    make_stack: MakeStack, sections: Sections, tmp_path: Path
) -> None:
    sys.stdout.write(f"broker seed: {SEED}\n")
    stack, draw = make_stack(), random.Random(SEED)
    took_s: list[float] = []

    # The short form leaves the lake out: on a busy machine its JVM alone takes minutes.
    sinks = SINKS if CYCLES else SINKS[:2]
    with running(stack, sections, tmp_path / "cycles", sinks) as one, load(one.site.dsn):
        one.until_works()
        for number in range(CYCLES or 3):
            outage(stack.kafka, number, draw)
            took_s.append(one.until_works())
            one.needed_nobody()
            progress("restart", number, took_s[-1])
        ended = one.ended()

    said("restarts of Kafka", took_s)
    sys.stdout.write(f"processes of sinks that ended meanwhile: {ended}\n")
    assert [one for one in ended if one.get("signal") is not None] == [], "the client library ended a process"


def outage(kafka: KafkaServer, number: int, draw: random.Random) -> None:
    """A short stop, a long one, and a kill in turn; Kafka runs again afterwards."""
    kinds: list[tuple[Callable[[], None], float]] = [
        (kafka.stop, draw.uniform(0.0, 2.0)),
        (kafka.stop, draw.uniform(15.0, 75.0) if CYCLES else 6.0),
        (partial(kafka.stop, "kill"), draw.uniform(0.0, 10.0) if CYCLES else 1.0),
    ]
    end, away_s = kinds[number % len(kinds)]
    end()
    time.sleep(away_s)
    kafka.start()


def progress(what: str, number: int, took_s: float) -> None:
    """One line for each, so that a run that is ended early has its numbers too."""
    sys.stdout.write(f"{what} {number + 1}: working after {took_s:.1f} s, load {os.getloadavg()[0]:.0f}\n")
    sys.stdout.flush()


def said(what: str, took_s: Sequence[float]) -> None:
    """For the report."""
    ordered = sorted(took_s)
    median_s = ordered[len(ordered) // 2]
    sys.stdout.write(
        f"{what}: {len(took_s)}, working after {median_s:.1f} s (median), {ordered[-1]:.1f} s (longest); "
        f"all: {', '.join(f'{one:.1f}' for one in took_s)}\n"
    )
