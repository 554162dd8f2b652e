"""Every type that PostgreSQL ships, arrays and derived types: the log has the server's own output (B2).

The referee is the server: `to_jsonb(value)`, or the text for those types whose encoding is their text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from cdc.encode.builtin_types import ARRAYS, SCALARS, SEMICOLON_ARRAYS
from tests.fixtures.capture.type_samples import NOT_STORABLE, SAMPLES
from tests.fixtures.capture.type_tables import (
    MAKE_OWN,
    OWN,
    Columns,
    arrays,
    create,
    exact,
    fill,
    said_by_server,
    scalars,
)

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import PostgresServer


def test_builtin_types_are_those_of_the_server(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.dsn) as session:
        rows = session.execute(
            "select t.oid::int8, t.typname::text, coalesce(e.typarray = t.oid, false), t.typelem::int8,"
            " e.typdelim::text"
            " from pg_type t left join pg_type e on e.oid = t.typelem"
            " where t.oid < 10000 and t.typtype in ('b', 'r', 'm') and t.typisdefined"
            " and not exists (select from pg_type r where r.oid in (t.oid, t.typelem) and r.typtype in ('c', 'p'))"
        ).fetchall()
    arrays = {oid: element for oid, _, is_array, element, _ in rows if is_array}

    assert {oid: name for oid, name, is_array, _, _ in rows if not is_array} == SCALARS
    assert {oid: element for oid, element in ARRAYS.items() if element in SCALARS} == arrays
    assert {oid for oid, _, is_array, _, delimiter in rows if is_array and delimiter == ";"} == SEMICOLON_ARRAYS


def test_every_storable_type_has_samples() -> None:
    sampled = {name.partition("(")[0].strip('"') for name in SAMPLES}

    assert sampled | NOT_STORABLE == set(SCALARS.values())


@pytest.mark.parametrize("columns", [scalars(), arrays()], ids=["scalars", "arrays"])
def test_values_are_what_the_server_says(capture: CaptureSite, columns: Columns) -> None:
    assert wrong_values(capture, columns) == []


def test_types_a_database_makes_itself_are_what_the_server_says(capture: CaptureSite) -> None:
    capture.sql(*MAKE_OWN)

    assert wrong_values(capture, OWN) == []


def test_enum_has_the_label_of_the_time_its_row_was_written(capture: CaptureSite) -> None:
    capture.sql("create type mood as enum ('sad')", "create table t (id int primary key, m mood, ms mood[])")
    capture.running().stop()
    capture.sql(
        "insert into t values (1, 'sad', '{sad}')",
        "alter type mood rename value 'sad' to 'blue'",
        "alter type mood add value 'so so' before 'blue'",
        "insert into t values (2, 'so so', '{blue,so so}')",
        "update t set id = 3 where id = 1",
    )

    log = capture.settled(capture.running())

    assert [event.after for event in log.events if event.op == "c"] == [
        {"id": 1, "m": "sad", "ms": ["sad"]},
        {"id": 2, "m": "so so", "ms": ["blue", "so so"]},
        {"id": 3, "m": "blue", "ms": ["blue"]},
    ]


def test_type_made_while_running_is_encoded_like_any_other(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()

    capture.sql(
        "create type mood as enum ('sad')",
        "create domain price as numeric",
        "alter table t add column feeling mood, add column cost price[]",
        "insert into t values (1, 'sad', '{1.50}')",
    )

    assert capture.settled(daemon).events[-1].after == {"id": 1, "feeling": "sad", "cost": ["1.50"]}


def test_type_dropped_before_its_rows_are_read_leaves_their_text(capture: CaptureSite) -> None:
    capture.sql("create type mood as enum ('sad')", "create table t (id int primary key, feeling mood, v int)")
    capture.running().stop()
    capture.sql(
        "insert into t values (1, 'sad', 1)",
        "alter table t drop column feeling",
        "drop type mood",
        "insert into t values (2, 2)",
    )

    log = capture.settled(capture.running())

    assert [event.after for event in log.events] == [{"id": 1, "feeling": "sad", "v": 1}, {"id": 2, "v": 2}]


def wrong_values(capture: CaptureSite, columns: Columns) -> list[str]:
    """Publish a row per sample and name every value that is not what the server says it is."""
    with capture.connect() as session:
        there = create(session, columns)
    daemon = capture.running()
    with capture.connect() as session:
        row_count = fill(session, there)
        expected = said_by_server(session, there)
    events = capture.settled(daemon).events
    wrong = [] if len(events) == row_count else [f"{len(events)} events for {row_count} rows"]
    for event in events:
        assert event.value is not None
        after = exact(event.value)["after"]
        said = expected[after["id"]]
        wrong += [
            f"{name}: published {after[name]!r}, the server says {said[name]!r}"
            for name in there
            if after[name] != said[name]
        ]
    return wrong
