"""DDL between row changes: no row is lost or wrong, and changes without events are reported (B1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fixtures.servers.waiting import until
from tests.integration.test_capture_schema import schema_faults
from tests.integration.test_ddl_policy import accept

if TYPE_CHECKING:
    from tests.fixtures.capture.topic_log import TopicLog
    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One kind of DDL on tables of its own.

    Attributes:
        made: before capture first starts.
        first, ddl, then: rows, the change, rows.
        rows: ``schema.table`` of the topic -> `after` of its events; None for a delete.
        told: what is found, (``schema.table``, kind).
    """

    made: list[str]
    first: list[str]
    ddl: list[str]
    then: list[str]
    rows: dict[str, list[Row | None]]
    told: set[tuple[str, str]] = field(default_factory=set)


_OLD: Final[Row] = {"id": 1, "n": 1}
CASES: Final[dict[str, Case]] = {
    "column without a default": Case(
        ["create table added (id int primary key, n int)"],
        ["insert into added values (1, 1)"],
        ["alter table added add d text"],
        ["insert into added values (2, 2, 'x')", "update added set n = 3 where id = 1"],
        {"public.added": [_OLD, {"id": 2, "n": 2, "d": "x"}, {"id": 1, "n": 3, "d": None}]},
    ),
    "column with a default": Case(
        ["create table filled (id int primary key, n int)"],
        ["insert into filled values (1, 1)"],
        ["alter table filled add d int default 7"],
        ["insert into filled values (2, 2)", "update filled set n = 3 where id = 1"],
        {"public.filled": [_OLD, {"id": 2, "n": 2, "d": 7}, {"id": 1, "n": 3, "d": 7}]},
        {("public.filled", "column_filled")},
    ),
    "column dropped": Case(
        ["create table dropped (id int primary key, n int, d int)"],
        ["insert into dropped values (1, 1, 1)"],
        ["alter table dropped drop d"],
        ["insert into dropped values (2, 2)", "delete from dropped where id = 1"],
        {"public.dropped": [{"id": 1, "n": 1, "d": 1}, {"id": 2, "n": 2}, None]},
    ),
    "column renamed": Case(
        ["create table named (id int primary key, n int)"],
        ["insert into named values (1, 1)"],
        ["alter table named rename n to m"],
        ["update named set m = 2"],
        {"public.named": [_OLD, {"id": 1, "m": 2}]},
    ),
    "column dropped and made again": Case(
        ["create table remade (id int primary key, n int)"],
        ["insert into remade values (1, 1)"],
        ["alter table remade drop n", "alter table remade add n text"],
        ["insert into remade values (2, 'two')"],
        {"public.remade": [_OLD, {"id": 2, "n": "two"}]},
        {("public.remade", "values_rewritten")},
    ),
    "type changed": Case(
        ["create table typed (id int primary key, n int)"],
        ["insert into typed values (1, 1)"],
        ["alter table typed alter n type text using 'n' || n"],
        ["insert into typed values (2, 'n2')"],
        {"public.typed": [_OLD, {"id": 2, "n": "n2"}]},
        {("public.typed", "type_changed")},
    ),
    "type of the key, keys as before": Case(
        ["create table widened (id int primary key, n int)"],
        ["insert into widened values (1, 1)"],
        ["alter table widened alter id type bigint"],
        ["update widened set n = 2", "delete from widened"],
        {"public.widened": [_OLD, {"id": 1, "n": 2}, None]},
        {("public.widened", "type_changed")},
    ),
    "table renamed": Case(
        ["create table before_it (id int primary key, n int)"],
        ["insert into before_it values (1, 1)"],
        ["alter table before_it rename to after_it"],
        ["insert into after_it values (2, 2)"],
        {"public.before_it": [_OLD], "public.after_it": [{"id": 2, "n": 2}]},
        {("public.after_it", "renamed")},
    ),
    "schema renamed": Case(
        ["create schema moved_a", "create table moved_a.t (id int primary key, n int)"],
        ["insert into moved_a.t values (1, 1)"],
        ["alter schema moved_a rename to moved_b"],
        ["insert into moved_b.t values (2, 2)"],
        {"moved_a.t": [_OLD], "moved_b.t": [{"id": 2, "n": 2}]},
        {("moved_b.t", "renamed")},
    ),
    "dropped and made again": Case(
        ["create table again (id int primary key, n int)"],
        ["insert into again values (1, 1)"],
        ["drop table again", "create table again (id int primary key, m text)"],
        ["insert into again values (2, 'two')"],
        {"public.again": [_OLD, {"id": 2, "m": "two"}]},
        {("public.again", "replaced")},
    ),
    "enum label": Case(
        ["create type mood as enum ('bad')", "create table felt (id int primary key, m mood)"],
        ["insert into felt values (1, 'bad')"],
        ["alter type mood add value 'fine'"],
        ["insert into felt values (2, 'fine')"],
        {"public.felt": [{"id": 1, "m": "bad"}, {"id": 2, "m": "fine"}]},
    ),
    "partition attached": Case(
        [
            "create table wide (id int primary key, n int) partition by range (id)",
            "create table part_low partition of wide for values from (0) to (10)",
            "create table part_high (id int primary key, n int)",
        ],
        ["insert into wide values (1, 1)", "insert into part_high values (11, 11)"],
        ["alter table wide attach partition part_high for values from (10) to (20)"],
        ["insert into wide values (12, 12)"],
        {"public.wide": [_OLD, {"id": 12, "n": 12}]},
        {("public.wide", "partition_attached")},
    ),
    "partition detached": Case(
        [
            "create table lean (id int primary key, n int) partition by range (id)",
            "create table part_off partition of lean for values from (0) to (10)",
        ],
        ["insert into lean values (1, 1)"],
        ["alter table lean detach partition part_off"],
        ["insert into part_off values (2, 2)"],
        {"public.lean": [_OLD]},
        {("public.lean", "partition_left")},
    ),
    "partition made": Case(
        [
            "create table grown (id int primary key, n int) partition by range (id)",
            "create table part_one partition of grown for values from (0) to (10)",
        ],
        ["insert into grown values (1, 1)"],
        ["create table part_two partition of grown for values from (10) to (20)"],
        ["insert into grown values (11, 11)"],
        {"public.grown": [_OLD, {"id": 11, "n": 11}]},
    ),
    "written anew with the same values": Case(
        ["create table rewritten (id int primary key, n int)"],
        ["insert into rewritten values (1, 1)"],
        ["vacuum full rewritten", "cluster rewritten using rewritten_pkey"],
        ["insert into rewritten values (2, 2)"],
        {"public.rewritten": [_OLD, {"id": 2, "n": 2}]},
    ),
}


def made(capture: CaptureSite) -> Sections:
    """The tables of all cases, published with everything that is made later; the settings."""
    capture.sql(*[statement for case in CASES.values() for statement in case.made])
    capture.sql("create publication by_hand for all tables with (publish_via_partition_root = true)")
    return {
        "source": {"tables": ["*.*", "!public.part_*"], "publication": "by_hand"},
        "capture": {"catalog_check_s": 0.2},
    }


def run(capture: CaptureSite, *what: str) -> None:
    """Those parts of every case, one part after the other."""
    for part in what:
        capture.sql(*[statement for case in CASES.values() for statement in getattr(case, part)])


def wanted_rows() -> dict[str, list[Row | None]]:
    return {topic: rows for case in CASES.values() for topic, rows in case.rows.items()}


def rows_of(log: TopicLog) -> dict[str, list[Row | None]]:
    """``schema.table`` of each topic -> `after` of its events."""
    return {
        topic.removeprefix(f"{log.name}."): [event.document["after"] for event in log.events_of(topic)]
        for topic in log.data_topics
    }


def wanted_findings() -> set[tuple[str, str]]:
    return {one for case in CASES.values() for one in case.told}


def findings(daemon: Daemon) -> set[tuple[str, str]]:
    return {(one["table"], one["kind"]) for one in daemon.status()["ddl"]}


@pytest.mark.parametrize("away", ["never", "for the change", "all the time"])
def test_rows_around_every_kind_of_ddl_are_exact_and_the_rest_is_reported(capture: CaptureSite, away: str) -> None:
    """Capture runs through it; or is away for the DDL and what follows; or for everything: a backlog across DDL."""
    sections = made(capture)
    daemon = capture.running(sections)

    if away == "all the time":
        daemon.stop()
        run(capture, "first", "ddl", "then")
    elif away == "for the change":
        run(capture, "first")
        capture.settled(daemon)
        daemon.stop()
        run(capture, "ddl", "then")
    else:
        run(capture, "first")
        capture.settled(daemon)
        run(capture, "ddl", "then")
    daemon = daemon if away == "never" else capture.running(sections)
    log = capture.settled(daemon)
    # A name in doubt is listed until the check after the one that finds its new owner.
    until(lambda: findings(daemon) == wanted_findings(), "everything is found, and nothing else is left")

    assert {topic: rows for topic, rows in rows_of(log).items() if rows} == wanted_rows()
    assert log.faults() == []
    assert schema_faults(log) == []


def test_findings_of_every_kind_stop_capture_together_and_nothing_is_lost(capture: CaptureSite) -> None:
    sections = made(capture)
    capture.running(sections).stop()
    run(capture, "first", "ddl", "then")

    stopping: Sections = {**sections, "ddl": {"policy": "stop"}}
    stop = capture.daemon(stopping).stopped_with()
    found = accept(capture)
    log = capture.settled(capture.running(stopping))

    assert (stop["state"], stop["exit_code"], stop["command"]) == ("MISCONFIGURED", 3, "cdc ddl list")
    assert f"and {len(found) - 3} more" in stop["message"], "three are named"
    assert {(one["table"], one["kind"]) for one in found} == wanted_findings()
    assert {topic: rows for topic, rows in rows_of(log).items() if rows} == wanted_rows()
    assert log.faults() == []
