"""Publications of a DBA: column lists, row filters, publish options, generated columns, inheritance (B4)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.running_servers import needs_major

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Sections


def made_by_hand(capture: CaptureSite, what: str) -> Sections:
    """Make a publication; the settings that have capture use it."""
    capture.sql(f"create publication by_hand {what}")
    return {"source": {"publication": "by_hand"}}


def test_column_list_is_what_the_events_have(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, shown text, hidden text)")
    daemon = capture.running(made_by_hand(capture, "for table t (id, shown)"))

    capture.sql("insert into t values (1, 'a', 'secret')", "update t set hidden = 'other'", "update t set shown = 'b'")
    log = capture.settled(daemon)

    assert [event.after for event in log.events] == [
        {"id": 1, "shown": "a"},
        {"id": 1, "shown": "a"},
        {"id": 1, "shown": "b"},
    ]
    assert {tuple(column["name"] for column in schema["columns"]) for schema in log.schemas} == {("id", "shown")}


def test_row_that_enters_or_leaves_the_filter_is_created_or_deleted(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, region text)", "alter table t replica identity full")
    daemon = capture.running(made_by_hand(capture, "for table t where (region = 'eu')"))

    capture.sql(
        "insert into t values (1, 'eu'), (2, 'us')",
        "update t set region = 'us' where id = 1",
        "update t set region = 'eu' where id = 2",
        "delete from t where id = 1",
    )
    log = capture.settled(daemon)

    assert [(event.op, (event.document["after"] or event.document["before"])["id"]) for event in log.events] == [
        ("c", 1),
        ("d", 1),
        ("c", 2),
    ]
    assert list(log.fold(capture.topic("t")).values()) == [{"id": 2, "region": "eu"}]
    assert log.faults() == []


def test_generated_columns_come_when_they_are_published(capture: CaptureSite) -> None:
    needs_major(18, "publications have generated columns")
    capture.sql("create table t (id int primary key, n int, twice int generated always as (n * 2) stored)")
    daemon = capture.running(made_by_hand(capture, "for table t with (publish_generated_columns = stored)"))

    capture.sql("insert into t values (1, 21)", "update t set n = 4")
    log = capture.settled(daemon)

    assert [event.after for event in log.events] == [{"id": 1, "n": 21, "twice": 42}, {"id": 1, "n": 4, "twice": 8}]


def test_children_of_inheritance_are_tables_of_their_own(capture: CaptureSite) -> None:
    capture.sql(
        "create table parent (id int primary key, v text)",
        "create table child (more int, primary key (id)) inherits (parent)",
    )
    daemon = capture.running()

    capture.sql(
        "insert into parent values (1, 'p')", "insert into child values (2, 'c', 3)", "update parent set v = 'x'"
    )
    log = capture.settled(daemon)

    assert list(log.fold(capture.topic("parent")).values()) == [{"id": 1, "v": "x"}]
    assert list(log.fold(capture.topic("child")).values()) == [{"id": 2, "v": "x", "more": 3}]


def test_partitions_can_be_captured_one_by_one(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id int primary key) partition by range (id)",
        "create table t_low partition of t for values from (0) to (10)",
        "create table t_high partition of t for values from (10) to (20)",
    )
    sections = made_by_hand(capture, "for table t_low, t_high with (publish_via_partition_root = false)")
    daemon = capture.running({"source": {**sections["source"], "tables": ["public.t_*"]}})

    capture.sql("insert into t values (1), (11)", "update t set id = 12 where id = 1", "truncate t_high")
    log = capture.settled(daemon)

    assert log.data_topics == [capture.topic("t_high"), capture.topic("t_low")]
    assert log.fold(capture.topic("t_low")) == log.fold(capture.topic("t_high")) == {}


@pytest.mark.parametrize("published", ["insert", "insert, update", "insert, update, delete"])
def test_publication_that_leaves_events_out_is_found_before_it_costs_any(capture: CaptureSite, published: str) -> None:
    capture.sql("create table t (id int primary key)")
    sections = made_by_hand(capture, f"for table t with (publish = '{published}')")

    said = json.loads(cdc("doctor", "--json", "-c", capture.write_config(sections)).out)["findings"]

    found = [one for one in said if one["level"] != "ok" and one["check"].startswith("publication")]
    assert found, said
    assert any("alter publication" in str(one) for one in found)
