"""Reading the catalog of a real server: keys, partitions, identity, types, publications, hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString, cast

import psycopg
import pytest
from psycopg import sql

from cdc.config.secret import Secret
from cdc.errors import SourceRefused, SourceUnreachable
from cdc.lsn import Lsn
from cdc.model.relation import ReplicaIdentity
from cdc.replication.catalog_queries import (
    current_wal,
    key_columns,
    source_identity,
    tables_matching,
    types,
    wal_settings,
)
from cdc.replication.collations import collations
from cdc.replication.connect import Connection, connect
from cdc.replication.publication import Ensured, ensure_publication, publication_facts
from cdc.replication.table_shape import SourceTable
from tests.fixtures.capture.source_builders import HOSTILE
from tests.fixtures.servers.running_servers import Database, PostgresServer

MANY = 200


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    connection = connect(Secret(database.dsn), application_name="test")
    with connection:
        yield connection


def tables(source: Connection, *patterns: str, keyless: tuple[str, ...] = ()) -> dict[str, SourceTable]:
    return {t.table: t for t in tables_matching(source, patterns or ("*.*",), keyless)}


def test_identity_names_this_database_and_this_history(source: Connection, database: Database) -> None:
    found = source_identity(source)

    assert found.database == database.name
    assert found.system_identifier.isdigit()
    assert (found.timeline, found.in_recovery) == (1, False)
    assert found.server_version_num // 10000 in range(15, 20)
    assert current_wal(source) > Lsn(0)
    assert wal_settings(source)["wal_level"] == "logical"


def test_session_prints_the_same_whatever_database_and_role_say(database: Database) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as admin:
        for setting in ("datestyle = 'German'", "timezone = 'Asia/Tokyo'", "extra_float_digits = 0",
                        "bytea_output = 'escape'", "intervalstyle = 'sql_standard'"):  # fmt: skip
            admin.execute(f"alter database {database.name} set {setting}".encode())

    with connect(Secret(database.dsn)) as source:
        row = source.execute(
            "select '2020-01-02'::date::text, '2020-01-02 00:00+00'::timestamptz::text, 0.1::float4::text, "
            "'\\x41'::bytea::text, '1 day'::interval::text"
        ).fetchone()

    assert row == ("2020-01-02", "2020-01-02 00:00:00+00", "0.1", "\\x41", "P1D")


KEYS = """
create table plain (b int, a int, t text, primary key (b, a));
create table nokey (id int);
create table late (id int primary key deferrable);
create table full_key (id int primary key); alter table full_key replica identity full;
create table full_nokey (id int); alter table full_nokey replica identity full;
create table nothing (id int primary key); alter table nothing replica identity nothing;
create table by_index (id int primary key, y int not null, x int not null, z text);
create unique index by_index_u on by_index (y, x) include (z);
alter table by_index replica identity using index by_index_u;
create table lost_index (x int not null); create unique index lost_u on lost_index (x);
alter table lost_index replica identity using index lost_u; drop index lost_u;
create table generated (id int, g int generated always as (id * 2) stored primary key);
create unlogged table unlogged (id int primary key);
create temporary table temp (id int primary key);
"""


def test_key_is_found_by_the_replica_identity_or_its_lack_explained(source: Connection) -> None:
    source.execute("set search_path = public")
    source.execute(KEYS.encode())

    found = tables(source)

    keys = {name.removeprefix("public."): t.key for name, t in found.items() if not t.problem}
    assert keys == {"plain": ("b", "a"), "full_key": ("id",), "by_index": ("y", "x")}
    problems = {name.removeprefix("public."): t.problem for name, t in found.items() if t.problem}
    assert {name: words for name, words in problems.items() if words.startswith("it has no primary key")}.keys() == {
        "nokey",
        "full_nokey",
    }
    assert "deferrable" in problems["late"]
    assert "NOTHING" in problems["nothing"]
    assert "is gone" in problems["lost_index"]
    assert "generated" in problems["generated"]
    assert "unlogged" in problems["unlogged"]
    assert "temp" not in {name.split(".")[1] for name in found}
    assert all(key_columns(source, t.oid) == t.key for t in found.values())


def test_key_of_a_table_that_is_gone_is_empty(source: Connection) -> None:
    assert key_columns(source, 1) == ()


def test_columns_are_in_order_without_dropped_ones(source: Connection) -> None:
    source.execute(
        "create table public.t (id int primary key, gone text, n numeric(10, 2) not null, g int generated always as "
        "(1) stored, big text)"
    )
    source.execute("alter table public.t drop column gone")

    columns = tables(source)["public.t"].columns

    assert [(c.name, c.type_name, c.not_null, c.generated, c.toastable) for c in columns] == [
        ("id", "integer", True, False, False),
        ("n", "numeric(10,2)", True, False, True),
        ("g", "integer", False, True, False),
        ("big", "text", False, False, True),
    ]
    assert columns[1].type_modifier == 655366


PARTITIONS = """
create table public.events (id int, at date, primary key (id, at)) partition by range (at);
create table public.events_2020 partition of public.events for values from ('2020-01-01') to ('2021-01-01')
    partition by list (id);
create table public.events_2020_x partition of public.events_2020 default;
create table public.events_rest partition of public.events default;
alter table public.events_rest replica identity full;
"""


def test_partitions_are_part_of_the_highest_selected_table(source: Connection) -> None:
    source.execute(PARTITIONS.encode())

    everything = tables(source)
    one_branch = tables(source, "public.events_2020*")

    assert list(everything) == ["public.events"]
    assert everything["public.events"].partitioned
    assert [(leaf.table, leaf.replica_identity) for leaf in everything["public.events"].leaves] == [
        ("public.events_2020_x", ReplicaIdentity.DEFAULT),
        ("public.events_rest", ReplicaIdentity.FULL),
    ]
    assert list(one_branch) == ["public.events_2020"]
    assert one_branch["public.events_2020"].is_partition


def test_keyless_list_covers_only_tables_without_key(source: Connection) -> None:
    source.execute("create table public.a (id int primary key); create table public.b (id int)")

    found = tables(source, keyless=("public.*",))

    assert (found["public.a"].keyless, found["public.b"].keyless) == (False, True)
    assert found["public.b"].problem == ""


def test_system_schemas_never_match(source: Connection) -> None:
    assert tables(source, "*.*", "pg_catalog.*", "information_schema.*", "pg_toast.*") == {}


def test_types_are_distinguished(source: Connection) -> None:
    source.execute("create type public.mood as enum ('a'); create domain public.feeling as public.mood")
    oids = {
        name: row[0]
        for name in ("public.mood", "public.mood[]", "public.feeling", "box", "oidvector")
        if (row := source.execute("select %s::regtype::oid::int8", (name,)).fetchone())
    }

    found = types(source, [*oids.values(), 4_000_000_000])

    assert set(found) == set(oids.values())
    assert (found[oids["public.mood"]].kind, found[oids["public.mood"]].name) == ("e", "public.mood")
    assert found[oids["public.mood[]"]].element_oid == oids["public.mood"]
    assert found[oids["public.feeling"]].base_oid == oids["public.mood"]
    assert found[oids["box"]].delimiter == ";"
    assert found[oids["oidvector"]].element_oid == 0


def test_hostile_names_are_names(source: Connection) -> None:
    for name in HOSTILE:
        schema, table = sql.Identifier(name), sql.Identifier(name, name)
        source.execute(sql.SQL("create schema {}").format(schema))
        source.execute(sql.SQL("create table {} ({} int primary key)").format(table, sql.Identifier(name)))

    found = tables_matching(source, ["*.*"])
    ensured = ensure_publication(source, 'p"\n', found, create=True)

    assert {(t.namespace, t.name, *t.key) for t in found} == {(name, name, name) for name in HOSTILE}
    assert set(ensured.facts.tables) == {t.oid for t in found}


class Counting:
    """Counts statements on their way to a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.count = 0

    def execute(self, *arguments: Any) -> Any:
        self.count += 1
        return self._connection.execute(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_many_tables_take_no_more_statements_than_one(source: Connection) -> None:
    def statements() -> int:
        counting = Counting(source)
        tables_matching(cast(Connection, counting), ["public.*"])
        return counting.count

    source.execute("create table public.t0 (id int primary key)")
    one = statements()
    source.execute(
        f"do $$ begin for i in 1..{MANY} loop execute format('create table public.t%s (id int primary key)', i); "
        "end loop; end $$".encode()
    )

    assert statements() == one
    assert len(ensure_publication(source, "p", tables_matching(source, ["*.*"]), create=True).added) == MANY + 1


@pytest.fixture
def two_tables(source: Connection) -> list[SourceTable]:
    source.execute("create table public.a (id int primary key); create table public.b (id int primary key)")
    return tables_matching(source, ["*.*"])


def test_publication_is_made_then_extended_never_narrowed(source: Connection, two_tables: list[SourceTable]) -> None:
    first = ensure_publication(source, "p", two_tables[:1], create=True)
    second = ensure_publication(source, "p", two_tables, create=True)
    third = ensure_publication(source, "p", two_tables[:1], create=True)

    assert (first.created, [t.name for t in first.added]) == (True, ["a"])
    assert (second.created, [t.name for t in second.added]) == (False, ["b"])
    assert third == Ensured(second.facts, created=False, added=())
    assert first.facts.via_root
    assert first.facts.complete


@pytest.mark.parametrize("published", ["neither", "the other"])
def test_table_whose_name_went_to_another_is_refused_and_not_published_in_its_place(
    published: str, source: Connection, two_tables: list[SourceTable]
) -> None:
    source.execute("create table public.c (id int primary key); create publication p for table public.c")
    if published == "the other":
        source.execute("alter publication p add table public.b")
    source.execute(
        "alter table public.a rename to old; alter table public.b rename to a; alter table public.old rename to b"
    )

    ensured = ensure_publication(source, "p", two_tables[:1], create=True)

    assert ensured.refused == {two_tables[0].oid: "the table was dropped, renamed or replaced meanwhile; retrying"}
    assert ensured.added == ()
    assert (two_tables[1].oid in ensured.facts.tables) == (published == "the other")
    assert [t.oid for t in ensure_publication(source, "p", tables_matching(source, ["*.b"]), create=True).added] == [
        two_tables[0].oid
    ]


@pytest.mark.parametrize(
    "ddl",
    ["alter table public.a rename to old; alter table public.b rename to a", "drop table public.a"],
    ids=["to another table", "with its table"],
)
def test_publication_is_not_created_when_a_name_went(
    source: Connection, two_tables: list[SourceTable], ddl: LiteralString
) -> None:
    source.execute(ddl)

    with pytest.raises(SourceUnreachable, match="dropped, renamed or replaced meanwhile; retrying"):
        ensure_publication(source, "p", two_tables[:1], create=True)

    assert publication_facts(source, "p") is None


def test_missing_publication_made_by_hand_is_refused_with_its_statement(
    source: Connection, two_tables: list[SourceTable]
) -> None:
    with pytest.raises(SourceRefused, match="does not exist") as caught:
        ensure_publication(source, "p", two_tables, create=False)
    source.execute(caught.value.command.encode())

    assert ensure_publication(source, "p", two_tables, create=False).added == ()


def test_publication_made_by_hand_must_have_every_table(source: Connection, two_tables: list[SourceTable]) -> None:
    source.execute("create publication p for table public.a")

    with pytest.raises(SourceRefused, match=r"lacks public\.b") as caught:
        ensure_publication(source, "p", two_tables, create=False)
    source.execute(caught.value.command.encode())

    assert ensure_publication(source, "p", two_tables, create=False).facts.tables.keys() == {t.oid for t in two_tables}


@pytest.mark.parametrize("statement", ["for all tables", "for tables in schema public"])
def test_publication_of_everything_has_every_table(
    statement: str, source: Connection, two_tables: list[SourceTable]
) -> None:
    source.execute(f"create publication p {statement} with (publish_via_partition_root = true)".encode())

    assert ensure_publication(source, "p", two_tables, create=True).added == ()


@pytest.mark.parametrize("option", ["publish = 'insert'", "publish_via_partition_root = false"])
def test_publication_with_unfit_options_is_refused_with_the_statement(option: str, source: Connection) -> None:
    source.execute(PARTITIONS.encode())
    source.execute(
        f"create publication p for table public.events with (publish_via_partition_root = true, {option})".replace(
            "publish_via_partition_root = true, publish_via_partition_root", "publish_via_partition_root"
        ).encode()
    )
    found = tables_matching(source, ["public.*"])

    with pytest.raises(SourceRefused) as caught:
        ensure_publication(source, "p", found, create=True)
    source.execute(caught.value.command.encode())

    assert ensure_publication(source, "p", found, create=False).facts.complete


def test_publication_by_a_role_without_rights_names_the_way_out(
    source: Connection, database: Database, two_tables: list[SourceTable]
) -> None:
    role = f"r_{database.name}"
    source.execute(f"create role {role} login".encode())
    try:
        dsn = Secret(psycopg.conninfo.make_conninfo(database.dsn, user=role))
        with connect(dsn) as poor, pytest.raises(SourceRefused) as caught:
            ensure_publication(poor, "p", two_tables, create=True)
    finally:
        source.execute(f"drop role {role}".encode())

    assert caught.value.command == "cdc doctor --sql"
    assert publication_facts(source, "p") is None


def test_wrong_connections_say_what_is_wrong(postgres: PostgresServer) -> None:
    with pytest.raises(SourceRefused, match=r'database "nix" does not exist'):
        connect(Secret(postgres.dsn_of("nix")))
    with pytest.raises(SourceRefused, match=r'role "nix" does not exist'):
        connect(Secret(psycopg.conninfo.make_conninfo(postgres.dsn, user="nix")))
    with pytest.raises(SourceUnreachable):
        connect(Secret("host=127.0.0.1 port=1 user=x"))
    with pytest.raises(SourceRefused, match="SSL") as caught:
        connect(Secret(psycopg.conninfo.make_conninfo(postgres.dsn, sslmode="require")))
    assert "sslmode" in caught.value.hint


def test_collations_of_database_and_columns_are_read(source: Connection) -> None:
    # PostgreSQL of the tests has no ICU, and so no nondeterministic collation.
    source.execute('create table public.t (id int, plain text, sorted text collate "C", lower text collate pg_c_utf8)')

    found = collations(source)

    assert (found.database.order, found.database.case) == (True, False), "servers of tests have the builtin C.UTF-8"
    columns = found.columns["public", "t"]
    assert sorted(columns) == ["lower", "sorted"]
    assert (columns["sorted"].order, columns["sorted"].case) == (True, True)
    assert (columns["lower"].order, columns["lower"].case) == (True, False)
    assert columns["sorted"].deterministic


@pytest.mark.parametrize(
    ("settings", "order", "case"),
    [
        ("locale_provider = libc locale = 'C'", True, True),
        ("locale_provider = builtin builtin_locale = 'C.UTF-8' locale = 'C'", True, False),
    ],
)
def test_collation_of_a_database_is_that_of_its_provider(
    source: Connection, database: Database, postgres: PostgresServer, settings: str, *, order: bool, case: bool
) -> None:
    name = f"{database.name}_c"
    source.execute(f"create database {name} template template0 encoding 'UTF8' {settings}".encode())
    try:
        with connect(Secret(postgres.dsn_of(name)), application_name="test") as other:
            found = collations(other).database
    finally:
        source.execute(f"drop database {name} with (force)".encode())

    assert (found.order, found.case) == (order, case)
