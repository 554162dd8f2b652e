"""Hostile names, such as SQL, JSON, TOML, format strings and topic names, are taken literally (F2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from psycopg import sql

from cdc.model.topic_names import data_topic

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite

NAMES: Final = (
    'quo"te',
    "apo'strophe",
    "do.t",
    "new\nline",
    "tab\tstop",
    "per%cent %s %(x)s %b %%",
    "back\\slash \\n",
    "bra{ce} {0} ${x} [list] $1",
    "UPPER and lower",
    " leading and trailing ",
    "semi;colon -- comment /* */",
    "star*question?!",
    "ünïcödé ☃ 🐘",
    "ü" * 31 + "x",  # 63 bytes, the most PostgreSQL keeps
    "x" * 63,
    "select",
    "\x01\x7f",
)

ALL_IN_ONE: Final = "q\"u'o. \\n\n\t%s %% {0} ${x} [a] ;--/* */ *?! SELECT ü☃\x01"


def test_hostile_names_of_tables_and_columns_are_taken_literally(capture: CaptureSite) -> None:
    for name in NAMES:
        create(capture, "public", name)
    daemon = capture.running()

    for number, name in enumerate(NAMES):
        insert(capture, "public", name, number)
    log = capture.settled(daemon)

    found = {event.source["table"]: event for event in log.events}
    assert sorted(found) == sorted(NAMES)
    for number, name in enumerate(NAMES):
        assert found[name].after == {name: number, "v": name}
        assert found[name].key_document == {name: number}
        assert found[name].topic == data_topic(capture.name, "public", name)
    assert len({event.topic for event in log.events}) == len(NAMES), "no two tables share a topic"
    assert {record["table"] for record in log.schemas} == {f"public.{name}" for name in NAMES}


def test_hostile_names_of_schemas_are_taken_literally(capture: CaptureSite) -> None:
    # PostgreSQL keeps pg_ for itself; every other name is legal.
    for name in NAMES:
        capture.sql(sql.SQL("create schema {}").format(sql.Identifier(name)).as_string(None))
        create(capture, name, "t")
    daemon = capture.running({"source": {"tables": ["*.*"]}})

    for number, name in enumerate(NAMES):
        insert(capture, name, "t", number)
    log = capture.settled(daemon)

    assert {event.source["schema"]: event.topic for event in log.events} == {
        name: data_topic(capture.name, name, "t") for name in NAMES
    }


@pytest.mark.parametrize("name", [ALL_IN_ONE, "ü" * 31 + "x"], ids=["every character", "63 bytes"])
def test_hostile_name_of_a_publication_is_taken_literally(capture: CaptureSite, name: str) -> None:
    create(capture, "public", "t")
    daemon = capture.running({"source": {"publication": name}})

    insert(capture, "public", "t", 1)

    assert len(capture.settled(daemon).events) == 1
    assert capture.query("select 1 from pg_publication where pubname = %s", name) == [(1,)]


def test_illegal_slot_name_is_an_error_that_names_it(capture: CaptureSite) -> None:
    create(capture, "public", "t")

    stop = capture.daemon({"source": {"slot": 'Bad"Name'}}).stopped_with()

    assert stop["exit_code"] == 2
    assert "source.slot" in stop["message"]
    assert 'Bad"Name' in stop["message"]


def test_names_that_differ_only_in_case_or_escapes_have_topics_of_their_own(capture: CaptureSite) -> None:
    names = ("t", "T", "t-54", "t_54", "t.54", "-54")
    for name in names:
        create(capture, "public", name)
    daemon = capture.running()

    for number, name in enumerate(names):
        insert(capture, "public", name, number)
    log = capture.settled(daemon)

    assert {event.source["table"] for event in log.events} == set(names)
    assert len({event.topic for event in log.events}) == len(names)


def create(capture: CaptureSite, namespace: str, table: str) -> None:
    """A table whose key column has the table's own name."""
    with capture.connect() as session:
        session.execute(
            sql.SQL("create table {} ({} int primary key, v text)").format(
                sql.Identifier(namespace, table), sql.Identifier(table)
            )
        )


def insert(capture: CaptureSite, namespace: str, table: str, number: int) -> None:
    """One row, with the table's name as its value too."""
    with capture.connect() as session:
        session.execute(
            sql.SQL("insert into {} values ({}, {})").format(sql.Identifier(namespace, table), number, table)
        )
