"""The oldest supported PostgreSQL; `make majors` runs all of contract, integration and faults on each version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from cdc.config.load import load
from cdc.local.postgres_programs import OLDER_MAJORS
from cdc.verify.log_check import fold_and_compare
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.running_servers import MAJOR, fresh_database
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack

_TRANSACTIONS: Final = 150


@pytest.fixture
def oldest(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CaptureSite]:
    """A capture of the oldest major, into the run's Kafka."""
    monkeypatch.setenv(MAJOR, OLDER_MAJORS[0])
    postgres = make_stack("postgres").postgres
    with (
        fresh_database(postgres) as database,
        capture_site(topic_prefix, database.dsn, kafka.bootstrap, tmp_path) as site,
    ):
        yield site


def test_oldest_major_is_captured_exactly_over_a_kill(oldest: CaptureSite) -> None:
    oldest.sql(*SCHEMA)
    oracle = oldest.oracle()
    daemon = oldest.running()

    with writing(oldest.dsn, seed()) as work:
        until(lambda: work.transactions > _TRANSACTIONS, "it writes", within_s=120)
        daemon.kill()
        daemon = oldest.running()
        until(lambda: work.transactions > 2 * _TRANSACTIONS, "it writes", within_s=120)
    log = oldest.settled(daemon)

    assert oldest.query("show server_version")[0][0].startswith(f"{OLDER_MAJORS[0]}.")
    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []


def test_columns_of_the_oldest_major_are_those_it_publishes_to_capture_and_to_verify(oldest: CaptureSite) -> None:
    oldest.sql(
        "create table whole (a int, id int primary key, twice int generated always as (id * 2) stored, gone int)",
        "alter table whole drop column gone",
        "create table part (a int, id int primary key, b int)",
        f"create publication {oldest.slot} for table whole, part (id, b)",
    )
    daemon = oldest.running()

    oldest.sql("insert into whole values (1, 2)", "insert into part values (1, 2, 3)")
    log = oldest.settled(daemon)

    assert [event.after for event in log.events] == [{"a": 1, "id": 2}, {"id": 2, "b": 3}]
    assert {schema["table"]: [column["name"] for column in schema["columns"]] for schema in log.schemas} == {
        "public.whole": ["a", "id"],
        "public.part": ["id", "b"],
    }
    assert len(log.schemas) == 2
    assert fold_and_compare(load(oldest.folder / "cdc-0.toml", {}), oldest.wal()).ok


def test_failover_of_a_server_without_it_is_a_named_stop(oldest: CaptureSite) -> None:
    oldest.sql("create table t (id int primary key)")

    stop = oldest.daemon({"source": {"failover": True}}).stopped_with()

    assert (stop["state"], stop["exit_code"]) == ("MISCONFIGURED", 3)
    assert "source.failover" in stop["hint"]
    assert oldest.query("select count(*) from pg_replication_slots") == [(0,)]
