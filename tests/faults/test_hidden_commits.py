"""Commits that Kafka has acknowledged and does not show yet: the slot is ahead of what a start can read at first.

A broker answers a commit before it has written the markers. While too few replicas are in sync it cannot write them,
and a single broker that stops can skip them. Here an open transaction of one of capture's own producers hides the
commits behind it in the same way.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer

from cdc.errors import EXIT_USAGE
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.first_cause import listening, newest_config
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Sections

KEYS: Final = {"public.t": ["id"]}
JOINING: Final[Sections] = {"capture": {"catalog_check_s": 0.2}, "snapshot": {"mode": "initial"}}


def test_acknowledged_commits_that_are_not_visible_yet_are_no_gap(capture: CaptureSite, tmp_path: Path) -> None:
    oracle = capture.oracle()
    capture.sql("create table t (id int primary key)")
    daemon = capture.running(listening({}))
    daemon.until_position(capture.sql("insert into t values (1)"))
    with hiding(capture, f"{capture.name}.capture.6"):
        hidden = capture.sql("insert into t values (2)")
        daemon.until_position(hidden)
        until(lambda: capture.confirmed() >= hidden, "the slot moves on")
        daemon.kill()
        assert capture.log().progress[-1]["end_lsn"] < hidden

        why = cdc("why", "--json", "-c", newest_config(capture))
        assert [one["code"] for one in json.loads(why.out)["causes"]] == ["capture-down"], why.out

        export = cdc("state", "export", str(tmp_path / "state"), "-c", newest_config(capture))
        assert export.code == EXIT_USAGE
        assert "does not show the newest commits" in export.err

        daemon = capture.running()
        capture.sql("insert into t values (3)")
        log = capture.settled(daemon)
    assert history_faults(oracle.changes(), log, KEYS) == []
    assert len(log.events) == 3


def test_table_that_joined_in_a_hidden_commit_is_captured_without_a_hole(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running(JOINING)
    with hiding(capture, f"{capture.name}.capture.6"):
        capture.sql("create table joined (id int primary key)", "insert into joined values (1)")
        until(lambda: daemon.events("table_joined"), "the table joins")
        daemon.until_position(capture.sql("insert into joined values (2)"))
        daemon.kill()

        daemon = capture.running(JOINING)
        capture.sql("insert into joined values (3)")
        until(lambda: len(capture.log().fold(capture.topic("joined"))) == 3, "every row is in the log")
    assert daemon.events("table_left_out") == []
    assert [event["error"] for event in daemon.events("capture_waiting")] == ["OutcomeUnknown"]


@contextmanager
def hiding(capture: CaptureSite, transactional_id: str) -> Iterator[None]:
    """Hide every later commit from readers of the progress topic, until another producer takes this id."""
    producer = Producer({"bootstrap.servers": capture.bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(f"{capture.name}.__progress", b"", b"sentinel")
    producer.flush(30)
    yield
