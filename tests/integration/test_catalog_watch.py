"""The catalog watch on a real server: what it must detect, and what it must not report as a gap."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from cdc.clock import SystemClock
from cdc.config.secret import Secret
from cdc.errors import SourceGap
from cdc.replication.catalog_watch import _FINGERPRINT, _TABLES, CatalogWatch, Watched
from cdc.replication.connect import connect
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from cdc.replication.connect import Connection
    from tests.fixtures.servers.running_servers import Database

_COUNT: Final = 250
_SLOT: Final = "watched"


def test_table_that_is_dropped_at_any_moment_is_no_gap(database: Database) -> None:
    looks: list[object] = []
    with psycopg.connect(database.dsn, autocommit=True) as session:
        watch = _watch(session, database, looks)
        try:
            for number in range(_COUNT):
                session.execute(f"drop table t{number}".encode())
            seen = len(looks)
            until(lambda: len(looks) > seen or watch.failure, "a look after the last of them")

            assert watch.failure is None
            session.execute("drop publication watched")
            failure = until(lambda: watch.failure, "the publication is missed")
        finally:
            watch.close()
            session.execute("select pg_drop_replication_slot(%s)", (_SLOT,))

    assert isinstance(failure, SourceGap)
    assert "publication 'watched' is gone" in failure.message


def _watch(session: psycopg.Connection[tuple[object, ...]], database: Database, looks: list[object]) -> CatalogWatch:
    """Looks without a pause, on tables of a publication for all."""
    for number in range(_COUNT):
        session.execute(f"create table t{number} (id int primary key)".encode())
    session.execute("create publication watched for all tables")
    session.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (_SLOT,))
    oids = session.execute("select oid::int8, relname::text from pg_class where relname ~ '^t[0-9]+$'").fetchall()
    row = session.execute("select oid::int8 from pg_publication").fetchone()
    assert row is not None
    publication = row[0]
    assert isinstance(publication, int)
    tables = {int(str(oid)): (f"public.{name}", 0) for oid, name in oids}
    watch = CatalogWatch(
        Secret(database.dsn),
        Watched(_SLOT, "watched", publication, tables),
        SystemClock(),
        period_s=0.0,
        seen=looks.append,
        failed=lambda: pytest.fail("a look got no answer"),
    )
    watch.start()
    return watch


# Each changes tables a, b, c, p with partition p1, and a root that p may be attached to. What is published,
# and as what, is decided by these and by nothing else that a session can change.
_CHANGES: Final = (
    "alter publication pub drop table a",
    "alter publication pub add table a",
    "begin; alter publication pub drop table a; alter publication pub add table a; commit",
    "alter publication pub set table a, p",
    "alter publication pub set table b, p1",
    "alter publication pub set table p",
    "alter publication pub add tables in schema away",
    "alter publication pub drop tables in schema away",
    "alter publication pub set (publish_via_partition_root = true)",
    "alter publication pub set (publish_via_partition_root = false)",
    "alter table a set schema away",
    "alter table away.a set schema public",
    "alter table root set schema away",
    "alter table away.root set schema public",
    "alter table a rename to z",
    "alter table z rename to a",
    "alter schema away rename to far",
    "alter schema far rename to away",
    "alter table root attach partition p for values from (0) to (100)",
    "alter table root detach partition p",
    "alter table p attach partition p1 for values from (0) to (10)",
    "alter table p detach partition p1",
    "alter table a set unlogged",
    "alter table a set logged",
    "drop publication pub; create publication pub for table a, p",
    "drop publication pub; create publication pub for all tables",
)
_AGAIN: Final = ("drop publication pub", "create publication pub for table a, p")
_SCENE: Final = (
    "create schema away",
    "create table a (id int primary key)",
    "create table b (id int primary key)",
    "create table away.c (id int primary key)",
    "create table root (id int primary key) partition by range (id)",
    "create table p (id int primary key) partition by range (id)",
    "create table p1 partition of p for values from (0) to (10)",
    "create publication pub for table a, p",
)


def test_fingerprint_changes_with_everything_that_the_tables_are_read_for(database: Database) -> None:
    """The full answer is the oracle: statements in random order, and where it is another one, so is the fingerprint."""
    dice, changed = random.Random(seed()), set()
    with connect(Secret(database.dsn), application_name="test") as sql:
        for statement in ("set search_path = public", *_SCENE):
            sql.execute(statement.encode())
        oids = "{" + ",".join(str(row[0]) for row in sql.execute(_OIDS).fetchall()) + "}"
        before = _states(sql, oids)
        for _ in range(20):
            for statement in (*_AGAIN, *dice.sample(_CHANGES, len(_CHANGES))):
                if not _ran(sql, statement):
                    continue
                after = _states(sql, oids)
                if after[0] != before[0]:
                    changed.add(statement)
                    assert after[1] != before[1], statement
                before = after

        sql.execute("analyze")  # notes, once, which tables have lost their last partition
        before = _states(sql, oids)
        sql.execute("create table other (id int primary key)")
        sql.execute("analyze")
        assert _states(sql, oids)[1] == before[1], "neither statistics nor other tables count"
    assert len(changed) > len(_CHANGES) * 0.7, sorted(set(_CHANGES) - changed)


def test_tables_are_read_only_after_something_has_changed_them(database: Database) -> None:
    checks: list[object] = []
    with psycopg.connect(database.dsn, autocommit=True) as session:
        watch = _watch(session, database, checks)
        connection = watch._connection
        assert connection is not None
        read = _counted(connection)
        try:
            for statement in ("insert into t1 values (1)", "vacuum analyze t1", "create table more (id int)"):
                session.execute(statement.encode())
                _next(watch, checks)
            assert read == []
            session.execute("alter table t2 rename to renamed")
            _next(watch, checks)
            assert len(read) == 1
            assert watch.failure is None
        finally:
            watch.close()
            session.execute("drop publication watched")
            session.execute("select pg_drop_replication_slot(%s)", (_SLOT,))


_OIDS: Final = """
select oid::int8 from pg_class
where relkind in ('r', 'p') and relnamespace in ('public'::regnamespace, 'away'::regnamespace)
"""


def _states(sql: Connection, oids: str) -> tuple[object, object]:
    """The full answer, and the fingerprint."""
    names = {"publication": "pub", "oids": oids}
    return sorted(sql.execute(_TABLES, names).fetchall()), sql.execute(_FINGERPRINT, names).fetchone()


def _ran(sql: Connection, statements: str) -> bool:
    try:
        with sql.transaction():
            for statement in statements.removeprefix("begin; ").removesuffix("; commit").split("; "):
                sql.execute(statement.encode())
    except psycopg.Error:
        return False  # it does not fit the state, for example a table that is attached already
    return True


def _next(watch: CatalogWatch, checks: list[object]) -> None:
    """Wait for a check that has begun after now."""
    seen = len(checks)
    until(lambda: len(checks) > seen + 1 or watch.failure, "two more checks")


def _counted(connection: Connection) -> list[object]:
    """Count how often the tables are read in full."""
    read: list[object] = []
    execute = connection.execute

    def counting(statement: Any, *arguments: Any) -> Any:
        if statement == _TABLES:
            read.append(statement)
        return execute(statement, *arguments)

    connection.execute = counting  # type: ignore[method-assign, assignment]
    return read
