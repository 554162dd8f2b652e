"""One reading of the catalog is consistent: DDL that commits between its queries is not visible in any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import psycopg
import pytest

from cdc.config.secret import Secret
from cdc.replication.catalog_facts import CatalogReader, table_facts
from cdc.replication.catalog_queries import key_columns, one_snapshot, tables_matching
from cdc.replication.connect import Connection, connect
from cdc.replication.publication import publication_facts

if TYPE_CHECKING:
    from tests.fixtures.servers.running_servers import Database

    Read = Callable[[Connection, int], object]

_MADE: Final = (
    "create table t (v text not null)",
    "insert into t values ('a')",
    "create publication p for table only t",
)
_READINGS: Final[dict[str, Read]] = {
    "tables": lambda source, _: tables_matching(source, ["public.t"]),
    "key": key_columns,
    "facts": lambda source, oid: table_facts(source, "p", [oid]),
    "publication": lambda source, _: publication_facts(source, "p"),
    "check": lambda source, oid: _checked(CatalogReader(source, "p", ["public.t"]), oid),
}
# A new key column fills the table again: name, columns, indexes, file node and publication change in one statement.
_DDL: Final = "alter table t add column id bigint generated always as identity primary key"


def _checked(catalog: CatalogReader, oid: int) -> tuple[object, ...]:
    with catalog.one_snapshot():
        return catalog.digests(), catalog.facts([oid])


class _Between:
    """A connection on which `ddl` commits after the query number `after`."""

    def __init__(self, source: Connection, after: int, ddl: Callable[[], None]) -> None:
        self._source, self._left, self._ddl = source, after, ddl

    def execute(self, *query: Any) -> Any:
        answer = self._source.execute(*query)
        if "from" in str(query[0]):
            self._left -= 1
            if self._left == 0:
                self._ddl()
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("reading", _READINGS)
def test_ddl_between_two_queries_of_a_reading_is_in_none_of_their_answers(
    database: Database, reading: str, after: int
) -> None:
    ran: list[bool] = []
    with connect(Secret(database.dsn)) as source, psycopg.connect(database.dsn, autocommit=True) as admin:
        for statement in _MADE:
            admin.execute(statement.encode())
        found = admin.execute("select 't'::regclass::oid::int8").fetchone()
        assert found is not None
        read = _READINGS[reading]
        before = read(source, found[0])

        def ddl() -> None:
            admin.execute(_DDL.encode())
            ran.append(True)

        seen = read(cast("Connection", _Between(source, after, ddl)), found[0])

        assert ran
        assert seen == before
        assert read(source, found[0]) != before


def test_table_that_is_published_after_the_snapshot_is_not_in_the_facts_without_its_membership(
    database: Database,
) -> None:
    """pg_get_publication_tables sees it at once, pg_publication_rel only with the next snapshot."""
    with connect(Secret(database.dsn)) as source, psycopg.connect(database.dsn, autocommit=True) as admin:
        for statement in (*_MADE, "create table late (id int primary key)", "create schema s", "create table s.x ()"):
            admin.execute(statement.encode())
        with one_snapshot(source, "test"):
            before = publication_facts(source, "p")
            admin.execute("alter publication p add table late, tables in schema s")
            assert publication_facts(source, "p") == before
        after = publication_facts(source, "p")

    assert before is not None
    assert after is not None
    assert len(after.tables) == len(before.tables) + 2
