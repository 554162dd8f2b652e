"""Values read by key from real tables: the same bytes as in the stream, for exactly the requested rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import psycopg
import pytest
from psycopg import sql

from cdc.config.secret import Secret
from cdc.errors import SourceRefused, SourceUnreachable
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.replication.connect import Connection, connect, sever
from cdc.replication.key_read import ReadDeferred, ReadRequest, ReadResult, read_by_key
from tests.fixtures.servers.running_servers import Database
from tests.fixtures.servers.waiting import until


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with connect(Secret(database.dsn), application_name="test") as connection:
        yield connection


@pytest.fixture
def other(database: Database) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with psycopg.connect(database.dsn) as connection:
        yield connection


def run(source: Connection, *statements: str) -> None:
    """Beside our session, whose search_path is empty."""
    with psycopg.connect(source.info.dsn, password=source.info.password, autocommit=True) as session:
        for statement in statements:
            session.execute(statement.encode())


def relation(source: Connection, name: str) -> Relation:
    """As the stream would show the table now."""
    rows = source.execute(
        "select attrelid::int8, attname, atttypid::int8, atttypmod from pg_attribute"
        " where attrelid = to_regclass(%s) and attnum > 0 order by attnum",
        (sql.Identifier("public", name).as_string(source),),
    ).fetchall()
    columns = tuple(Column(name, oid, modifier, identity=False) for _, name, oid, modifier in rows)
    return Relation(rows[0][0], "public", name, ReplicaIdentity.DEFAULT, columns)


def ask(relation: Relation, key: Sequence[str], columns: Sequence[str], *keys: Sequence[str]) -> ReadRequest:
    names = [column.name for column in relation.columns]
    index = names.index
    return ReadRequest(relation, tuple(map(index, key)), tuple(map(index, columns)), [tuple(texts) for texts in keys])


def read(source: Connection, *asks: ReadRequest, xids: Sequence[int] = ()) -> list[ReadResult]:
    return read_by_key(source, asks, xids)


def test_rows_are_found_by_composite_keys_of_every_kind(source: Connection) -> None:
    run(
        source,
        "create type mood as enum ('sad', 'it''s fine')",
        "create domain code as bpchar(6)",
        "create table t (a bpchar(5), b bit(3), c mood, d numeric, e timestamptz, f code, g bool, h uuid, i text,"
        " note text, primary key (a, b, c, d, e, f, g, h, i))",
        "insert into t values ('ab', b'101', 'it''s fine', 1.50, '2020-01-02 03:04:05.678901+02', 'xy', true,"
        " '00000000-0000-0000-0000-000000000001', 'q\"%s {x} \\ ''', 'mine')",
        "insert into t select 'abc', b, c, d, e, f, g, h, i, 'another' from t",
    )
    table = relation(source, "t")
    key = [column.name for column in table.columns[:9]]
    texts = ("ab   ", "101", "it's fine", "1.50", "2020-01-02 01:04:05.678901+00", "xy    ", "t",
             "00000000-0000-0000-0000-000000000001", "q\"%s {x} \\ '")  # fmt: skip
    absent = ("ab   ", "111", *texts[2:])

    (answer,) = read(source, ask(table, key, ["note"], absent, texts))

    assert answer == ReadResult((9,), {1: (b"mine",)})


def test_values_are_the_bytes_of_the_stream_and_not_of_a_cast(source: Connection) -> None:
    """A cast to text cuts the blanks of a bpchar, and prints a boolean in full."""
    run(
        source,
        "create type pair as (a int, b text)",
        "create table t (id int primary key, c bpchar(4), y bytea, j json, b jsonb, a text[], f bool, p pair,"
        " n numeric, x text, s text)",
        """insert into t values (1, 'ab', '\\x00ff', '{"a":  1}', '{"b":1}', '{"x y",null}', true, '(1,"q ""z")',"""
        " 1.50, null, '')",
    )
    table = relation(source, "t")

    (answer,) = read(source, ask(table, ["id"], [c.name for c in table.columns[1:]], ["1"]))

    assert answer.rows[0] == (
        b"ab  ", rb"\x00ff", b'{"a":  1}', b'{"b": 1}', b'{"x y",NULL}', b"t", b'(1,"q ""z")', b"1.50", None, b"",
    )  # fmt: skip


def test_hostile_names_are_read(source: Connection) -> None:
    run(
        source,
        'create schema "s %s ""x"""',
        'create table "s %s ""x"""."T.%d" ("select" int primary key, "100%" text, "$1" text)',
        'insert into "s %s ""x"""."T.%d" values (1, \'a\', \'b\')',
    )
    oid = source.execute(b"select oid::int8 from pg_class where relname = 'T.%d'").fetchone()
    assert oid is not None
    columns = (Column("select", 23, -1, True), Column("100%", 25, -1, False), Column("$1", 25, -1, False))
    table = Relation(oid[0], 's %s "x"', "T.%d", ReplicaIdentity.DEFAULT, columns)

    (answer,) = read(source, ask(table, ["select"], ["100%", "$1"], ["1"]))

    assert answer.rows == {0: (b"a", b"b")}


def test_key_that_was_deleted_or_moved_is_not_answered(source: Connection) -> None:
    run(source, "create table t (id int primary key, note text)", "insert into t values (2, 'b'), (13, 'c')")

    (answer,) = read(source, ask(relation(source, "t"), ["id"], ["note"], ["1"], ["2"], ["3"]))

    assert answer.rows == {1: (b"b",)}


def test_table_that_was_renamed_is_found_and_columns_that_went_are_left_out(source: Connection) -> None:
    run(
        source,
        "create table t (id int primary key, stays text, renamed text, dropped text, retyped text)",
        "insert into t values (1, 'a', 'b', 'c', '4')",
    )
    table = relation(source, "t")
    run(
        source,
        "alter table t rename to u",
        "alter table u rename renamed to other",
        "alter table u drop dropped",
        "alter table u alter retyped type int using retyped::int",
    )

    (answer,) = read(source, ask(table, ["id"], ["stays", "renamed", "dropped", "retyped"], ["1"]))

    assert answer == ReadResult((1,), {0: (b"a",)})


def test_table_or_key_that_is_gone_is_no_answer(source: Connection) -> None:
    run(source, "create table t (id int primary key, note text)", "create table u (id int primary key, note text)")
    gone, rekeyed = relation(source, "t"), relation(source, "u")
    run(source, "drop table t", "alter table u rename id to name")

    answers = read(source, ask(gone, ["id"], ["note"], ["1"]), ask(rekeyed, ["id"], ["note"], ["1"]))

    assert answers == [ReadResult(), ReadResult()]


def test_children_of_a_table_are_not_it_and_partitions_are(source: Connection) -> None:
    run(
        source,
        "create table parent (id int primary key, note text)",
        "create table child (primary key (id)) inherits (parent)",
        "insert into parent values (1, 'mine')",
        "insert into child values (1, 'a child''s'), (2, 'a child''s')",
        "create table whole (id int primary key, note text) partition by range (id)",
        "create table part partition of whole for values from (0) to (10)",
        "insert into whole values (1, 'of a part')",
    )
    asks = [ask(relation(source, name), ["id"], ["note"], ["1"], ["2"]) for name in ("parent", "whole")]

    assert [answer.rows for answer in read(source, *asks)] == [{0: (b"mine",)}, {0: (b"of a part",)}]


def test_transaction_that_still_runs_is_waited_for(source: Connection, other: psycopg.Connection) -> None:
    run(source, "create table t (id int primary key, note text)", "insert into t values (1, 'old')")
    asked = ask(relation(source, "t"), ["id"], ["note"], ["1"])
    row = other.execute("update t set note = 'new' returning pg_current_xact_id()::text").fetchone()
    assert row is not None
    xid = int(row[0]) & 0xFFFFFFFF

    with pytest.raises(ReadDeferred, match=f"transaction {xid} is committed, but not yet visible"):
        read(source, asked, xids=[xid])
    other.commit()

    assert read(source, asked, xids=[xid])[0].rows == {0: (b"new",)}


def test_locked_table_is_waited_for_and_named(source: Connection, other: psycopg.Connection) -> None:
    run(source, "create table t (id int primary key, note text)")
    asked = ask(relation(source, "t"), ["id"], ["note"], ["1"])
    other.execute("lock table t in access exclusive mode")

    with pytest.raises(ReadDeferred, match=r"public\.t is locked"):
        read(source, asked)
    other.rollback()

    assert read(source, asked)[0].rows == {}


def test_rewrite_that_was_waited_for_does_not_make_rows_look_gone(
    source: Connection, other: psycopg.Connection, database: Database
) -> None:
    """Rows of a rewritten table are newer than a snapshot from before it."""
    run(source, "create table t (id int primary key, note text)", "insert into t values (1, 'x')")
    asked = ask(relation(source, "t"), ["id"], ["note"], ["1"])
    other.execute("alter table t add made timestamptz not null default clock_timestamp()")
    waits = "select from pg_locks where not granted and relation = 't'::regclass"
    with psycopg.connect(database.dsn, autocommit=True) as watcher:
        # The rewrite commits while our lock waits for it.
        def commit_when_waited_for() -> None:
            until(lambda: watcher.execute(waits.encode()).rowcount, "our lock waits")
            other.commit()

        thread = threading.Thread(target=commit_when_waited_for)
        thread.start()
        (answer,) = read(source, asked)
        thread.join()

    assert answer.rows == {0: (b"x",)}


def test_right_that_is_missing_is_a_named_refusal_with_the_statement(source: Connection, database: Database) -> None:
    role = f"r_{database.name}"
    run(source, f"create role {role} login", "create table t (id int primary key, note text)")
    run(source, "insert into t values (1, 'x')")
    asked = ask(relation(source, "t"), ["id"], ["note"], ["1"])
    try:
        with connect(Secret(psycopg.conninfo.make_conninfo(database.dsn, user=role))) as poor:
            with pytest.raises(SourceRefused, match=r"public\.t") as refused:
                read(poor, asked)
            run(source, refused.value.command)
            assert read(poor, asked)[0].rows == {0: (b"x",)}

            run(source, "alter table t enable row level security")
            with pytest.raises(SourceRefused, match=r"all rows of public\.t") as refused:
                read(poor, asked)
            run(source, refused.value.command)
            assert read(poor, asked)[0].rows == {0: (b"x",)}
    finally:
        run(source, f"drop owned by {role}", f"drop role {role}")


def test_connection_that_breaks_is_an_unreachable_source(source: Connection) -> None:
    run(source, "create table t (id int primary key, note text)")
    asked = ask(relation(source, "t"), ["id"], ["note"], ["1"])
    sever(source)

    with pytest.raises(SourceUnreachable):
        read(source, asked)


def test_citext_of_another_schema_is_compared_by_its_own_rule(source: Connection) -> None:
    run(
        source,
        "create schema ext; create extension citext schema ext",
        "create table t (id ext.citext primary key, note text)",
        "insert into t values ('Ann', 'x')",
    )

    (answer,) = read(source, ask(relation(source, "t"), ["id"], ["note"], ["ann"]))

    assert answer.rows == {0: (b"x",)}
