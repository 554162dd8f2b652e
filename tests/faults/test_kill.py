"""kill -9 of the daemon at any moment: the log still holds exactly the history (fault E2, obligations P1 to P7)."""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from cdc.lsn import Lsn
from tests.fixtures.capture.as_events import NO_ID, from_avro, from_flat
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.capture.topic_log import read_raw
from tests.fixtures.faults.tally import tally
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.registry_api import RegistryApi
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.capture.referee import Oracle
    from tests.fixtures.capture.topic_log import TopicLog
    from tests.fixtures.servers.daemon import CaptureSite, Sections

KILLS: Final = int(os.environ.get("TAILRACE_KILLS", "8"))
TERMS: Final = int(os.environ.get("TAILRACE_TERMS", "4"))
TERM_S: Final = 45.0  # the process gives up after 15 s; the rest is for a busy machine
# Small caps: many Kafka transactions, and large source transactions spread over several of them.
BATCH_ROWS: Final = 40
SMALL: Final[Sections] = {"capture": {"batch_rows_max": BATCH_ROWS, "catalog_check_s": 0.2}}


@pytest.mark.parametrize("form", ["json", "flat", "avro"])
def test_log_is_exactly_the_history_after_kill_9_at_random_moments(
    capture: CaptureSite, request: pytest.FixtureRequest, form: str
) -> None:
    sections: Sections = {**SMALL, "encode": {"format": form}}
    url = ""
    if form == "avro":
        url = request.getfixturevalue("registry").url
        sections["registry"] = {"url": url, "options": {"timeout": "120"}}
    oracle = begin(capture, sections)
    chance = random.Random(seed())

    with writing(capture.dsn, seed()):
        for _ in range(KILLS if form == "json" else (KILLS + 2) // 3):
            daemon = capture.daemon(sections)
            # The writers do this too, but perhaps not within three short runs.
            capture.sql(f"insert into bulk (n) select n from generate_series(1, {5 * BATCH_ROWS}) n")
            if chance.random() < 0.7:
                daemon.until_running()
                time.sleep(chance.uniform(0, 1))  # the moment is what the test is about
            else:
                time.sleep(chance.uniform(0.1, 2))
            daemon.kill()
            assert acknowledged_early(capture) == []
    log = capture.settled(capture.running(sections), 120.0)

    changes = oracle.changes(list(KEYS))
    if form == "flat":
        log, changes = from_flat(log), [replace(change, xid=NO_ID) for change in changes]
    elif form == "avro":
        log = from_avro(log, RegistryApi(url))
    assert history_faults(changes, log, KEYS) == []
    assert wide_rows(log) == dict(capture.query("select id, body from wide")), "large values of the last records"
    assert any(cut["next_ordinal"] for cut in log.cuts), "large transactions are spread"
    tally(f"SIGKILL, {form}", kills=len(capture.daemons) - 2, events=len(log.events))


def test_log_is_exactly_the_history_after_sigterm_at_random_moments(capture: CaptureSite) -> None:
    oracle = begin(capture)
    chance = random.Random(seed())
    codes, slowest_s = [], 0.0

    with writing(capture.dsn, seed()):
        for number in range(TERMS):
            daemon = capture.daemon(SMALL)
            until(lambda: daemon.events("http_listening"), "it is up")  # noqa: B023 - called at once
            time.sleep(chance.uniform(0, 2))  # the moment is what the test is about
            began_s = time.monotonic()
            daemon.terminate()
            if number % 2:
                # Up to a second it is the same wish, after that it is one to leave at once.
                time.sleep(chance.uniform(0, 1.5))
                daemon.terminate()
            codes.append(daemon.exit_code())
            slowest_s = max(slowest_s, time.monotonic() - began_s)
    log = capture.settled(capture.running(SMALL), 120.0)

    assert set(codes) == {0}
    assert slowest_s < TERM_S
    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
    tally("SIGTERM", ends=TERMS, slowest_s=round(slowest_s, 2), events=len(log.events))


def begin(capture: CaptureSite, sections: Sections = SMALL) -> Oracle:
    """The workload's tables, the referee, and a capture that has made its slot and nothing else."""
    capture.sql(*SCHEMA)
    oracle = capture.oracle()
    capture.running(sections).kill()
    return oracle


def wide_rows(log: TopicLog) -> dict[int, object]:
    """Key and large value of every row, from the last record of each key alone: what compaction leaves."""
    topic = next(topic for topic in log.data_topics if topic.endswith(".wide"))
    return {row["id"]: row.get("body") for row in log.fold(topic).values()}


def acknowledged_early(capture: CaptureSite) -> list[str]:
    """Obligation P2: nothing is acknowledged that a committed progress record does not cover."""
    confirmed = capture.confirmed()
    stored = [
        json.loads(value)["end_lsn"]
        for key, value in read_raw(capture.bootstrap, f"{capture.name}.__progress")
        if key == capture.name.encode() and value is not None
    ]
    return [] if confirmed <= max(stored) else [f"acknowledged {confirmed}, the log reaches {Lsn(max(stored))}"]
