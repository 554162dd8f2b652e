"""DDL in the middle of the stream: each row is read with its own schema, which precedes it in the log (B1, G6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.capture.topic_log import TopicLog
    from tests.fixtures.servers.daemon import CaptureSite, Daemon


def test_every_table_has_its_schema_record_at_the_start(capture: CaptureSite) -> None:
    capture.sql(
        "create table a (id int primary key, v varchar(10), t timestamptz[])",
        "create table b (x text, y bigint, primary key (y, x))",
        "alter table b replica identity full",
    )
    daemon = capture.running()
    log = capture.settled(daemon)

    records = {record["table"]: record for record in log.schemas}
    assert set(records) == {"public.a", "public.b"}
    assert [(c["name"], c["type"], c["key"]) for c in records["public.a"]["columns"]] == [
        ("id", "int4", True),
        ("v", "varchar", False),
        ("t", "timestamptz[]", False),
    ]
    assert records["public.a"]["columns"][1]["type_modifier"] == 14
    assert records["public.b"]["replica_identity"] == "f"
    assert set(records["public.b"]["key"]) == {"x", "y"}
    assert records["public.b"]["topic"] == capture.topic("b")


def test_rows_name_the_schema_of_their_time_through_every_kind_of_ddl(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, a int, b text)")
    daemon = capture.running()

    capture.sql(*ddl_history())
    log = capture.settled(daemon)

    assert [event.after for event in log.events_of(capture.topic("t"))] == rows_of_history()
    assert schema_faults(log) == []


def test_backlog_across_ddl_is_read_with_the_schemas_of_its_time(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, a int, b text)")
    capture.running().stop()

    capture.sql(*ddl_history())
    log = capture.settled(capture.running())

    assert [event.after for event in log.events_of(capture.topic("t"))] == rows_of_history()
    assert schema_faults(log) == []


def test_schema_changed_inside_a_transaction_applies_from_there_on(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, a int)")
    daemon = capture.running()

    capture.transaction(
        "insert into t values (1, 1)",
        "alter table t add column b text default 'new'",
        "insert into t values (2, 2)",
        "alter table t rename column a to c",
        "insert into t values (3, 3)",
    )
    log = capture.settled(daemon)

    assert [event.after for event in log.events] == [
        {"id": 1, "a": 1},
        {"id": 2, "a": 2, "b": "new"},
        {"id": 3, "c": 3, "b": "new"},
    ]
    assert schema_faults(log) == []


def test_rolled_back_ddl_leaves_the_schema_as_it_was(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, a int)")
    daemon = capture.running()

    capture.sql(
        "insert into t values (1, 1)",
        "begin; alter table t add column b int; insert into t values (9, 9, 9); rollback",
        "insert into t values (2, 2)",
    )
    log = capture.settled(daemon)

    assert [event.after for event in log.events] == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    assert len({event.source["schema_id"] for event in log.events}) == 1


def test_schema_that_returns_to_an_earlier_form_has_its_earlier_id(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, a int)")
    daemon = capture.running()

    capture.sql(
        "insert into t values (1, 1)",
        "alter table t rename a to b",
        "insert into t values (2, 2)",
        "alter table t rename b to a",
        "insert into t values (3, 3)",
    )
    log = capture.settled(daemon)

    first, second, third = (event.source["schema_id"] for event in log.events)
    assert first == third != second
    assert schema_faults(log) == []


def test_dropped_columns_are_left_out_and_generated_ones_before_postgresql_18(
    capture: CaptureSite,
) -> None:
    capture.sql(
        "create table t (id int primary key, gone int, a int, twice int generated always as (a * 2) stored)",
        "alter table t drop column gone",
    )
    daemon = capture.running()

    capture.sql("insert into t (id, a) values (1, 21)")
    log = capture.settled(daemon)

    [(version,)] = capture.query("select current_setting('server_version_num')::int4")
    generated = {"twice": 42} if version >= 180000 else {}
    assert log.events[0].after == {"id": 1, "a": 21} | generated
    assert len(log.schemas) == 1, "the catalog and the stream describe the table alike"


def left_out_for(daemon: Daemon, reason: str) -> None:
    """Wait until t is left out, and see that capture goes on."""
    until(
        lambda: [(one["table"], one["reason"]) for one in daemon.status()["left_out"]] == [("public.t", reason)],
        f"t is left out: {reason}",
    )
    assert daemon.alive


def test_table_without_its_primary_key_is_left_out_before_a_row_without_one(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, a int)")
    daemon = capture.running()

    capture.sql("insert into t values (1, 1)", "alter table t drop constraint t_pkey", "insert into t values (2, 2)")
    left_out_for(daemon, "no_key")

    assert [event.after["id"] for event in capture.settled(daemon).events] == [1]


def test_table_with_another_key_is_left_out_before_its_first_row(capture: CaptureSite) -> None:
    """The old keys would stay in the topic for ever."""
    capture.sql("create table t (id int primary key, code text not null)", "create unique index t_code on t (code)")
    daemon = capture.running()

    capture.sql(
        "insert into t values (1, 'one')",
        "alter table t replica identity using index t_code",
        "insert into t values (2, 'two')",
    )
    left_out_for(daemon, "key_changed")

    assert [event.key for event in capture.settled(daemon).events] == [b'{"id":1}']


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("int", "1", "text"),
        ("text", "'a'", "char(3)"),
        ("numeric(4, 1)", "1.5", "numeric(4, 2)"),
        ("timestamp", "'2020-01-01'", "timestamptz"),
    ],
)
def test_table_whose_key_would_be_written_otherwise_is_left_out_before_its_first_row(
    capture: CaptureSite, before: str, value: str, after: str, running: bool
) -> None:
    """The rows of before would keep their former keys in the topic, beside the same rows under new ones."""
    capture.sql(f"create table t (id {before} primary key, n int)", "create table other (id int primary key)")
    daemon = capture.running()
    capture.sql(f"insert into t values ({value}, 1)")
    capture.settled(daemon)
    if not running:
        daemon.stop()

    capture.sql(f"alter table t alter id type {after}", "update t set n = 2")
    daemon = daemon if running else capture.running()
    left_out_for(daemon, "key_changed")

    assert "'id'" in daemon.status()["left_out"][0]["problem"]
    assert len(capture.settled(daemon).events) == 1


def ddl_history() -> list[str]:
    """A row after each change; see `rows_of_history`."""
    return [
        "insert into t values (1, 10, 'x')",
        "alter table t add column c numeric default 1.5",
        "insert into t values (2, 20, 'y')",
        "alter table t drop column b",
        "insert into t values (3, 30)",
        "alter table t rename column a to renamed",
        "insert into t values (4, 40)",
        "alter table t alter column renamed type text using renamed::text",
        "insert into t values (5, 'fifty')",
        "alter table t add column b int[]",
        "insert into t values (6, 'sixty', 6, '{6}')",
        "alter table t alter column id type bigint",
        "insert into t values (7, 'seventy', 7, '{7}')",
        "update t set renamed = 'all' where id = 1",
    ]


def rows_of_history() -> list[dict[str, Any]]:
    """`after` of each row, in order."""
    return [
        {"id": 1, "a": 10, "b": "x"},
        {"id": 2, "a": 20, "b": "y", "c": "1.5"},
        {"id": 3, "a": 30, "c": "1.5"},
        {"id": 4, "renamed": 40, "c": "1.5"},
        {"id": 5, "renamed": "fifty", "c": "1.5"},
        {"id": 6, "renamed": "sixty", "c": "6", "b": [6]},
        {"id": 7, "renamed": "seventy", "c": "7", "b": [7]},
        {"id": 1, "renamed": "all", "c": "1.5", "b": None},
    ]


def schema_faults(log: TopicLog) -> list[str]:
    """Rows whose schema is not in the log, does not describe them, or came in a later Kafka transaction."""
    faults = []
    described = {record["schema_id"]: record for record in log.schemas}
    committed = {
        record.document["schema_id"]: transaction_of(log, record.topic, record.partition, record.offset)
        for record in reversed(log.topic(f"{log.name}.__schema"))
    }
    for event in log.events:
        schema = described.get(event.source["schema_id"])
        if schema is None:
            faults.append(f"{event.position}: schema {event.source['schema_id']} is not in the log")
            continue
        names = {column["name"] for column in schema["columns"]}
        after = event.document["after"]
        if after is not None and set(after) != names:
            faults.append(f"{event.position}: {sorted(after)} is described as {sorted(names)}")
        if committed[schema["schema_id"]] > transaction_of(log, event.topic, event.partition, event.offset):
            faults.append(f"{event.position}: its schema came later")
    return faults


def transaction_of(log: TopicLog, topic: str, partition: int, offset: int) -> int:
    """Number of the Kafka transaction, counted by cuts, that a record came with."""
    name = f"{topic}-{partition}"
    for number, cut in enumerate(log.cuts):
        if name in cut["changed"] and cut["changed"][name][0] > offset:
            return number
    raise AssertionError(f"no cut covers {name} offset {offset}")
