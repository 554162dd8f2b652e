"""A source that refuses access: a named stop if an operator must act, waiting if time may help (F4)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg import sql

from tests.fixtures.faults.secured import free_ports
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack

CANARY: Final = "canary-51c4-password"


@pytest.fixture
def site(capture: CaptureSite) -> CaptureSite:
    """A capture with a table and three roles of its own; see `let_in`."""
    name = capture.name
    capture.sql(
        "create table t (id int primary key)",
        f"create role {name}_full login replication superuser password '{CANARY}'",
        f"create role {name}_plain login password '{CANARY}'",
        f"create role {name}_reader login replication password '{CANARY}'",
    )
    return capture


@pytest.fixture(autouse=True)
def without_roles(request: pytest.FixtureRequest, capture: CaptureSite) -> Iterator[None]:
    """Drops the roles afterwards."""
    yield
    capture.end()
    for role in [f"{capture.name}_{kind}" for kind in ("full", "plain", "reader")]:
        if capture.query("select 1 from pg_roles where rolname = %s", role):
            capture.sql(f"drop owned by {role} cascade", f"drop role {role}")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{closed}", "no-such-host.invalid:5432"], ids=["closed port", "unknown host"]
)
def test_absent_server_is_waited_for_and_named(site: CaptureSite, host: str) -> None:
    address = host.format(closed=free_ports(1)[0])
    daemon = site.daemon({"source": {"dsn": f"postgresql://cdc:{CANARY}@{address}/shop"}})

    waiting = daemon.until_state("WAITING")

    assert waiting["reason"] == "source"
    assert address.partition(":")[0] in waiting["error"]["message"]
    assert waiting["error"]["hint"]
    assert daemon.stop() == 0
    assert CANARY not in daemon.log_text()


def test_server_that_comes_later_is_captured_from(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    late = make_stack("postgres").postgres
    with capture_site(topic_prefix, late.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql("create table t (id int primary key)")
        late.stop()
        daemon = site.daemon()
        daemon.until_state("WAITING")

        late.start()

        daemon.until_running()
        until(lambda: daemon.events("capture_recovered"), "the end of the wait is logged")


@pytest.mark.parametrize("password", [f"wrong-{CANARY}", ""], ids=["wrong", "missing"])
def test_wrong_password_is_a_named_stop(site: CaptureSite, password: str) -> None:
    role = f"{site.name}_full"
    with passwords_asked(site, role):
        daemon = site.daemon({"source": {"dsn": as_role(site, role, password)}})

        assert_refused(daemon, "password")
        assert CANARY not in daemon.log_text()


def test_password_of_the_environment_is_taken(site: CaptureSite) -> None:
    role = f"{site.name}_full"
    with passwords_asked(site, role):
        dsn = {"source": {"dsn": as_role(site, role, "")}}
        daemon = site.daemon(dsn, environ={"TAILRACE_SOURCE_PASSWORD": CANARY}).until_running()

        assert daemon.stop() == 0
        assert CANARY not in daemon.log_text()


def test_password_that_is_rotated_while_capture_runs_needs_no_restart(site: CaptureSite) -> None:
    role, file = f"{site.name}_full", site.folder / "password"
    file.write_text(f"{CANARY}\n")
    with passwords_asked(site, role):
        daemon = site.running({"source": {"dsn": as_role(site, role, ""), "password_command": ["cat", str(file)]}})
        site.sql("insert into t values (1)", f"alter role {role} password 'new-{CANARY}'")

        site.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", role)
        until(lambda: "password" in str(daemon.status().get("error")), "the old password is rejected, and tried again")
        file.write_text(f"new-{CANARY}\n")
        daemon.until_running()
        site.sql("insert into t values (2)")

        assert len(site.settled(daemon).events) == 2
        assert daemon.stop() == 0
        assert CANARY not in daemon.log_text()


def test_role_that_pg_hba_keeps_out_is_a_named_stop(site: CaptureSite) -> None:
    role = f"{site.name}_full"
    with passwords_asked(site, role, method="reject"):
        assert_refused(site.daemon({"source": {"dsn": as_role(site, role, CANARY)}}), "pg_hba")


def test_unknown_role_is_a_named_stop(site: CaptureSite) -> None:
    assert_refused(site.daemon({"source": {"dsn": as_role(site, "nobody_here", "")}}), "nobody_here")


def test_unknown_database_is_a_named_stop(site: CaptureSite) -> None:
    dsn = site.dsn.rpartition("/")[0] + "/not_there"

    assert_refused(site.daemon({"source": {"dsn": dsn}}), "not_there")


def test_role_without_replication_is_a_named_stop(site: CaptureSite) -> None:
    role = f"{site.name}_plain"
    site.sql(f"grant select on t to {role}", f"alter table t owner to {role}")
    site.sql(f"grant create on database {site.dsn.rpartition('/')[2]} to {role}")

    assert_refused(site.daemon({"source": {"dsn": as_role(site, role, CANARY)}}), "replication", "doctor --sql")


def test_role_that_does_not_own_the_table_is_a_named_stop(site: CaptureSite) -> None:
    role = f"{site.name}_reader"

    assert_refused(
        site.daemon({"source": {"dsn": as_role(site, role, CANARY)}}),
        "the table is owned by",
        "cdc doctor --sql",
    )


def test_hand_made_publication_and_slot_need_no_other_right(site: CaptureSite) -> None:
    role = f"{site.name}_reader"
    site.sql(
        f"create publication {site.slot} for table t with (publish_via_partition_root = true)",
        f"select pg_create_logical_replication_slot('{site.slot}', 'pgoutput')",
    )
    daemon = site.running({"source": {"dsn": as_role(site, role, CANARY), "create": False}})

    site.sql("insert into t values (1)")

    assert len(site.settled(daemon).events) == 1
    assert daemon.stop() == 0


@pytest.mark.parametrize("made", ["nothing", "publication"])
def test_missing_hand_made_object_is_named_with_its_statement(site: CaptureSite, made: str) -> None:
    if made == "publication":
        site.sql(f"create publication {site.slot} for table t with (publish_via_partition_root = true)")

    stop = assert_refused(site.daemon({"source": {"create": False}}), site.slot)

    assert "create" in stop["command"]


def test_slot_of_another_plugin_is_a_named_stop(site: CaptureSite) -> None:
    site.sql(f"select pg_create_logical_replication_slot('{site.slot}', 'test_decoding')")

    assert_refused(site.daemon(), "test_decoding")


def test_publication_that_leaves_out_deletes_is_a_named_stop_with_the_statement(site: CaptureSite) -> None:
    site.sql(f"create publication {site.slot} for table t with (publish = 'insert, update')")

    stop = assert_refused(site.daemon(), "delete")

    assert stop["command"].startswith("alter publication")


@pytest.mark.parametrize(
    ("definition", "named"),
    [
        ("create table bad (v int)", "primary key"),
        ("create table bad (id int primary key deferrable)", "deferrable"),
        ("create table bad (id int primary key); alter table bad replica identity nothing", "NOTHING"),
    ],
    ids=["no key", "deferrable key", "identity nothing"],
)
def test_table_without_a_usable_key_is_left_out_and_named_with_what_to_do(
    site: CaptureSite, definition: str, named: str
) -> None:
    site.transaction(definition)

    daemon = site.running()

    (found,) = daemon.status()["left_out"]
    assert found["table"] == "public.bad"
    assert named in found["problem"]
    assert found["statement"]


def test_only_table_without_a_usable_key_is_a_named_stop(site: CaptureSite) -> None:
    site.sql("create table bad (v int)")

    stop = assert_refused(site.daemon({"source": {"tables": ["public.bad"]}}), "primary key", "alter table")

    assert "public.bad" in stop["message"]
    assert site.query("select count(*) from pg_replication_slots where slot_name = %s", site.slot) == [(0,)]


def test_no_table_at_all_is_a_named_stop(site: CaptureSite) -> None:
    assert_refused(site.daemon({"source": {"tables": ["nothing.*"]}}), "source.tables")


def test_open_transaction_that_blocks_the_slot_is_named(site: CaptureSite) -> None:
    with site.connect() as session:
        session.execute("begin")
        session.execute("insert into t values (1)")
        pid = session.info.backend_pid
        daemon = site.daemon({"source": {"slot_create_timeout_s": 1.0}})
        waiting = daemon.until_state("WAITING")
        assert str(pid) in waiting["error"]["message"] + waiting["error"]["command"]
        session.execute("commit")
    daemon.until_running()

    assert daemon.stop() == 0


def test_prepared_transaction_that_blocks_the_slot_is_named_and_in_the_log_afterwards(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    source = make_stack("postgres", postgres={"max_prepared_transactions": "5"}).postgres
    with capture_site(topic_prefix, source.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql("create table t (id int primary key)", "insert into t values (1)")
        with site.connect() as session:
            session.execute("begin; insert into t values (2); prepare transaction 'in the way'")
        short: Sections = {"source": {"slot_create_timeout_s": 1.0}, "snapshot": {"mode": "initial"}}
        daemon = site.daemon(short)

        waiting = daemon.until_state("WAITING")
        assert "prepared transaction 'in the way'" in waiting["error"]["message"]
        assert waiting["error"]["command"] == "rollback prepared 'in the way';"
        # Every attempt makes one for as long as it waits; between them there is none, and so after the end.
        assert daemon.stop() == 0
        assert site.query("select count(*) from pg_replication_slots") == [(0,)], "nothing half-made is left"

        daemon = site.daemon(short)
        daemon.until_state("WAITING")
        site.sql("commit prepared 'in the way'")
        daemon.until_running()
        site.sql("insert into t values (3)")
        until(lambda: {one["state"] for one in daemon.status()["snapshots"]} == {"complete"}, "the table is read")
        rows = site.settled(daemon).fold(site.topic("t")).values()
        assert sorted(row["id"] for row in rows) == [1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"wal_level": "replica"}, "wal_level"), ({"max_replication_slots": "0"}, "max_replication_slots")],
    ids=["wal_level", "no slots"],
)
def test_server_setting_that_forbids_capture_is_named(
    make_stack: MakeStack,
    kafka: KafkaServer,
    topic_prefix: str,
    tmp_path: Path,
    settings: dict[str, str],
    named: str,
) -> None:
    source = make_stack("postgres", postgres=settings).postgres
    with capture_site(topic_prefix, source.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql("create table t (id int primary key)")

        assert_refused(site.daemon(), named)


def test_tls_demanded_of_a_server_without_it_is_a_named_stop(site: CaptureSite) -> None:
    if site.query("show ssl") == [("on",)]:
        pytest.skip("this server has TLS")
    daemon = site.daemon({"source": {"dsn": f"{site.dsn}?sslmode=require"}})

    assert_refused(daemon, "sslmode")


def as_role(site: CaptureSite, role: str, password: str) -> str:
    """The DSN of another role."""
    secret = f":{password}" if password else ""
    return f"postgresql://{role}{secret}@{site.dsn.rpartition('@')[2]}"


def assert_refused(daemon: Daemon, *named: str) -> dict[str, Any]:
    """It stops for an operator and says what to look at."""
    stop = daemon.stopped_with()
    assert stop["state"] == "MISCONFIGURED"
    assert stop["exit_code"] == 3
    for word in named:
        assert word in " ".join([stop["message"], stop.get("hint", ""), stop.get("command", "")])
    return stop


@contextmanager
def passwords_asked(site: CaptureSite, role: str, *, method: str = "scram-sha-256") -> Iterator[None]:
    """Have the server ask this role for a password, which it asks nobody else for."""
    with site.connect() as session:
        path, text = session.execute(
            "select setting, pg_read_file(setting) from pg_settings where name = 'hba_file'"
        ).fetchall()[0]

        def install(content: str) -> None:
            # As csv with a quote and a delimiter that do not occur, COPY writes lines as they are, empty ones apart.
            lines = sql.SQL(
                "copy (select unnest({}::text[])) to {} with (format csv, quote E'\\x01', delimiter E'\\x02')"
            )
            session.execute(
                lines.format(sql.Literal([line for line in content.splitlines() if line]), sql.Literal(path))
            )
            session.execute("select pg_reload_conf()")

        # Tests side by side share the file.
        session.execute("select pg_advisory_lock(hashtext('hba'))")
        install(f"host all {role} all {method}\n{text}")
        try:
            until(lambda: kept_out(as_role(site, role, "")), "the server has read the file")
            yield
        finally:
            install(text)


def kept_out(dsn: str) -> bool:
    """Whether nobody gets in with this DSN."""
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return True
    return False
