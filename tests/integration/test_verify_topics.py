"""`cdc verify --topics` on real servers: every format, hostile names, inheritance, and bounded waits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from cdc.clock import SystemClock
from cdc.verify.key_states import Sample
from cdc.verify.key_verdict import DifferenceKind
from cdc.verify.topic_comparison import verify_source
from tests.fixtures.capture.type_forms import ALL, URL, columns, made_domains
from tests.fixtures.capture.type_tables import MAKE_OWN, OWN, arrays, create, fill, scalars
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_beside_capture import config_of, writing

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.local.registry_server import Registry
    from cdc.verify.findings import TableFindings
    from tests.fixtures.servers.daemon import CaptureSite, Sections

LOAD: Final = (
    "insert into t values (1000 + :n, 'new', :n, repeat('n', 3000))",
    "update t set v = :n where id between 201 and 230",
    "delete from t where id = 1000 + :n - 5",
    "update t set id = id + 10000, v = :n where id = 1000 + :n - 3",
)
TABLE: Final = (
    "create table t (id int, part text, v int, body text, primary key (id, part)) partition by range (id)",
    "create table quiet partition of t for values from (1) to (201)",
    "create table busy partition of t default",
    "alter table quiet alter body set storage external",
    "alter table busy alter body set storage external",
    "insert into t select n, 'p' || n % 3, n, repeat('b', 3000) from generate_series(1, 300) n",
)
NOWHERE: Final = """
name = "shop"
[source]
dsn = "postgresql://nobody@127.0.0.1:1/x"
[kafka]
bootstrap = "127.0.0.1:1"
[sinks.cache]
kind = "cache"
url = "redis://127.0.0.1:1/0"
"""
AWKWARD: Final = ("r", "x", "v", "o", "k", "t", "c0", "n", "name", "user", "select", "ctid2", "a.b", "100%s", 'q"q')


@pytest.fixture(params=["json", "flat", "avro"])
def sections(request: pytest.FixtureRequest) -> Sections:
    """A capture in each format."""
    if request.param != "avro":
        return {"encode": {"format": request.param}}
    registry: Registry = request.getfixturevalue("registry")
    return {"encode": {"format": "avro"}, "registry": {"url": registry.url}}


def found(capture: CaptureSite, *, repair: bool = False) -> dict[str, TableFindings]:
    findings = verify_source(config_of(capture), (), clock=SystemClock(), sample=Sample(), repair=repair)
    return {one.table: one for one in findings}


def verify(config: Path, *options: str) -> tuple[int, str, str]:
    ran = cdc("verify", "--topics", "-c", config, *options, timeout_s=180)
    return ran.code, ran.out, ran.err


def test_rows_missing_in_the_log_are_found_in_every_format(capture: CaptureSite, sections: Sections) -> None:
    """A partition is detached, written to and attached again: PostgreSQL publishes nothing of that."""
    capture.sql(*TABLE)
    capture.running({**sections, "snapshot": {"mode": "initial"}, "ddl": {"policy": "warn"}})
    until(lambda: found(capture)["public.t"].ok, "the first snapshot", within_s=90, every_s=0.5)
    with writing(capture, *LOAD):
        assert found(capture)["public.t"].ok
        capture.sql(
            "alter table t detach partition quiet",
            "insert into quiet select id, 'more', v from quiet where id <= 5",
            "update quiet set v = -1 where id between 11 and 14",
            "delete from quiet where id between 21 and 23",
            "alter table t attach partition quiet for values from (1) to (201)",
        )

        damaged = found(capture)["public.t"]

        assert damaged.counts == {
            DifferenceKind.MISSING: 5,
            DifferenceKind.EXTRA: 3,
            DifferenceKind.STALE: 0,
            DifferenceKind.DIFFERENT: 4,
        }, damaged
        assert damaged.undecided == 0
        code, _, err = verify(capture.folder / "cdc-0.toml", "--repair")
        if sections["encode"]["format"] == "avro":
            assert code == 2
            assert "capture cannot look up keys in Avro" in err
        else:
            assert code == 0, err
            assert found(capture)["public.t"].ok


@pytest.mark.parametrize("kind", ["scalars", "arrays", "own"])
def test_values_of_every_type_agree_in_every_format(capture: CaptureSite, sections: Sections, kind: str) -> None:
    there = {"scalars": scalars(), "arrays": arrays(), "own": OWN}[kind]
    if kind == "own":
        capture.sql(*MAKE_OWN)
    with capture.connect() as session:
        create(session, there)
    capture.running(sections)
    with capture.connect() as session:
        row_count = fill(session, there)

    compared = found(capture)["public.t"]

    assert (compared.ok, compared.compared) == (True, row_count), compared


@pytest.mark.parametrize("encode", [ALL, URL, {"numeric": "number", "int64": "string"}], ids=["all", "url", "numbers"])
def test_forms_an_operator_chose_agree_in_every_format(
    capture: CaptureSite, sections: Sections, encode: dict[str, str]
) -> None:
    capture.sql("create extension hstore", *made_domains())
    with capture.connect() as session:
        create(session, columns())
        session.execute("create table keys (d date, b bytea, n numeric, i int8, f float8, primary key (d, b, n, i, f))")
    capture.running({**sections, "encode": {**sections["encode"], **encode}})
    with capture.connect() as session:
        fill(session, columns())
    capture.sql(
        "insert into keys values ('2026-11-21', '\\xfbff', 1.50, 9007199254740993, 0.1), ('infinity', '', 0, 1, 'NaN')"
    )

    compared = found(capture)

    assert {table: one.ok for table, one in compared.items()} == {"public.t": True, "public.keys": True}, compared
    assert compared["public.keys"].compared == 2


def test_columns_named_as_anything_in_our_statements_are_read(capture: CaptureSite, sections: Sections) -> None:
    defined = ", ".join('"{}" text'.format(name.replace('"', '""')) for name in AWKWARD)
    capture.sql(
        f"create table t ({defined}, id int primary key)",
        "create table r (r int primary key, x timestamp, v bytea[], o interval[])",
    )
    capture.running({**sections, "encode": {**sections["encode"], "time": "micros", "bytea": "base64"}})
    values = ", ".join(f"'value {number}'" for number, _ in enumerate(AWKWARD))
    capture.sql(
        f"insert into t select {values}, n from generate_series(1, 3) n",
        "insert into r values (1, '2026-01-01 12:00', '{abc,null}', '{1 day}')",
    )
    before = found(capture)
    capture.sql("""update t set "r" = 'changed' where id = 2""")
    after = found(capture)

    assert {table: (one.ok, one.compared) for table, one in before.items()} == {
        "public.t": (True, 3),
        "public.r": (True, 1),
    }
    assert after["public.t"].ok


def test_tables_that_inherit_are_not_taken_for_rows_of_their_parent(capture: CaptureSite) -> None:
    capture.sql(
        "create table parent (id int primary key, v text)",
        "create table child (more int, primary key (id)) inherits (parent)",
    )
    capture.running()
    capture.sql("insert into parent values (1, 'p')", "insert into child values (1, 'same key', 0), (2, 'c', 0)")

    compared = found(capture)

    assert {table: (one.ok, one.compared) for table, one in compared.items()} == {
        "public.parent": (True, 1),
        "public.child": (True, 2),
    }


def test_verify_with_capture_down_reports_what_it_waits_for_and_gives_up(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()
    capture.sql("insert into t values (1)")
    capture.settled(daemon)
    daemon.stop()
    capture.sql("insert into t values (2)")

    code, out, err = verify(capture.folder / "cdc-0.toml", "--timeout", "5")
    as_json = cdc("verify", "--topics", "--timeout", "5", "--json", "-c", capture.folder / "cdc-0.toml")

    assert (code, out) == (1, "")
    assert "waiting for capture: the topics are at " in err
    assert "gives up after 5 s" in err
    assert "capture did not catch up within 5 s" in err
    assert "cdc status" in err
    assert (as_json.code, as_json.out) == (1, "")
    assert "capture did not catch up within 5 s" in json.loads(as_json.err)["error"]["message"]


@pytest.mark.parametrize("command", [("--topics",), ("cache", "--no-source"), ("cache", "--repair")], ids=" ".join)
def test_verify_with_kafka_down_reports_what_it_waits_for_and_gives_up(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    config = tmp_path / "cdc.toml"
    config.write_text(NOWHERE)

    ran = cdc("verify", *command, "--timeout", "5", "-c", config)

    assert (ran.code, ran.out) == (1, "")
    assert "waiting for Kafka at 127.0.0.1:1; gives up after 5 s" in ran.err
    assert "Kafka on 127.0.0.1:1 does not answer" in ran.err.split("gives up", 1)[1]


def test_verify_of_a_capture_that_never_ran_names_the_command_that_starts_it(capture: CaptureSite) -> None:
    code, out, err = verify(capture.write_config({}))

    assert (code, out) == (3, "")
    assert f"capture '{capture.name}' has never run on this Kafka" in err
    assert "cdc run" in err
