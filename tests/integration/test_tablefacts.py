"""Two readings of a real catalog show every DDL that changed existing rows, and no other (B1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from cdc.config.secret import Secret
from cdc.model.ddl_finding import CatalogReading, compare_catalog, rewrite_statement
from cdc.replication.catalog_facts import CatalogReader
from cdc.replication.connect import connect
from cdc.replication.publication import GENERATED_SINCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdc.model.table_facts import DdlFinding, TableFacts
    from cdc.replication.connect import Connection
    from tests.fixtures.servers.running_servers import Database

Found = set[tuple[str, str]]
"""(table without its schema, kind)."""

_TABLES: Final = (
    "create type mood as enum ('bad')",
    "create table t (id int primary key, n int, v varchar(10), at timestamp, m mood)",
    "create table old (id int primary key)",
    "create table p (id int primary key, v text) partition by range (id)",
    "create table p_low partition of p for values from (0) to (10)",
    "create table p_apart (id int primary key, v text)",
    "insert into t values (1, 1, 'one', now(), 'bad')",
    "insert into old values (1)",
    "insert into p values (1, 'one')",
    "alter table old add d int default 3",
)
_SELECTED: Final = ("public.*", "!public.p_*")

# What is done to the tables, and what is found of it.
TOLD: Final[dict[str, tuple[list[str], Found]]] = {
    "constant default": (["alter table t add d int default 7"], {("t", "column_filled")}),
    "volatile default": (["alter table t add d float default random()"], {("t", "column_filled")}),
    "identity": (["alter table t add d int generated always as identity"], {("t", "column_filled")}),
    "default that was rewritten since": (
        ["alter table t add d int default 7", "alter table t alter d drop default", "vacuum full t"],
        {("t", "column_filled")},
    ),
    "default of a partitioned table": (["alter table p add d int default 7"], {("p", "column_filled")}),
    "other type": (["alter table t alter n type bigint"], {("t", "type_changed")}),
    "other type of a partitioned table": (
        ["alter table p alter v type int using length(v)"],
        {("p", "type_changed")},
    ),
    "type that prints otherwise": (["alter table t alter at type timestamptz"], {("t", "type_changed")}),
    "same type, other values": (["alter table t alter n type int using n + 1"], {("t", "values_rewritten")}),
    "same type, other values, after a stored default": (
        ["alter table old alter d type int using d + 1"],
        {("old", "values_rewritten")},
    ),
    "column dropped and made again": (["alter table t drop n, add n text"], {("t", "values_rewritten")}),
    "column renamed to the name of a dropped one": (
        ["alter table t drop v", "alter table t rename n to v"],
        {("t", "values_rewritten")},
    ),
    "names of columns exchanged": (
        ["begin; alter table t rename n to x; alter table t rename v to n; alter table t rename x to v; commit"],
        {("t", "values_rewritten")},
    ),
    "attached": (
        ["insert into p_apart values (11, 'x')", "alter table p attach partition p_apart for values from (10) to (20)"],
        {("p", "partition_attached")},
    ),
    "made, filled and attached in one transaction": (
        [
            "begin",
            "create table fresh (id int primary key, v text)",
            "insert into fresh values (30, 'x')",
            "alter table p attach partition fresh for values from (30) to (40)",
            "commit",
        ],
        {("p", "partition_attached")},
    ),
    "attached with partitions of its own": (
        [
            "create table sub (id int primary key, v text) partition by range (id)",
            "create table sub_a partition of sub for values from (40) to (45)",
            "insert into sub values (41, 'x')",
            "alter table p attach partition sub for values from (40) to (50)",
        ],
        {("p", "partition_attached")},
    ),
    "detached": (["alter table p detach partition p_low"], {("p", "partition_left")}),
    "partition dropped": (["drop table p_low"], {("p", "partition_left")}),
    "table renamed": (["alter table t rename to u"], {("u", "renamed")}),
    "names exchanged": (
        ["begin; alter table t rename to x; alter table old rename to t; alter table x rename to old; commit"],
        {("t", "replaced"), ("old", "replaced")},
    ),
    "schema changed": (["create schema other", "alter table t set schema other"], {("t", "left")}),
    "table dropped": (["drop table t"], {("t", "left")}),
    "table dropped and made again": (
        ["drop table t", "create table t (id int primary key)", "alter publication pub add table t"],
        {("t", "replaced")},
    ),
    "table taken out": (["alter publication pub drop table t"], {("t", "left")}),
    "table joined": (
        ["create table late (id int primary key)", "alter publication pub add table late"],
        {("late", "joined")},
    ),
}
NOT_TOLD: Final[dict[str, list[str]]] = {
    "nullable column": ["alter table t add d int"],
    "generated column": ["alter table t add d int generated always as (n + 1) stored"],
    "longer varchar": ["alter table t alter v type varchar(20)"],
    "column dropped and renamed": ["alter table t drop v", "alter table t rename n to number"],
    "vacuum full": ["vacuum full t", "vacuum full old", "vacuum full p"],
    "cluster": ["cluster t using t_pkey", "cluster old using old_pkey"],
    "default for later rows": ["alter table t alter n set default 5", "alter table old alter d set default 6"],
    "index, constraint, statistics": [
        "create index on t (n)",
        "alter table t add check (n > -5)",
        "alter table t alter n set statistics 50",
        "analyze t",
    ],
    "truncate": ["truncate t"],
    "partition made": ["create table p_more partition of p for values from (10) to (20)"],
    "partition made with partitions": [
        "create table p_sub partition of p for values from (10) to (20) partition by range (id)",
        "create table p_sub_a partition of p_sub for values from (10) to (15)",
    ],
    "enum label": ["alter type mood add value 'fine'"],
    "rolled back": ["begin; alter table t add d int default 1; rollback"],
}


class Source:
    """A database with a publication, and what was last seen of it."""

    def __init__(self, connection: Connection, publication: str) -> None:
        self.catalog = CatalogReader(connection, publication, _SELECTED)
        self._connection = connection
        self.before = self._look({})

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self._connection.execute(statement.encode())

    def found(self) -> list[DdlFinding]:
        """What happened since the last call."""
        before, self.before = self.before, self._look(self.before.tables)
        return compare_catalog(before.scope, before.tables, self.before, epoch=1)

    def _look(self, before: Mapping[str, TableFacts]) -> CatalogReading:
        scope = self.catalog.scope()
        assert scope is not None
        tables = {facts.table: facts for facts in self.catalog.facts(self.catalog.digests()).values()}
        known = [oid for facts in before.values() for oid in (facts.oid, *(leaf.oid for leaf in facts.leaves))]
        return CatalogReading(scope, tables, self.catalog.names(known), self.catalog.end_of_wal())


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    made = connect(Secret(database.dsn))
    made.execute("set search_path = public")
    yield made
    made.close()


@pytest.fixture
def source(connection: Connection) -> Source:
    """The tables above, published by name."""
    for statement in _TABLES:
        connection.execute(statement.encode())
    connection.execute("create publication pub for table t, old, p with (publish_via_partition_root = true)")
    return Source(connection, "pub")


def kinds(found: list[DdlFinding]) -> Found:
    return {(one.table.partition(".")[2], one.kind) for one in found}


@pytest.mark.parametrize("what", TOLD)
def test_change_of_existing_rows_is_reported(source: Source, what: str) -> None:
    statements, wanted = TOLD[what]

    source.sql(*statements)
    found = source.found()

    assert kinds(found) == wanted
    assert len(found) == len(wanted)
    assert all(one.since_lsn < one.lsn for one in found)
    assert source.found() == [], "once"


@pytest.mark.parametrize(
    "how",
    ["alter publication pub set (publish_generated_columns = stored)", "alter publication pub set table g (id, d)"],
)
def test_newly_published_generated_column_is_reported(connection: Connection, how: str) -> None:
    """Rows that are in the log lack its values, and no event says so."""
    if connection.info.server_version < GENERATED_SINCE:
        pytest.skip("from PostgreSQL 18 on")
    connection.execute("create table g (id int primary key, d int generated always as (id + 1) stored)")
    connection.execute("create publication pub for table g")
    source = Source(connection, "pub")
    before = source.catalog.digests()

    source.sql(how)

    assert source.catalog.digests() != before
    assert kinds(source.found()) == {("g", "column_filled")}


def test_generated_column_added_to_a_table_is_reported(connection: Connection) -> None:
    if connection.info.server_version < GENERATED_SINCE:
        pytest.skip("from PostgreSQL 18 on")
    connection.execute("create table g (id int primary key)")
    connection.execute("create publication pub for table g with (publish_generated_columns = stored)")
    source = Source(connection, "pub")

    source.sql("alter table g add d int generated always as (id + 1) stored")

    assert kinds(source.found()) == {("g", "column_filled")}


@pytest.mark.parametrize("what", NOT_TOLD)
def test_ddl_that_changes_no_row_is_not_reported(source: Source, what: str) -> None:
    source.sql(*NOT_TOLD[what])

    assert source.found() == []


@pytest.mark.parametrize("what", TOLD)
def test_digest_changes_with_every_field(source: Source, what: str) -> None:
    """Facts are only read of tables whose digest is another one."""
    statements, _ = TOLD[what]
    before = source.catalog.digests()

    source.sql(*statements)

    assert source.catalog.digests() != before


@pytest.mark.parametrize("scope", ["for all tables", "for tables in schema public"])
def test_table_that_was_born_into_the_publication_is_whole(connection: Connection, scope: str) -> None:
    connection.execute(f"create table first (id int primary key); create publication pub {scope}".encode())
    source = Source(connection, "pub")

    source.sql("create table second (id int primary key)")

    assert source.found() == []


def test_table_that_existed_before_its_schema_was_published_is_reported(connection: Connection) -> None:
    connection.execute("create table first (id int primary key); create schema s; create table s.t (id int)")
    connection.execute("create publication pub for table first")
    source = Source(connection, "pub")
    source.catalog = CatalogReader(connection, "pub", ("*.*",))
    source.found()

    source.sql("alter publication pub add tables in schema s")

    assert kinds(source.found()) == {("t", "joined")}


@pytest.mark.parametrize(
    ("scope", "made", "ddl"),
    [
        (
            "for tables in schema public",
            "create schema s; create table s.t (id int)",
            "alter table s.t set schema public",
        ),
        ("for all tables", "create unlogged table t (id int)", "alter table t set logged"),
    ],
)
def test_table_that_existed_before_it_could_be_published_is_reported(
    connection: Connection, scope: str, made: str, ddl: str
) -> None:
    connection.execute(f"create table first (id int primary key); {made}; create publication pub {scope}".encode())
    source = Source(connection, "pub")

    source.sql(ddl)

    assert kinds(source.found()) == {("t", "joined")}


def test_table_that_the_configuration_selects_later_is_reported(connection: Connection) -> None:
    connection.execute("create table first (id int primary key); create publication pub for all tables")
    source = Source(connection, "pub")
    source.sql("create table p_new (id int primary key)")

    source.catalog = CatalogReader(connection, "pub", ("public.*",))

    assert kinds(source.found()) == {("p_new", "joined")}


def test_statement_that_goes_with_a_finding_changes_no_value(connection: Connection) -> None:
    connection.execute(
        'create table "we.ird" ("q""uote" int generated always as identity primary key, "v v" text, '
        'twice int generated always as (1) stored); insert into "we.ird" ("v v") values (\'x\')'
    )
    connection.execute("create publication pub for all tables")
    facts = next(iter(Source(connection, "pub").before.tables.values()))

    statement = rewrite_statement(facts, facts.columns)

    assert connection.execute(statement.encode()).rowcount == 1
    assert connection.execute('select * from "we.ird"').fetchall() == [(1, "x", 1)]


def test_column_that_is_not_published_is_not_reported(connection: Connection) -> None:
    connection.execute("create table t (id int primary key, n int); create publication pub for table t (id)")
    source = Source(connection, "pub")

    source.sql("alter table t add d int default 1", "alter table t alter n type bigint")

    assert source.found() == []
