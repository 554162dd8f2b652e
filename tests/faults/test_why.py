"""The first cause that `cdc why` names is the fault that the test has injected."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from cdc.clock import SystemClock
from cdc.config.secret import Secret
from cdc.lsn import Lsn
from cdc.replication.stream import ReplicationSession
from tests.faults.test_gap import run_once
from tests.faults.test_source_access import CANARY, as_role, passwords_asked
from tests.faults.test_topics import create, delete, partition_count, produce
from tests.fixtures.faults.secured import free_ports
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.first_cause import first_cause, listening, newest_config, until_healthy, why
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.fixtures.servers.daemon import CaptureSite

TABLES: Final = ("create table t (id int primary key, v text)", "create table other (id int primary key)")


def assert_first(found: dict[str, Any], code: str, part: str = "") -> None:
    """The first cause has this code, is complete, and is not healthy."""
    assert found["code"] == code, found["all"]
    assert part in {"", found["part"]}, found["all"]
    assert found["says"]
    assert CANARY not in found["all"]


@pytest.fixture
def stopped(capture: CaptureSite) -> CaptureSite:
    """A capture that has published a row and has ended."""
    run_once(capture)
    return capture


def test_healthy_capture_has_no_cause(capture: CaptureSite) -> None:
    capture.sql(*TABLES)
    capture.running(listening()).until_position(capture.sql("insert into t values (1)"))

    found = until_healthy(newest_config(capture))

    assert found["causes"] == []
    assert found["says"].startswith("nothing is wrong: capture follows the log")
    assert found["unread"] == []


_CHANGED: Final[dict[str, Sequence[tuple[str, str]]]] = {
    "publication without updates, then without a table, then dropped": (
        ("alter publication {p} set (publish = 'insert')", "publication-unfit"),
        (
            (
                "alter publication {p} set (publish = 'insert, update, delete, truncate');"
                "alter publication {p} drop table t"
            ),
            "publication-changed",
        ),
        ("drop publication {p}", "publication-changed"),
    ),
    "slot advanced, then recreated, then dropped": (
        ("insert into t values (2); select pg_replication_slot_advance('{p}', pg_current_wal_lsn())", "slot-moved"),
        (
            "select pg_drop_replication_slot('{p}'); select pg_create_logical_replication_slot('{p}', 'pgoutput')",
            "slot-moved",
        ),
        ("select pg_drop_replication_slot('{p}')", "slot-lost"),
    ),
}


@pytest.mark.parametrize("faults", _CHANGED)
def test_source_changed_while_capture_is_stopped_is_named_first(stopped: CaptureSite, faults: str) -> None:
    for statements, code in _CHANGED[faults]:
        stopped.sql(*statements.format(p=stopped.slot).split(";"))

        found = first_cause(newest_config(stopped))

        assert_first(found, code, "source")
        assert found["needs_operator"]


def test_topic_that_is_not_as_recorded_is_named_first(stopped: CaptureSite) -> None:
    """More partitions, recreated, deleted, progress unreadable, progress deleted: each in turn."""
    admin = AdminClient({"bootstrap.servers": stopped.bootstrap, "log_level": 3})
    path, topic, progress = newest_config(stopped), stopped.topic("t"), f"{stopped.name}.__progress"

    admin.create_partitions([NewPartitions(topic, 5)])[topic].result()
    until(lambda: partition_count(admin, topic) == 5, "the new partitions are there")
    assert_first(first_cause(path), "topic-changed", "kafka")

    delete(admin, topic)
    assert_first(first_cause(path), "topic-missing", "kafka")

    create(admin, topic, partitions=2, policy="compact")
    assert_first(first_cause(path), "topic-changed", "kafka")

    produce(stopped, progress, stopped.name, b"\x00\x01not ours")
    assert_first(first_cause(path), "progress-damaged", "kafka")

    produce(stopped, topic, "foreign", b"{}")
    delete(admin, progress)
    assert_first(first_cause(path), "progress-damaged", "kafka")


def test_row_that_stopped_capture_is_named_first_until_capture_goes_on(capture: CaptureSite) -> None:
    """The next start would run: only what the process left behind says why it ended."""
    capture.sql(*TABLES)
    daemon = capture.running({"capture": {"row_bytes_max": 4096}})
    capture.sql(f"insert into t values (1, '{CANARY}' || (select string_agg(md5(g::text), '') from "
                "generate_series(1, 3000) g))")  # fmt: skip
    assert daemon.stopped_with()["error"] == "RowRefused"
    found = first_cause(newest_config(capture))
    assert_first(found, "row-refused", "capture")
    assert found["needs_operator"]

    again = capture.running({"capture": {"row_bytes_max": 4096, "oversize": "omit"}})
    again.until_position(capture.wal())
    assert again.stop() == 0
    assert_first(first_cause(newest_config(capture)), "capture-down", "capture")


def test_broken_frames_that_stopped_capture_are_named_first(capture: CaptureSite) -> None:
    capture.sql(*TABLES)
    daemon = capture.running({"capture": {"catalog_check_s": 0.1}}, mutant="garble:poison")
    capture.sql("insert into t values (2, 'poison')")
    daemon.stopped_with()

    assert_first(first_cause(newest_config(capture)), "stream-poisoned", "capture")


def test_capture_that_has_ended_is_named_first(stopped: CaptureSite) -> None:
    found = first_cause(newest_config(stopped))

    assert_first(found, "capture-down", "capture")
    assert found["command"] == "cdc run"


_REFUSED: Final = {
    "wrong password": ("{name}_full", f"wrong-{CANARY}", "source-login"),
    "no replication": ("{name}_plain", CANARY, "source-rights"),
    "not the owner": ("{name}_reader", CANARY, "source-rights"),
    "unknown role": ("not_there", "", "source-login"),
}


@pytest.mark.parametrize("fault", _REFUSED)
def test_missing_right_of_the_role_is_named_first(capture: CaptureSite, roles: None, fault: str) -> None:
    role, password, code = _REFUSED[fault]
    role = role.format(name=capture.name)
    with passwords_asked(capture, f"{capture.name}_full"):
        path = capture.write_config({"source": {"dsn": as_role(capture, role, password)}})

        found = first_cause(path)

    assert_first(found, code, "source")
    assert found["needs_operator"]


@pytest.fixture
def roles(capture: CaptureSite) -> Iterator[None]:
    """A table, and roles that lack something; dropped afterwards."""
    name = capture.name
    capture.sql(
        "create table t (id int primary key)",
        f"create role {name}_full login replication superuser password '{CANARY}'",
        f"create role {name}_plain login password '{CANARY}'",
        f"create role {name}_reader login replication password '{CANARY}'",
        f"alter table t owner to {name}_plain",
        f"grant create on database {capture.dsn.rpartition('/')[2]} to {name}_plain, {name}_reader",
    )
    yield
    capture.end()
    for kind in ("full", "plain", "reader"):
        capture.sql(f"drop owned by {name}_{kind} cascade", f"drop role {name}_{kind}")


@pytest.mark.parametrize(
    ("setting", "address", "code"),
    [
        ("source", "127.0.0.1:{closed}", "source-unreachable"),
        ("source", "no-such-host.invalid:5432", "name-unresolved"),
        ("kafka", "127.0.0.1:{closed}", "broker-unreachable"),
        ("kafka", "no-such-host.invalid:9092", "name-unresolved"),
    ],
)
def test_address_that_leads_nowhere_is_named_first(capture: CaptureSite, setting: str, address: str, code: str) -> None:
    at = address.format(closed=free_ports(1)[0])
    changed = {"dsn": f"postgresql://cdc:{CANARY}@{at}/shop"} if setting == "source" else {"bootstrap": at}

    found = first_cause(capture.write_config({setting: changed}))

    assert_first(found, code, setting)
    assert at in found["all"]


def test_transaction_that_blocks_the_slot_is_named_first_with_its_session(capture: CaptureSite) -> None:
    capture.sql(*TABLES)
    with capture.connect() as session:
        session.execute("begin")
        session.execute("insert into t values (1)")
        daemon = capture.daemon(listening())
        until(lambda: daemon.events("slot_creating"), "it creates the slot")

        found = first_cause(newest_config(capture))

        assert_first(found, "long-transaction", "source")
        assert found["command"] == f"select pg_terminate_backend({session.info.backend_pid});"


def test_transaction_that_delays_a_snapshot_is_named_first(capture: CaptureSite) -> None:
    capture.sql(*TABLES)
    capture.running(listening()).stop()
    with capture.connect() as session:
        session.execute("begin")
        session.execute("insert into t values (1)")
        daemon = capture.daemon(listening({"snapshot": {"mode": "initial"}}))
        until(
            lambda: any("pid" in str(one["waits_for"]) for one in daemon.status().get("snapshots", [])),
            "it names the transaction",
        )

        found = first_cause(newest_config(capture), "snapshot")

        assert_first(found, "long-transaction")
        assert str(session.info.backend_pid) in found["command"]


def test_old_transaction_beside_a_healthy_capture_is_a_risk(capture: CaptureSite) -> None:
    capture.sql(*TABLES)
    capture.running(listening({"source": {"transaction_alarm_s": 0.5}}))
    until_healthy(newest_config(capture))
    with capture.connect() as session:
        session.execute("begin")
        session.execute("insert into t values (1)")

        found = until(lambda: one if (one := why(newest_config(capture)))["causes"] else {}, "it is old enough")

        assert (found["healthy"], found["causes"][0]["code"]) == (True, "long-transaction")
        assert found["causes"][0]["level"] == "risk"


def test_slot_that_another_program_reads_is_named_first(stopped: CaptureSite) -> None:
    with stolen(stopped):
        found = first_cause(newest_config(stopped))

        assert_first(found, "slot-held", "source")
        assert "thief" in found["says"]


@contextmanager
def stolen(site: CaptureSite) -> Iterator[None]:
    """Another program that reads the slot."""
    reader = ReplicationSession(Secret(site.dsn), application_name="thief", clock=SystemClock())
    try:
        reader.start(site.slot, site.slot, Lsn(0))
        yield
    finally:
        reader.close()


def test_start_that_waits_for_a_lock_is_named_first(stopped: CaptureSite) -> None:
    with locked(stopped) as pid:
        daemon = stopped.daemon(listening())
        until(lambda: daemon.events("http_listening") and waiting_for_locks(stopped), "it waits for the lock")

        found = first_cause(newest_config(stopped))

        assert_first(found, "table-locked", "source")
        assert str(pid) in found["command"]


def test_snapshot_that_a_setting_limits_or_a_lock_stops_is_named_first(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    capture.sql("insert into t select g, repeat('x', 500) from generate_series(1, 50000) g")
    slow = {"mode": "initial", "rows_per_s_max": 10, "chunk_bytes": 8192}
    daemon = capture.daemon(listening({"snapshot": slow}))
    until(lambda: "rows_per_s_max" in str(daemon.status().get("snapshots")), "the limit is reached")
    assert_first(first_cause(newest_config(capture)), "snapshot-throttled", "snapshot public.t")

    with locked(capture) as pid:
        found = first_cause(newest_config(capture), "snapshot")
    assert_first(found, "table-locked", "snapshot public.t")
    assert str(pid) in found["command"]

    assert cdc("snapshot", "pause", "public.t", "-c", newest_config(capture)).code == 0
    assert_first(first_cause(newest_config(capture)), "snapshot-paused", "snapshot public.t")


@contextmanager
def locked(site: CaptureSite) -> Iterator[int]:
    """Another session locks `t`; yields its pid."""
    with site.connect() as session:
        session.execute("begin")
        session.execute("lock table t in access exclusive mode")
        yield session.info.backend_pid


def waiting_for_locks(site: CaptureSite) -> list[tuple[Any, ...]]:
    """Sessions of capture that wait for a lock."""
    return site.query(
        "select pid from pg_stat_activity where wait_event_type = 'Lock' and application_name like 'cdc%'"
    )


def test_port_that_another_program_uses_is_named_first(stopped: CaptureSite) -> None:
    sections = listening()
    host, _, port = sections["http"]["listen"].rpartition(":")
    with socket.create_server((host, int(port))):
        found = first_cause(stopped.write_config(sections))

    assert_first(found, "port-taken", "capture")


def test_frozen_process_of_capture_is_named_first(capture: CaptureSite) -> None:
    capture.sql(*TABLES)
    daemon = capture.running(listening())
    daemon.freeze()
    try:
        found = first_cause(newest_config(capture))
    finally:
        daemon.thaw()

    assert_first(found, "capture-frozen", "capture")
