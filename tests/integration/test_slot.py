"""Slots on a real server: created with a deadline and never partly; held, dropped and lost ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from cdc.cli.main import run
from cdc.clock import SystemClock
from cdc.config.secret import Secret
from cdc.errors import SlotBlocked, SlotHeld, SourceRefused, SourceUnreachable
from cdc.lsn import Lsn
from cdc.replication.blockers import Blocker, blockers
from cdc.replication.catalog_queries import current_wal
from cdc.replication.connect import Connection, connect
from cdc.replication.slot import CreationWatch, create_slot, drop_slot, list_slots, slot_facts
from cdc.replication.stream import ReplicationSession
from tests.fixtures.servers.running_servers import Database, MakeStack, fresh_database
from tests.fixtures.servers.waiting import until

WAIT_S = 60.0  # tests beside this one have transactions open too


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with connect(Secret(database.dsn), application_name="test") as connection:
        connection.execute("create table public.t (id int primary key)")
        yield connection


@pytest.fixture
def slot(database: Database) -> str:
    return f"cdc_{database.name}"


@pytest.fixture
def writer(database: Database, source: Connection) -> Iterator[psycopg.Connection]:
    """A transaction that has written and stays open."""
    with psycopg.connect(database.dsn, application_name="long writer") as connection:
        connection.execute("insert into public.t values (1)")
        yield connection
        if not connection.closed:
            connection.rollback()


def test_slot_begins_where_its_creation_says(source: Connection, slot: str) -> None:
    before = current_wal(source)

    at = create_slot(source, slot, WAIT_S)

    facts = slot_facts(source, slot)
    assert before <= at == facts.confirmed_flush_lsn
    assert (facts.exists, facts.usable, facts.plugin, facts.active_pid) == (True, True, "pgoutput", None)
    assert (facts.wal_status, facts.two_phase, facts.invalidation) == ("reserved", False, "")
    assert facts.lag_bytes is not None
    assert slot in {found.name for found in list_slots(source)}


def test_slot_that_is_not_there_says_so(source: Connection) -> None:
    facts = slot_facts(source, "nix")

    assert (facts.exists, facts.usable, facts.confirmed_flush_lsn) == (False, False, None)


def test_slot_that_another_session_made_meanwhile_is_tried_again(source: Connection, slot: str) -> None:
    create_slot(source, slot, WAIT_S)

    with pytest.raises(SourceUnreachable, match="already exists"):
        create_slot(source, slot, WAIT_S)


def test_open_writer_times_the_creation_out_by_name_and_leaves_nothing(
    source: Connection, slot: str, writer: psycopg.Connection
) -> None:
    with pytest.raises(SlotBlocked) as caught:
        create_slot(source, slot, 0.5)

    assert f"pid {writer.info.backend_pid} (long writer), idle in transaction" in caught.value.message
    assert caught.value.command.startswith("select pg_terminate_backend(")
    assert "insert" not in caught.value.message
    assert not slot_facts(source, slot).exists
    assert source.execute("show statement_timeout").fetchone() == ("0",)


def test_writer_is_named_to_a_role_that_sees_no_other_sessions(
    source: Connection, database: Database, slot: str, writer: psycopg.Connection
) -> None:
    role = f"r_{database.name}"
    source.execute(f"create role {role} login replication".encode())
    try:
        dsn = Secret(psycopg.conninfo.make_conninfo(database.dsn, user=role))
        with connect(dsn) as poor, pytest.raises(SlotBlocked, match=f"pid {writer.info.backend_pid}"):
            create_slot(poor, slot, 0.5)
    finally:
        source.execute(f"drop role {role}".encode())


def test_creation_goes_on_when_the_writer_ends(
    source: Connection, database: Database, slot: str, writer: psycopg.Connection
) -> None:
    pid, told = writer.info.backend_pid, set[int | None]()

    def end_it(found: Sequence[Blocker]) -> None:
        told.update(blocker.pid for blocker in found)
        writer.close()

    with connect(Secret(database.dsn)) as second:
        create_slot(source, slot, 30, CreationWatch(second, end_it, threading.Event()))

    assert pid in told
    assert slot_facts(source, slot).usable


def test_creation_stops_on_request(
    source: Connection, database: Database, slot: str, writer: psycopg.Connection
) -> None:
    stop = threading.Event()
    stop.set()

    with connect(Secret(database.dsn)) as second, pytest.raises(SourceUnreachable, match="stopped while slot"):
        create_slot(source, slot, 60, CreationWatch(second, lambda _: None, stop))

    assert not slot_facts(source, slot).exists


def test_prepared_transaction_is_named_with_its_end(make_stack: MakeStack) -> None:
    server = make_stack("postgres", postgres={"max_prepared_transactions": "5"}).postgres
    with fresh_database(server) as database, connect(Secret(database.dsn)) as source:
        source.execute("create table public.t (id int primary key)")
        source.execute("begin; insert into public.t values (1); prepare transaction 'gid''x'")

        with pytest.raises(SlotBlocked) as caught:
            create_slot(source, "s", 0.5)

        assert f"of database '{database.name}'" in caught.value.message
        source.execute(caught.value.command.encode())
        assert blockers(source) == []
        create_slot(source, "s", WAIT_S)


def test_slot_in_use_is_not_dropped(source: Connection, database: Database, slot: str) -> None:
    create_slot(source, slot, WAIT_S)
    source.execute("create publication p for table public.t")
    reader = ReplicationSession(Secret(database.dsn), application_name="reader", clock=SystemClock())
    try:
        reader.start(slot, "p", Lsn(0))

        with pytest.raises(SlotHeld) as caught:
            drop_slot(source, slot)

        assert caught.value.facts["pid"] == reader.identity.backend_pid
    finally:
        reader.close()
    until(lambda: slot_facts(source, slot).active_pid is None, "the reader let go of the slot")
    drop_slot(source, slot)
    assert not slot_facts(source, slot).exists


def test_slot_that_is_not_there_is_not_dropped(source: Connection) -> None:
    with pytest.raises(SourceRefused, match="slot 'nix' does not exist"):
        drop_slot(source, "nix")


def test_lost_slot_names_its_reason(make_stack: MakeStack) -> None:
    settings = {"max_slot_wal_keep_size": "32MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    server = make_stack("postgres", postgres=settings).postgres
    with fresh_database(server) as database, connect(Secret(database.dsn)) as source:
        create_slot(source, "s", WAIT_S)
        assert slot_facts(source, "s").safe_wal_size is not None

        for _ in range(6):
            source.execute("select pg_logical_emit_message(false, 'fill', repeat('x', 16 * 1024 * 1024))")
            source.execute("select pg_switch_wal()")
            source.execute("checkpoint")

        facts = slot_facts(source, "s")
        assert (facts.wal_status, facts.invalidation, facts.usable) == ("lost", "wal_removed", False)
        drop_slot(source, "s")


def test_what_the_stream_has_not_received_is_not_acknowledged_and_no_error(
    source: Connection, database: Database, slot: str
) -> None:
    """The log may be ahead of a stream that was opened before another daemon's last commit was read back."""
    source.execute("create publication p for table public.t")
    at = create_slot(source, slot, WAIT_S)
    session = ReplicationSession(Secret(database.dsn), application_name="test", clock=SystemClock())
    try:
        session.start(slot, "p", at)

        session.confirm(Lsn(at + (1 << 30)))

        assert session.confirmed == at
    finally:
        session.close()


@pytest.fixture
def config_file(database: Database, tmp_path: Path) -> Path:
    file = tmp_path / "cdc.toml"
    file.write_text(
        f'name = "shop"\n[source]\ndsn = "{database.dsn}"\nslot = "cdc_{database.name}"\n'
        '[kafka]\nbootstrap = "127.0.0.1:1"\n'
    )
    return file


def test_commands_make_list_and_drop_a_slot(
    source: Connection, slot: str, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["slot", "create", "-c", str(config_file), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["created"]["name"] == slot
    assert made["consistent_lsn"] == made["created"]["confirmed_flush_lsn"]

    assert run(["slot", "list", "-c", str(config_file), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["slots"]
    assert [found["name"] for found in listed if found["ours"]] == [slot]

    assert run(["slot", "list", "-c", str(config_file)]) == 0
    assert slot in capsys.readouterr().out

    assert run(["slot", "drop", "-c", str(config_file)]) == 2
    refused = capsys.readouterr()
    assert "are lost to its reader" in refused.err
    assert slot_facts(source, slot).exists

    assert run(["slot", "drop", "-c", str(config_file), "--yes"]) == 0
    assert not slot_facts(source, slot).exists
    assert run(["slot", "drop", "-c", str(config_file), "--yes"]) == 3


def test_slot_create_refuses_a_slot_that_is_there(
    config_file: Path, source: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["slot", "create", "-c", str(config_file)]) == 0
    capsys.readouterr()

    assert run(["slot", "create", "-c", str(config_file)]) == 3
    assert "already exists" in capsys.readouterr().err


def test_blocked_creation_is_exit_1_with_the_remedy(
    writer: psycopg.Connection, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["slot", "create", "--timeout", "4", "-c", str(config_file)]) == 1

    text = capsys.readouterr().err
    assert "waiting for pid" in text
    assert f"pid {writer.info.backend_pid} (long writer)" in text
    assert "try: select pg_terminate_backend(" in text
