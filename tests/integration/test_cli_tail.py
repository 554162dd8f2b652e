"""`cdc tail` on real servers: output, starting point, order and end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc.lsn import Lsn
from tests.fixtures.servers.commands import cdc, command
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.running_servers import fresh_database
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import KafkaServer, PostgresServer

TABLES = (
    "create table orders (id int primary key, total numeric(10,2), note text)",
    "create table customers (id int primary key, name text)",
)


@pytest.fixture(scope="module")
def filled(
    postgres: PostgresServer, kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, list[Lsn]]]:
    """The configuration of a capture of ten transactions in two tables, and the insert position before each."""
    folder = tmp_path_factory.mktemp("tail")
    name = f"t{uuid.uuid4().hex[:10]}"
    with fresh_database(postgres) as database, capture_site(name, database.dsn, kafka.bootstrap, folder) as capture:
        capture.sql(*TABLES)
        daemon = capture.running()
        marks = []
        for number in range(10):
            marks.append(capture.wal())
            capture.transaction(
                f"insert into orders values ({number}, {number}, 'n')",
                f"insert into customers values ({number}, 'c')",
            )
            if number == 4:
                daemon.until_position(capture.wal())  # so that the index has more than one cut
        capture.sql("delete from orders where id = 3")
        daemon.until_position(capture.wal())
        daemon.stop()
        yield capture.write_config(), marks


def documents(config: Path, *arguments: object) -> list[dict[str, Any]]:
    """The documents that `cdc tail --json` prints."""
    ran = cdc("tail", "-c", config, "--no-follow", "--json", *arguments)
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def position(document: dict[str, Any]) -> tuple[int, int]:
    source = document["value"]["source"]
    return source["commit_lsn"], source["ordinal"]


def test_everything_comes_in_order_of_position_and_with_its_tombstone(
    filled: tuple[Path, list[Lsn]],
) -> None:
    config, _ = filled

    found = documents(config, "--from", "beginning")

    events = [document for document in found if document["value"] is not None]
    assert len(events) == 21
    assert len(found) == 22
    assert [position(event) for event in events] == sorted(position(event) for event in events)
    assert found[-1] == {**found[-1], "key": {"id": 3}, "value": None}


def test_from_an_lsn_is_every_transaction_committed_there_or_later(
    filled: tuple[Path, list[Lsn]],
) -> None:
    config, marks = filled

    for number in (0, 4, 5, 9):
        found = documents(config, "orders", "--op", "c", "--from", marks[number])

        assert [document["key"]["id"] for document in found] == list(range(number, 10))


def test_from_a_time_an_offset_or_now(filled: tuple[Path, list[Lsn]]) -> None:
    config, _ = filled
    everything = [document for document in documents(config, "--from", "beginning") if document["value"]]
    middle = everything[10]["value"]["ts_ms"]

    since = documents(config, "--op", "c,d", "--from", datetime.fromtimestamp(middle / 1000, UTC).isoformat())
    at = documents(config, "--from", f"offset:{everything[4]['topic']}:{everything[4]['partition']}:0", "-n", "1")

    assert since == [document for document in everything if document["value"]["ts_ms"] >= middle]
    assert (at[0]["partition"], at[0]["offset"]) == (everything[4]["partition"], 0)
    assert documents(config, "--from", "now") == []


def test_tables_operations_keys_and_counts_narrow_it(filled: tuple[Path, list[Lsn]]) -> None:
    config, _ = filled

    one_key = documents(config, "--from", "beginning", "public.orders", "--key", '{"id": 3}')
    deleted = documents(config, "--from", "beginning", "--op", "d")
    two = documents(config, "--from", "beginning", "*.cust*", "-n", "2")

    assert [document["value"] and document["value"]["op"] for document in one_key] == ["c", "d", None]
    assert [document["key"] for document in deleted] == [{"id": 3}]
    assert [document["key"]["id"] for document in two] == [0, 1]


def test_people_get_one_line_an_event(filled: tuple[Path, list[Lsn]]) -> None:
    config, _ = filled

    ran = cdc("tail", "-c", config, "--no-follow", "--from", "beginning", "orders", "--topic")

    lines = ran.out.splitlines()
    assert ran.code == 0
    assert len(lines) == 11
    assert "insert public.orders" in lines[0]
    assert "id=0  total=0.00  note=n" in lines[0]
    assert "delete public.orders" in lines[-1]
    assert ".public.orders-" in lines[0]


def test_following_shows_what_comes_and_ends_quietly_at_ctrl_c(capture: CaptureSite) -> None:
    capture.sql(*TABLES)
    daemon = capture.running()
    process = subprocess.Popen(
        command("tail", "-c", capture.write_config(), "orders"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert "waiting for changes of public.orders" in process.stderr.readline()

        def insert_until_seen() -> str:
            # The first reads happen a moment after the note; what is inserted before them is not "from now on".
            capture.sql("insert into orders values ((select count(*) from orders), 1, 'x')")
            os.set_blocking(process.stdout.fileno(), False)  # type: ignore[union-attr]
            return process.stdout.readline()  # type: ignore[union-attr]

        assert "insert public.orders" in until(insert_until_seen, "the event is shown", every_s=0.2)

        process.send_signal(signal.SIGINT)

        assert process.wait(90) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
        process.wait()
        daemon.stop()


def test_a_reader_that_has_enough_ends_it_quietly(filled: tuple[Path, list[Lsn]]) -> None:
    config, _ = filled
    process = subprocess.Popen(
        command("tail", "-c", config, "--from", "beginning", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline().startswith(b"{")

        process.stdout.close()

        assert process.wait(90) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def test_an_unknown_table_is_a_usage_error_that_lists_the_tables(
    filled: tuple[Path, list[Lsn]],
) -> None:
    config, _ = filled

    ran = cdc("tail", "-c", config, "ordrs")

    assert ran.code == 2
    assert "no captured table matches 'ordrs'" in ran.err
    assert "public.customers, public.orders" in ran.err
    assert ran.out == ""


def test_before_anything_was_captured_it_says_so(capture: CaptureSite) -> None:
    ran = cdc("tail", "-c", capture.write_config())

    assert ran.code == 3
    assert "nothing was ever captured as" in ran.err
    assert "cdc run" in ran.err


def test_rows_alone_are_shown_as_the_events_they_are(capture: CaptureSite) -> None:
    """`encode.format = "flat"`: what tail tells of an event stands in headers."""
    capture.sql(TABLES[1])
    flat: dict[str, dict[str, Any]] = {"encode": {"format": "flat"}, "kafka": {"partitions": 1}}
    daemon = capture.running(flat)
    capture.sql(
        "insert into customers values (1, 'Ann')",
        "update customers set name = 'Bob'",
        "update customers set id = 2",
        "delete from customers",
    )
    capture.settled(daemon)
    config = capture.write_config(flat)

    shown = cdc("tail", "--no-follow", "--from", "beginning", "-c", config)
    deleted = cdc("tail", "--no-follow", "--from", "beginning", "--op", "d", "-c", config)

    assert shown.code == deleted.code == 0, shown.err + deleted.err
    lines = [
        line.partition("public.customers")[0].split()[-1] + line[line.index(" public") :]
        for line in shown.out.splitlines()
    ]
    assert lines == [
        "insert public.customers  id=1  name=Ann",
        "update public.customers  id=1  name=Bob",
        "delete public.customers  id=1  (becomes id=2)",
        "insert public.customers  id=2  (was id=1)  name=Bob",
        "delete public.customers  id=2",
    ]
    assert len(deleted.out.splitlines()) == 2


def test_broker_that_is_away_is_named_and_given_up_at_the_deadline_also_when_piped(
    filled: tuple[Path, list[Lsn]], tmp_path: Path
) -> None:
    config = tmp_path / "away.toml"
    text = filled[0].read_text(encoding="utf-8")
    config.write_text(re.sub(r"(?m)^.bootstrap. = .*$", '"bootstrap" = "127.0.0.1:1"', text), encoding="utf-8")

    ran = cdc("tail", "-c", config, "--wait", "5")

    assert ran.code == 1
    assert "waiting for Kafka at 127.0.0.1:1, for at most 5 s" in ran.err
    assert "127.0.0.1:1" in ran.err.split("error", 1)[1]


def test_key_column_and_start_that_cannot_be_are_usage_errors(filled: tuple[Path, list[Lsn]]) -> None:
    config, _ = filled

    key = cdc("tail", "-c", config, "--no-follow", "--key", '{"idd": 3}')
    start = cdc("tail", "-c", config, "--no-follow", "--from", "FFFF/0")

    assert (key.code, "did you mean id?" in key.err) == (2, True)
    assert (start.code, "past the end of the log" in start.err) == (2, True)
