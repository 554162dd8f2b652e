"""Row changes of every kind and identity, as a reader of the topics sees them (fault table B4, guarantees G1-G3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.capture.topic_log import LogRecord
    from tests.fixtures.servers.daemon import CaptureSite


def test_inserts_updates_and_deletes_are_published_in_order(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text, n numeric)")
    oracle = capture.oracle()
    daemon = capture.running()

    capture.sql(
        "insert into t values (1, 'a', 1.50), (2, null, null)",
        "update t set v = 'it''s' where id = 1",
        "delete from t where id = 2",
        "insert into t values (2, 'again', 0)",
    )
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(), log, {"public.t": ["id"]}) == []
    assert shape(log.data, 1) == [
        ("c", None, {"id": 1, "v": "a", "n": "1.50"}),
        ("u", None, {"id": 1, "v": "it's", "n": "1.50"}),
    ]
    assert [record.op for record in log.data if record.key == b'{"id":2}'] == ["c", "d", "tombstone", "c"]


def test_changed_key_is_a_delete_a_tombstone_and_a_create_that_name_each_other(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    oracle = capture.oracle()
    daemon = capture.running()

    capture.sql("insert into t values (1, 'a')", "update t set id = 2, v = 'b'")
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(), log, {"public.t": ["id"]}) == []
    removed, created = log.events_of(capture.topic("t"))[1:]
    assert (removed.op, removed.key_document, removed.headers) == ("d", {"id": 1}, {"__debezium.newkey": b'{"id":2}'})
    assert (created.op, created.key_document, created.headers) == ("c", {"id": 2}, {"__debezium.oldkey": b'{"id":1}'})
    assert removed.position == created.position


def test_keys_swapped_in_one_transaction_leave_both_rows(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)", "insert into t values (1, 'one'), (2, 'two')")
    oracle = capture.oracle()
    daemon = capture.running()

    capture.transaction(
        "update t set id = -1 where id = 1", "update t set id = 1 where id = 2", "update t set id = 2 where id = -1"
    )
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(), log, {"public.t": ["id"]}) == []
    assert {key: row["v"] for key, row in log.fold(capture.topic("t")).items()} == {
        b'{"id":1}': "two",
        b'{"id":2}': "one",
    }


def test_composite_key_has_all_its_columns_and_moves_when_one_changes(capture: CaptureSite) -> None:
    capture.sql("create table t (v text, b uuid, a text, primary key (a, b))")
    oracle = capture.oracle()
    daemon = capture.running()
    place = "00000000-0000-0000-0000-000000000001"

    capture.sql(
        f"insert into t values ('x', '{place}', 'ü\"\\')",
        "update t set v = 'y'",
        "update t set a = ''",
        "delete from t",
    )
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(), log, {"public.t": ["a", "b"]}) == []
    assert {str(sorted(event.key_document.items())) for event in log.events} == {
        str([("a", 'ü"\\'), ("b", place)]),
        str([("a", ""), ("b", place)]),
    }


def test_replica_identity_full_shows_the_whole_row_before(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text, w text)", "alter table t replica identity full")
    oracle = capture.oracle()
    daemon = capture.running()

    capture.sql(
        "insert into t values (1, 'a', null)",
        "update t set v = 'b'",
        "update t set id = 2",
        "delete from t",
    )
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(), log, {"public.t": ["id"]}) == []
    first, updated, removed, created, deleted = log.events
    assert first.document["before"] is None
    assert updated.document["before"] == {"id": 1, "v": "a", "w": None}
    assert removed.document["before"] == {"id": 1, "v": "b", "w": None}
    assert created.document["before"] is None
    assert deleted.document["before"] == {"id": 2, "v": "b", "w": None}


def test_replica_identity_index_is_the_key(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id int primary key, code text not null, v int)",
        "create unique index t_code on t (code)",
        "alter table t replica identity using index t_code",
    )
    daemon = capture.running()

    capture.sql("insert into t values (1, 'one', 1)", "update t set id = 7, v = 2", "update t set code = 'two'")
    log = capture.settled(daemon)

    assert [(event.op, event.key) for event in log.events] == [
        ("c", b'{"code":"one"}'),
        ("u", b'{"code":"one"}'),
        ("d", b'{"code":"one"}'),
        ("c", b'{"code":"two"}'),
    ]
    assert log.faults() == []


def test_configured_columns_are_the_key(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id int primary key, tenant int not null, code text not null, v int, unique (code, tenant))",
        "alter table t replica identity full",
    )
    daemon = capture.running({"source": {"keys": {"public.t": ["tenant", "code"]}}})

    capture.sql(
        "insert into t values (1, 7, 'a', 0), (2, 7, 'b', 0)",
        "update t set id = id + 10, v = 1",
        "begin; update t set code = 'x' where code = 'a'; update t set code = 'a' where code = 'b';"
        " update t set code = 'b' where code = 'x'; commit",
        "delete from t where code = 'b'",
    )
    log = capture.settled(daemon)

    assert log.fold(capture.topic("t")) == {b'{"tenant":7,"code":"a"}': {"id": 12, "tenant": 7, "code": "a", "v": 1}}
    assert log.faults() == []


def test_configured_columns_that_cannot_be_the_key_are_refused(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, code text not null unique)")

    not_shown = capture.daemon({"source": {"keys": {"public.t": ["code"]}}}).stopped_with()
    misspelt = capture.daemon({"source": {"keys": {"public.tt": ["id"]}}}).stopped_with()

    assert [(stop["state"], stop["exit_code"]) for stop in (not_shown, misspelt)] == [("MISCONFIGURED", 3)] * 2
    assert "updates and deletes show only (id)" in not_shown["message"]
    assert "'public.tt', which is not a captured table" in misspelt["message"]


def test_keyless_table_is_captured_when_asked_and_keeps_every_record(capture: CaptureSite) -> None:
    capture.sql("create table history (n int, v text)", "alter table history replica identity full")
    daemon = capture.running({"source": {"keyless": ["public.history"]}})

    capture.transaction("insert into history values (1, 'a'), (1, 'a')", "update history set v = 'b'")
    capture.sql("delete from history")
    log = capture.settled(daemon)

    events = log.events
    assert [event.op for event in events] == ["c", "c", "u", "u", "d", "d"]
    assert {record.key for record in log.data} == {None}
    assert len(log.data) == len(events), "a record without a key has no tombstone"
    assert [event.document["before"] for event in events[2:4]] == [{"n": 1, "v": "a"}] * 2
    assert [event.source["ordinal"] for event in events] == [1, 2, 3, 4, 1, 2]
    assert len({event.partition for event in events[:4]}) == 1, "a transaction stays together"


def test_partitioned_table_is_one_table_and_a_row_may_change_its_partition(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id int, region text, v text, primary key (id, region)) partition by list (region)",
        "create table t_eu partition of t for values in ('eu')",
        "create table t_us partition of t for values in ('us')",
    )
    daemon = capture.running()

    capture.sql(
        "insert into t values (1, 'eu', 'a'), (2, 'us', 'b')",
        "update t set region = 'us', v = 'moved' where id = 1",
        "create table t_asia partition of t for values in ('asia')",
        "insert into t values (3, 'asia', 'new partition')",
        "delete from t where id = 2",
    )
    log = capture.settled(daemon)

    assert log.data_topics == [capture.topic("t")]
    assert {event.source["table"] for event in log.events} == {"t"}
    assert sorted(row["v"] for row in log.fold(capture.topic("t")).values()) == ["moved", "new partition"]
    assert log.faults() == []


def test_only_tables_of_the_patterns_are_captured(capture: CaptureSite) -> None:
    capture.sql(
        "create schema app",
        "create table app.orders (id int primary key)",
        "create table app.audit_log (id int primary key)",
        "create table public.orders (id int primary key)",
    )
    daemon = capture.running({"source": {"tables": ["app.*", "!app.audit_*"]}})

    capture.transaction(
        "insert into public.orders values (1)",
        "insert into app.audit_log values (1)",
        "insert into app.orders values (1)",
    )
    log = capture.settled(daemon)

    assert log.data_topics == [capture.topic("orders", "app")]
    assert [event.source["ordinal"] for event in log.events] == [1]


def test_table_made_while_running_is_captured_and_without_snapshots_its_former_rows_are_a_finding(
    capture: CaptureSite,
) -> None:
    """A publication names its tables; capture adds a new one, and what it held before is the snapshot's."""
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()
    capture.transaction("create table late (id int primary key)", "insert into late values (1)")
    until(lambda: daemon.events("table_joined"), "it joins")
    capture.sql("insert into late values (2)")
    until(lambda: daemon.status()["ddl"], "what is missing is reported")
    log = capture.settled(daemon)

    assert [event.after["id"] for event in log.events_of(capture.topic("late"))] == [2]
    assert [(one["table"], one["kind"]) for one in daemon.status()["ddl"]] == [("public.late", "joined")]


@pytest.mark.parametrize("numeric", ["string", "number"])
def test_numbers_are_written_as_configured(capture: CaptureSite, numeric: str) -> None:
    capture.sql("create table t (id bigint primary key, amount numeric)")
    int64 = "string" if numeric == "string" else "number"
    daemon = capture.running({"encode": {"numeric": numeric, "int64": int64}})

    capture.sql("insert into t values (9223372036854775807, 12345678901234567890.1234567890)")
    event = capture.settled(daemon).events[0]

    digits = "12345678901234567890.1234567890"
    assert event.value is not None
    quote = '"' if numeric == "string" else ""
    assert f'"amount":{quote}{digits}{quote}' in event.value.decode()
    assert event.key == f'{{"id":{quote}9223372036854775807{quote}}}'.encode()


def shape(records: list[LogRecord], key: int) -> list[tuple[str, Any, Any]]:
    """(op, before, after) of the events of one key."""
    mine = [record for record in records if record.key_document == {"id": key} and record.value is not None]
    return [(record.op, record.document["before"], record.document["after"]) for record in mine]
