"""The catalog watch on a real server: what it must detect, and what it must not report as a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from cdc.clock import SystemClock
from cdc.config.secret import Secret
from cdc.errors import SourceGap
from cdc.replication.catalog_watch import CatalogWatch, Watched
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.running_servers import Database

_TABLES: Final = 250
_SLOT: Final = "watched"


def test_table_that_is_dropped_at_any_moment_is_no_gap(database: Database) -> None:
    looks: list[object] = []
    with psycopg.connect(database.dsn, autocommit=True) as session:
        watch = _watch(session, database, looks)
        try:
            for number in range(_TABLES):
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
    for number in range(_TABLES):
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
