"""Values that cannot be written, from an SQL_ASCII database (B7): a named stop, and exact after the repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from cdc.lsn import Lsn
from tests.fixtures.capture.repair_scenes import repaired
from tests.fixtures.capture.snapshot_waits import INITIAL, complete
from tests.fixtures.servers.daemon import CaptureSite, capture_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers.running_servers import KafkaServer, PostgresServer

# Not UTF-8, and as wide as the word that must not be seen: chr(200) alone would be hard to tell from any other.
POISON: Final = b"caf\xe9-canary-7d20"
WORDS: Final = ("canary-7d20", "caf", "\\xe9", "636166")


@pytest.fixture
def site(postgres: PostgresServer, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[CaptureSite]:
    """A capture of a database that promises nothing about its bytes."""
    name = f"ascii_{topic_prefix}"
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute(f"create database {name} encoding 'SQL_ASCII' locale 'C' template template0".encode())
    # Without it the test's own client would take texts for bytes.
    dsn = f"{postgres.dsn.rpartition('/')[0]}/{name}?client_encoding=utf8"
    try:
        with capture_site(topic_prefix, dsn, kafka.bootstrap, tmp_path) as made:
            made.sql("create table t (id int primary key, v text)", "create table k (id text primary key, v int)")
            yield made
    finally:
        with psycopg.connect(postgres.dsn, autocommit=True) as admin:
            slots = admin.execute("select slot_name from pg_replication_slots where database = %s", [name]).fetchall()
            for (slot,) in slots:
                admin.execute("select pg_drop_replication_slot(%s)", [slot])
            admin.execute(f"drop database {name} with (force)".encode())


def test_row_with_invalid_text_stops_capture_by_name_and_is_never_skipped(site: CaptureSite) -> None:
    """What is before the row is in the log, nothing behind it, also when it was repaired: the WAL has it as it was."""
    daemon = site.running()
    daemon.until_position(site.sql("insert into t values (1, 'good')"))
    before = site.wal()
    poison(
        site, "insert into t values (2, 'in front')", "insert into t values (3, %s)", "insert into t values (4, 'x')"
    )
    site.sql("insert into t values (5, 'behind')", "update t set v = 'mended' where id = 3")

    stop = stopped(site, daemon, column="v", table="public.t")
    again = stopped(site, site.daemon(), column="v", table="public.t")

    assert Lsn.parse(stop["lsn"]) >= before
    assert (stop["lsn"], stop["ordinal"]) == (again["lsn"], again["ordinal"])
    assert stop["ordinal"] == "2"
    assert f"change 2 of the transaction at {stop['lsn']}" in stop["message"]
    assert [event.after["id"] for event in site.log().events] == [1, 2]
    assert site.confirmed() <= Lsn.parse(stop["lsn"])


def test_capture_continues_exactly_when_the_row_is_repaired_as_the_stop_says(site: CaptureSite) -> None:
    daemon = site.running(INITIAL)
    daemon.until_position(site.sql("insert into t values (1, 'good')"))
    poison(site, "insert into t values (2, %s)", "insert into k values ('k', 1)")
    stop = stopped(site, daemon, column="v", table="public.t")
    site.sql("update t set v = 'mended' where id = 2")

    repaired(site, stop["command"])
    again = site.running(INITIAL)
    for table in ("t", "k"):
        complete(site, again, f"public.{table}")
    log = site.settled(again)

    assert {row["id"]: row["v"] for row in log.fold(site.topic("t")).values()} == {1: "good", 2: "mended"}
    assert [row["id"] for row in log.fold(site.topic("k")).values()] == ["k"]
    assert log.faults() == []


def test_row_with_invalid_text_stops_a_snapshot_by_name_and_it_continues_after_repair(site: CaptureSite) -> None:
    poison(site, "insert into t values (1, %s)", "insert into t values (2, 'good')")
    stop = stopped(site, site.daemon(INITIAL), column="v", table="public.t")
    site.sql("update t set v = 'mended' where id = 1")

    daemon = site.running(INITIAL)
    complete(site, daemon, "public.t")
    log = site.settled(daemon)

    assert "repair the row" in stop["hint"]
    assert "command" not in stop
    assert {row["id"]: row["v"] for row in log.fold(site.topic("t")).values()} == {1: "mended", 2: "good"}
    assert log.faults() == []


def poison(site: CaptureSite, *statements: str) -> None:
    """Run statements in one transaction, bytes as the client sends them."""
    with psycopg.connect(site.dsn.replace("utf8", "sql_ascii")) as session:
        cursor = psycopg.ClientCursor(session)
        for statement in statements:
            cursor.execute(statement.encode().replace(b"%s", b"'" + POISON + b"'"))


def stopped(site: CaptureSite, daemon: Any, *, table: str, column: str) -> dict[str, Any]:
    """The stop names table and column, and never the value."""
    stop: dict[str, Any] = daemon.stopped_with()
    assert (stop["state"], stop["exit_code"], stop["error"]) == ("MISCONFIGURED", 3, "RowRefused")
    assert table in stop["message"]
    assert f"{column!r}" in stop["message"]
    assert [word for word in WORDS if word in daemon.log_text().replace(str(site.folder), "")] == []
    return stop
