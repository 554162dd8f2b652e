"""Tables that are created while capture runs join it; those that cannot be captured are left out alone, by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cdc.model.left_out import REASONS
from tests.fixtures.capture.snapshot_waits import INITIAL
from tests.fixtures.outbox.outbox_events import OUTBOX, event, made, numbers
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.waiting import until
from tests.integration.test_ddl_policy import metric
from tests.integration.test_table_swap import differs, until_equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

_QUICK: Final[Sections] = {**INITIAL, "capture": {"catalog_check_s": 0.2}}
_MADE: Final = "create table {} (id int primary key, v text not null)"


def first(capture: CaptureSite, sections: Sections = _QUICK, name: str = "first") -> Daemon:
    capture.sql(_MADE.format(name), f"insert into {name} values (1, 'a')")
    daemon = capture.running(sections)
    until_equal(capture, name)
    return daemon


def left_out(daemon: Daemon) -> dict[str, dict[str, str]]:
    return {one["table"]: one for one in daemon.status().get("left_out", [])}


def until_left_out(daemon: Daemon, table: str) -> dict[str, str]:
    until(lambda: table in left_out(daemon), f"{table} is reported")
    return left_out(daemon)[table]


def test_table_created_while_capture_runs_joins_with_the_rows_it_had(capture: CaptureSite) -> None:
    daemon = first(capture)

    capture.transaction(_MADE.format("late"), "insert into late select n, 'x' from generate_series(1, 50) n")
    until_equal(capture, "late")
    capture.sql("update late set v = 'changed' where id < 5", "delete from late where id > 45")
    until_equal(capture, "late", "first")

    assert daemon.status()["left_out"] == []
    assert capture.settled(daemon).faults() == []


def test_table_that_joined_goes_on_after_a_restart_and_is_not_read_again(capture: CaptureSite) -> None:
    daemon = first(capture)
    capture.transaction(_MADE.format("late"), "insert into late select n, 'x' from generate_series(1, 50) n")
    until_equal(capture, "late")
    until(lambda: "public.late" in str(daemon.events("snapshot_complete")), "the snapshot is complete")
    capture.settled(daemon)

    daemon.stop()
    capture.sql("delete from late where id < 10")
    again = capture.running(_QUICK)
    until_equal(capture, "late")
    capture.settled(again)

    assert not again.events("snapshot_begun")
    assert sum(event.op == "r" for event in capture.log().events_of(capture.topic("late"))) == 50


def test_new_table_is_read_whatever_the_policy_for_ddl_is(capture: CaptureSite) -> None:
    daemon = first(capture, {**_QUICK, "ddl": {"policy": "stop"}})

    capture.transaction(_MADE.format("late"), "insert into late values (7, 'x')")

    until_equal(capture, "late")
    until(lambda: daemon.status()["ddl_count"] == 0, "nothing stays open")


def test_hundred_tables_created_at_once_all_join(capture: CaptureSite) -> None:
    daemon = first(capture)
    names = [f"many_{number}" for number in range(100)]

    for name in names:
        capture.transaction(_MADE.format(name), f"insert into {name} values (1, '{name}')")
    until(lambda: len(daemon.events("table_joined")) == 100, "all joined", within_s=150)
    until(lambda: len(daemon.events("snapshot_complete")) >= 101, "all are read", within_s=150)
    capture.settled(daemon)

    assert not [name for name in names if differs(capture, name)]


def test_table_without_a_key_is_left_out_alone_and_joins_when_it_gets_one(capture: CaptureSite) -> None:
    daemon = first(capture)

    capture.sql("create table keyless (id int not null, v text not null)", "insert into keyless values (1, 'a')")
    found = until_left_out(daemon, "public.keyless")
    capture.sql("insert into first values (2, 'b')")
    until_equal(capture, "first")

    assert found["reason"] == "no_key"
    assert daemon.events("table_left_out")[0]["table"] == "public.keyless"
    until(lambda: metric(daemon, "cdc_left_out_tables", reason="no_key") == 1, "it is counted")
    shown = cdc("status", "-c", capture.write_config()).out
    assert "public.keyless" in shown
    assert "alter table" in shown

    capture.sql("alter table keyless add primary key (id)")
    until_equal(capture, "keyless")
    until(lambda: not left_out(daemon), "it is not left out any more")
    until(lambda: {metric(daemon, "cdc_left_out_tables", reason=one) for one in REASONS} == {0}, "none is counted")


def test_start_leaves_out_a_table_without_a_key_and_captures_the_others(capture: CaptureSite) -> None:
    first(capture).stop()
    capture.sql("create table keyless (id int not null, v text not null)", "insert into keyless values (1, 'a')")

    daemon = capture.running(_QUICK)
    capture.sql("insert into first values (2, 'b')")
    until_equal(capture, "first")

    assert left_out(daemon)["public.keyless"]["reason"] == "no_key"
    capture.sql(left_out(daemon)["public.keyless"]["statement"])
    until(lambda: "public.keyless" in str(daemon.events("snapshot_complete")), "it joins by the statement shown")


def test_table_that_is_published_without_its_key_column_is_left_out_alone_until_it_is(capture: CaptureSite) -> None:
    daemon = first(capture)

    capture.transaction(
        "create table hidden (id int primary key, v text not null)",
        f"alter publication {capture.slot} add table only hidden (v)",
        "insert into hidden values (1, 'a')",
    )
    found = until_left_out(daemon, "public.hidden")
    capture.sql("insert into first values (2, 'b')")
    until_equal(capture, "first")

    assert found["reason"] == "not_published"
    capture.sql(*found["statement"].split("; "))
    until_equal(capture, "hidden")
    until(lambda: not left_out(daemon), "it is not left out any more")


def test_very_first_start_leaves_out_a_table_without_a_key(capture: CaptureSite) -> None:
    capture.sql("create table keyless (id int not null)")

    daemon = first(capture)

    assert set(left_out(daemon)) == {"public.keyless"}


def test_captured_table_that_loses_its_key_is_left_out_and_is_exact_when_it_has_it_again(capture: CaptureSite) -> None:
    """Rows deleted while it was left out do not stay in the topic."""
    daemon = first(capture)
    capture.sql("insert into first select n, 'x' from generate_series(2, 30) n", _MADE.format("other"))
    until_equal(capture, "first", "other")

    capture.sql("alter table first drop constraint first_pkey", "insert into first values (31, 'unseen')")
    until(lambda: "public.first" in left_out(daemon), "it is left out")
    capture.sql("insert into other values (1, 'goes on')", "alter table first replica identity full")
    capture.sql("delete from first where id < 10", "alter table first replica identity default")
    until_equal(capture, "other")
    capture.settled(daemon)
    capture.sql("alter table first add primary key (id)")

    until_equal(capture, "first")
    until(lambda: not left_out(daemon), "it is captured again")


def test_captured_table_that_loses_its_key_while_capture_is_down_is_left_out(capture: CaptureSite) -> None:
    daemon = first(capture)
    capture.sql("insert into first select n, 'x' from generate_series(2, 30) n", _MADE.format("other"))
    until_equal(capture, "first", "other")
    daemon.stop()

    capture.sql("alter table first drop constraint first_pkey", "insert into first values (31, 'unseen')")
    daemon = capture.running(_QUICK)
    capture.sql("insert into other values (1, 'goes on')", "alter table first replica identity full")
    capture.sql("delete from first where id < 10", "alter table first replica identity default")
    until_equal(capture, "other")
    assert set(left_out(daemon)) == {"public.first"}
    capture.sql("alter table first add primary key (id)")

    until_equal(capture, "first")


def test_table_whose_key_has_other_columns_is_left_out_and_the_others_go_on(capture: CaptureSite) -> None:
    daemon = first(capture)
    capture.sql(_MADE.format("other"))
    until_equal(capture, "other")

    capture.transaction(
        "alter table first drop constraint first_pkey", "alter table first add primary key (id, v)",
        "insert into first values (2, 'b')",
    )  # fmt: skip
    until(lambda: left_out(daemon).get("public.first", {}).get("reason") == "key_changed", "it is left out")
    daemon.stop()
    daemon = capture.running(_QUICK)
    capture.sql("insert into other values (1, 'goes on')")
    until_equal(capture, "other")
    assert left_out(daemon)["public.first"]["reason"] == "key_changed"

    capture.transaction("alter table first drop constraint first_pkey", "alter table first add primary key (id)")
    until_equal(capture, "first")


@pytest.fixture
def poor(capture: CaptureSite) -> Iterator[str]:
    """A DSN of a role that may replicate and read, and owns nothing of the application."""
    role = f"r_{capture.name}"
    capture.sql(f"create role {role} login replication", f"grant pg_read_all_data to {role}")
    database = psycopg.conninfo.conninfo_to_dict(capture.dsn)["dbname"]
    capture.sql(f'grant create on database "{database}" to {role}')
    yield psycopg.conninfo.make_conninfo(capture.dsn, user=role)
    capture.end()
    capture.sql(
        f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{capture.slot}'",
        f"drop owned by {role} cascade",
        f"drop role {role}",
    )


def _as(capture: CaptureSite, dsn: str) -> Sections:
    return {**_QUICK, "source": {"dsn": dsn, "publication": capture.slot}}


def test_table_of_another_owner_is_left_out_and_joins_when_the_statement_is_run(
    capture: CaptureSite, poor: str
) -> None:
    capture.sql(_MADE.format("first"), f"create publication {capture.slot} for table first")
    sections = _as(capture, poor)
    daemon = capture.running(sections)

    capture.sql(_MADE.format("late"), "insert into late values (1, 'before')")
    found = until_left_out(daemon, "public.late")
    capture.sql("insert into first values (2, 'b')")
    until_equal(capture, "first")
    daemon.stop()
    daemon = capture.running(sections)
    assert left_out(daemon)["public.late"] == found
    assert found["reason"] == "not_published"
    capture.sql(found["statement"], "insert into late values (2, 'after')")

    until_equal(capture, "late")
    until(lambda: not left_out(daemon), "it is not left out any more")


def test_outbox_of_another_owner_is_left_out_and_its_events_flow_when_the_statement_is_run(
    capture: CaptureSite, poor: str
) -> None:
    capture.sql(_MADE.format("first"), f"create publication {capture.slot} for table first", *made())
    daemon = capture.running({**_as(capture, poor), **OUTBOX})
    found = until_left_out(daemon, "outbox.outbox")
    capture.sql("insert into first values (2, 'b')", event(1).insert())
    until_equal(capture, "first")

    capture.sql(found["statement"], event(2).insert())
    until(lambda: sorted(numbers(capture.log(), capture)) == [1, 2], "its events flow", within_s=60)
    until(lambda: not left_out(daemon), "it is not left out any more")


def test_publication_made_by_hand_is_left_as_it_is_and_a_new_table_is_named(capture: CaptureSite) -> None:
    capture.sql(_MADE.format("first"), f"create publication {capture.slot} for table first")
    with capture.connect() as session:
        session.execute(f"select pg_create_logical_replication_slot('{capture.slot}', 'pgoutput')")
    daemon = capture.running({**_QUICK, "source": {"create": False, "publication": capture.slot}})

    capture.sql(_MADE.format("late"))
    found = until_left_out(daemon, "public.late")

    assert "source.create is false" in found["problem"]
    assert capture.query("select tablename::text from pg_publication_tables") == [("first",)]


@pytest.mark.parametrize("what", ["for all tables", "for tables in schema public"])
def test_publication_of_everything_takes_new_tables_without_a_restart_or_a_second_reading(
    capture: CaptureSite, what: str
) -> None:
    capture.sql(f"create publication {capture.slot} {what} with (publish_via_partition_root = true)")
    daemon = first(capture)

    capture.sql(_MADE.format("late"), "insert into late select n, 'x' from generate_series(1, 20) n")
    capture.sql("create table keyless (id int not null, v text)", "insert into keyless values (1, 'a')")
    until_equal(capture, "late")
    until(lambda: "public.keyless" in left_out(daemon), "the one without a key is left out")
    daemon.stop()
    daemon = capture.running(_QUICK)
    capture.sql("insert into late values (100, 'y')")
    until_equal(capture, "late")

    assert set(left_out(daemon)) == {"public.keyless"}


def test_table_that_is_dropped_while_it_is_left_out_is_forgotten(capture: CaptureSite) -> None:
    daemon = first(capture)
    capture.sql("create table keyless (id int not null)")
    until(lambda: "public.keyless" in left_out(daemon), "it is left out")

    capture.sql("drop table keyless")

    until(lambda: not left_out(daemon), "it is forgotten")


def test_what_is_never_captured_is_named_or_ignored_and_does_not_disturb(capture: CaptureSite) -> None:
    daemon = first(capture, {**_QUICK, "source": {"tables": ["public.*", "!public.skip_*"]}})

    with capture.connect() as session:
        session.execute("create temporary table temporary_one (id int primary key)")
        session.execute("create unlogged table unlogged_one (id int primary key, v text)")
        session.execute("create view a_view as select 1 as id")
        session.execute("create materialized view a_matview as select 1 as id")
        session.execute("create table skip_this (id int)")
        session.execute("create table gone (id int primary key); insert into gone values (1); drop table gone")
        until(lambda: "public.unlogged_one" in left_out(daemon), "the unlogged one is named")
    assert {name: one["reason"] for name, one in left_out(daemon).items()} == {"public.unlogged_one": "unlogged"}

    capture.sql("alter table unlogged_one set logged", "insert into unlogged_one values (1, 'x')")
    until_equal(capture, "unlogged_one")


def test_partitioned_table_and_its_new_partitions_join_as_one_table(capture: CaptureSite) -> None:
    first(capture)

    capture.sql(
        "create table parts (id int primary key, v text) partition by range (id)",
        "create table parts_low partition of parts for values from (0) to (100)",
        "insert into parts values (1, 'low')",
    )
    until_equal(capture, "parts")
    capture.sql(
        "create table parts_high partition of parts for values from (100) to (200)",
        "insert into parts values (101, 'high')",
    )

    until_equal(capture, "parts")
    assert capture.topic("parts_low") not in capture.log().data_topics


def test_partitioned_table_of_a_publication_of_leaves_is_left_out_and_joins_when_it_is_one_table(
    capture: CaptureSite,
) -> None:
    capture.sql(
        _MADE.format("first"),
        "create table parts (id int primary key, v text) partition by range (id)",
        "create table parts_low partition of parts for values from (0) to (100)",
        "insert into parts values (1, 'low')",
        f"create publication {capture.slot} for table first, parts",
    )
    daemon = capture.running(_QUICK)
    found = until_left_out(daemon, "public.parts")

    assert found["reason"] == "partitions_apart"
    capture.sql(found["statement"], "insert into parts values (2, 'low')")
    until_equal(capture, "parts")


def test_new_table_without_a_key_that_is_accepted_is_copied_and_captured(capture: CaptureSite) -> None:
    daemon = first(capture, {**_QUICK, "source": {"tables": ["public.*"], "keyless": ["public.log_*"]}})

    capture.sql("create table log_a (id int, v text)", "insert into log_a select n, 'x' from generate_series(1, 9) n")
    until(lambda: "public.log_a" in str(daemon.events("keyless_copied")) or _rows(capture, "log_a") == 9, "copied")
    capture.sql("insert into log_a values (10, 'later')")

    until(lambda: _rows(capture, "log_a") == 10, "every row is there once")
    assert daemon.alive


def _rows(capture: CaptureSite, table: str) -> int:
    return len(capture.log().events_of(capture.topic(table)))


def test_slot_recreate_is_not_blocked_by_a_table_without_a_key(capture: CaptureSite) -> None:
    first(capture).stop()
    capture.sql("create table keyless (id int not null)", f"select pg_drop_replication_slot('{capture.slot}')")

    done: Any = cdc("slot", "recreate", "--resnapshot", "--yes", "-c", capture.write_config(_QUICK))
    assert done.code == 0, done.err
    capture.sql("insert into first values (2, 'b')")
    capture.running(_QUICK)

    until_equal(capture, "first")


def test_new_table_that_the_role_may_not_read_is_captured_and_named_until_it_may(capture: CaptureSite) -> None:
    """A database administrator publishes it and forgets the grant; no other table suffers."""
    role = f"r_{capture.name}"
    capture.sql(_MADE.format("first"), f"create publication {capture.slot} for table first")
    capture.sql(f"create role {role} login replication", f"grant select on first to {role}")
    try:
        dsn = psycopg.conninfo.make_conninfo(capture.dsn, user=role)
        daemon = capture.running({**_QUICK, "source": {"dsn": dsn, "publication": capture.slot}})
        capture.sql(_MADE.format("late"), "insert into late values (1, 'before')")
        capture.sql(f"alter publication {capture.slot} add table late", "insert into late values (2, 'after')")
        until(lambda: left_out(daemon).get("public.late", {}).get("reason") == "not_readable", "it is named")
        capture.sql("insert into first values (2, 'b')")
        until_equal(capture, "first")

        capture.sql(left_out(daemon)["public.late"]["statement"])
        until_equal(capture, "late")
        until(lambda: not left_out(daemon), "it is not named any more")
        assert daemon.stop() == 0
    finally:
        capture.end()
        capture.sql(
            f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{capture.slot}'",
            f"drop owned by {role} cascade",
            f"drop role {role}",
        )


def test_table_without_a_key_that_may_not_be_read_is_left_out_until_it_may(capture: CaptureSite) -> None:
    role = f"r_{capture.name}"
    capture.sql(_MADE.format("first"), "create table events (v text)", "insert into events values ('before')")
    capture.sql(f"create publication {capture.slot} for table first, events")
    capture.sql(f"create role {role} login replication", f"grant select on first to {role}")
    try:
        dsn = psycopg.conninfo.make_conninfo(capture.dsn, user=role)
        source = {"dsn": dsn, "publication": capture.slot, "keyless": ["public.events"]}
        daemon = capture.running({**_QUICK, "source": source})
        assert until_left_out(daemon, "public.events")["reason"] == "not_readable"
        capture.sql("insert into first values (2, 'b')")
        until_equal(capture, "first")

        capture.sql(left_out(daemon)["public.events"]["statement"])
        until(lambda: _rows(capture, "events") == 1, "its row is copied")
        until(lambda: not left_out(daemon), "it is not named any more")
        capture.sql("insert into events values ('after')")
        until(lambda: _rows(capture, "events") == 2, "its changes are captured")
        assert daemon.stop() == 0
    finally:
        capture.end()
        capture.sql(
            f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{capture.slot}'",
            f"drop owned by {role} cascade",
            f"drop role {role}",
        )


def test_only_a_new_table_without_a_topic_is_left_out_until_the_topic_exists(capture: CaptureSite) -> None:
    first(capture).stop()
    by_hand: Sections = {**_QUICK, "kafka": {"create_topics": False}}
    daemon = capture.running(by_hand)

    capture.sql(_MADE.format("late"), "insert into late values (1, 'before')")
    found = until_left_out(daemon, "public.late")
    capture.sql("insert into first values (2, 'b')")
    until_equal(capture, "first")
    assert (found["reason"], "kafka-topics.sh" in found["statement"]) == ("no_topic", True)
    daemon.stop()
    daemon = capture.running(by_hand)
    assert until_left_out(daemon, "public.late")["reason"] == "no_topic"

    create_topic(capture, capture.topic("late"), found["statement"])
    until_equal(capture, "late", "first")
    until(lambda: not left_out(daemon), "it is not left out any more")


def create_topic(capture: CaptureSite, topic: str, statement: str) -> None:
    """As the statement that is shown would."""
    admin = AdminClient({"bootstrap.servers": capture.bootstrap, "log_level": 3})
    settings = dict(re.findall(r"--config '?([a-z.]+)=([^'\s]+)", statement))
    assert settings
    for future in admin.create_topics([NewTopic(topic, 2, 1, config=settings)]).values():
        future.result()
