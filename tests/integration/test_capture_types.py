"""Every type PostgreSQL ships, arrays of each, and types made of them: the log says what the server itself says (B2).

The referee is the server: `to_jsonb(value)`, or the text for those types whose encoding is their text.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from cdc.encode.builtin import ARRAYS, SCALARS, SEMICOLON_ARRAYS
from cdc.replication.connect import SESSION
from tests.fixtures.typesamples import AS_TEXT, NOT_STORABLE, SAMPLES, TEXTS

if TYPE_CHECKING:
    from tests.fixtures.daemon import CaptureSite
    from tests.fixtures.servers import PostgresServer

_ENUM_LABELS: Final = ("plain", "with space", 'quo"te', "back\\slash", "comma,", "ünïcödé", "NULL", "{}")
_KEY_LENGTH_MAX: Final = 200
# Types a database makes itself: column name -> (type, values, whether it is its text).
_OWN: Final[dict[str, tuple[str, tuple[str, ...], bool]]] = {
    "enum": ("mood", _ENUM_LABELS, False),
    "domain": ("positive", ("1", "2147483647"), False),
    "domain over domain": ("small_positive", ("7",), False),
    "domain over numeric": ("price", ("1.50", "NaN"), True),
    "domain over array": ("numbers", ("{1,2,NULL}", "{}"), False),
    "domain over enum": ("good_mood", ("plain",), False),
    "composite": ("pair", ('(1,"a,b")', "(,)", '(2,"q""uote")'), True),
    "domain over composite": ("good_pair", ("(1,x)",), True),
    "range": ("money_range", ("[1,2)", "empty"), True),
    "extension": ("citext", TEXTS[:5], True),
    "extension with arrows": ("hstore", ('"a"=>"1", "b"=>NULL',), True),
    "enum array": ("mood[]", ('{plain,"with space",NULL,"quo\\"te"}', "{}"), False),
    "domain array": ("positive[]", ("{1,2}", "{{1,2},{3,NULL}}"), False),
    "domain over numeric array": ("price[]", ("{1.50,NaN,NULL}",), True),
    "composite array": ("pair[]", ('{"(1,a)",NULL,"(2,\\"b,c\\")"}',), True),
    "extension array": ("citext[]", ('{a,"b c",NULL}',), True),
}
_MAKE_OWN: Final = (
    "create extension citext",
    "create extension hstore",
    f"create type mood as enum ({', '.join(sql.Literal(label).as_string(None) for label in _ENUM_LABELS)})",
    "create domain positive as int check (value > 0)",
    "create domain small_positive as positive check (value < 10)",
    "create domain price as numeric(12, 2)",
    "create domain numbers as int[]",
    "create domain good_mood as mood",
    "create type pair as (n int, t text)",
    "create domain good_pair as pair",
    "create type money_range as range (subtype = numeric)",
)


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


def test_scalars_are_what_the_server_says(capture: CaptureSite) -> None:
    columns = {name: (name, values, name.partition("(")[0] in AS_TEXT) for name, values in SAMPLES.items()}

    assert wrong_values(capture, columns) == []


def test_arrays_of_everything_are_what_the_server_says(capture: CaptureSite) -> None:
    columns = {
        f"{name}[]": (f"{name}[]", array_inputs(name, values), name.partition("(")[0] in AS_TEXT)
        for name, values in SAMPLES.items()
    }

    assert wrong_values(capture, columns) == []


def test_types_a_database_makes_itself_are_what_the_server_says(capture: CaptureSite) -> None:
    capture.sql(*_MAKE_OWN)

    assert wrong_values(capture, _OWN) == []


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


def test_key_of_any_type_folds_to_the_table(capture: CaptureSite) -> None:
    kinds = ("int8", "text", "uuid", "numeric", "timestamptz", "bytea", "date", "bool")
    capture.sql(*[f"create table {kind}_key (k {kind} primary key, v int)" for kind in kinds])
    daemon = capture.running()

    with capture.connect() as session:
        for kind in kinds:
            table = sql.Identifier(f"{kind}_key")
            for number, value in enumerate(value for value in SAMPLES[kind] if len(value) < _KEY_LENGTH_MAX):
                insert = sql.SQL("insert into {} values (%s, %s) on conflict do nothing").format(table)
                session.execute(insert, (value, number))
            session.execute(sql.SQL("update {} set v = v + 100").format(table))
    log = capture.settled(daemon)

    for kind in kinds:
        rows = capture.query(f"select v from {kind}_key order by v")
        assert sorted(row["v"] for row in log.fold(capture.topic(f"{kind}_key")).values()) == [v for (v,) in rows]
    assert log.faults() == []


def wrong_values(capture: CaptureSite, columns: dict[str, tuple[str, tuple[str, ...], bool]]) -> list[str]:
    """Publish a row per sample and name every value that is not what the server says it is."""
    columns = {name: column for name, column in columns.items() if known(capture, column[0])}
    names = list(columns)
    definition = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(columns[name][0])) for name in names
    )
    row_count = 1 + max(len(values) for _, values, _ in columns.values())
    with capture.connect() as session:
        session.execute(sql.SQL("create table t (id int primary key, {})").format(definition))
    daemon = capture.running()
    with capture.connect() as session:
        for number in range(row_count):
            row = [values[number] if number < len(values) else None for _, values, _ in columns.values()]
            session.execute(
                sql.SQL("insert into t values ({}, {})").format(number, sql.SQL(", ").join(map(sql.Literal, row)))
            )
    events = capture.settled(daemon).events
    expected = said_by_server(capture, columns)
    wrong = [] if len(events) == row_count else [f"{len(events)} events for {row_count} rows"]
    for event in events:
        assert event.value is not None
        after = exact(event.value)["after"]
        said = expected[after["id"]]
        wrong += [
            f"{name}: published {after[name]!r}, the server says {said[name]!r}"
            for name in names
            if after[name] != said[name]
        ]
    return wrong


def said_by_server(
    capture: CaptureSite, columns: dict[str, tuple[str, tuple[str, ...], bool]]
) -> dict[int, dict[str, Any]]:
    """id -> column -> JSON value, in a session that is set up as ours are."""
    shown = []
    for name, (kind, _, as_text) in columns.items():
        cast = sql.SQL("::text[]" if kind.endswith("[]") else "::text") if as_text else sql.SQL("")
        shown.append(sql.SQL("to_jsonb({}{})::text").format(sql.Identifier(name), cast))
    with capture.connect() as session:
        for statement in SESSION:
            session.execute(statement.encode())
        rows = session.execute(
            sql.SQL("select id, {} from public.t").format(sql.SQL(", ").join(shown)), prepare=False
        ).fetchall()
    return {
        row[0]: {name: None if text is None else exact(text) for name, text in zip(columns, row[1:], strict=True)}
        for row in rows
    }


def known(capture: CaptureSite, kind: str) -> bool:
    """Whether this build of the server reads values of the type; xml needs libxml."""
    if not kind.startswith("xml"):
        return True
    try:
        capture.query("select '<a/>'::xml")
    except psycopg.errors.FeatureNotSupported:
        return False
    return True


def exact(text: str | bytes) -> Any:
    """JSON with numbers by value, whatever they are written as."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def array_inputs(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Arrays of these elements: empty, flat with a null, two dimensions, other bounds."""
    comma = ";" if name == "box" else ","
    items = [*('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values), "NULL"]
    flat = "{" + comma.join(items) + "}"
    nested = (
        "{"
        + comma.join(["{" + comma.join([items[0], "NULL"]) + "}", "{" + comma.join([items[-1], items[-2]]) + "}"])
        + "}"
    )
    return "{}", flat, nested, f"[0:{len(items) - 1}]={flat}"
